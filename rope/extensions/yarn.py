"""YaRN: fast planes keep their frequency, slow ones are interpolated, a ramp joins the two.

Chapter "Longer than the training text". Plane j makes r_j = L theta_j / 2pi turns within the
trained length L. With low and high the planes of beta_fast and beta_slow turns, s the factor and
ramp_j = (j - low)/(high - low) clipped to 0 ... 1,

    theta'_j = (1 - ramp_j) theta_j + ramp_j theta_j / s,

and cos and sin are multiplied by the attention factor, 0.1 ln s + 1 unless it is given.
Peng et al., arXiv 2309.00071, sections 3.2 and 3.4. The paper's ramp is linear in r_j; this one,
linear in j, is that of the authors' code, with which the models were made.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rope.checks import check_count
from rope.extensions.base import Extension
from rope.scalars import check_flag, check_number


@dataclass(frozen=True)
class YaRN(Extension):
    """YaRN ("NTK by parts" with attention scaling), as in Qwen2.5, DeepSeek-V3 and gpt-oss.

    factor: s, at least 1; original_max_position_embeddings: L.
    beta_fast, beta_slow: turns within L from which a plane is kept, and below which interpolated.
    attention_factor: multiplies cos and sin; when None, mscale(s, mscale) / mscale(s,
    mscale_all_dim) if both are given and not 0, else mscale(s).
    truncate: round the ramp's ends outwards to whole planes. Reach: s L.
    Raises ValueError or TypeError for bad numbers, and, in `scale`, for a base of 1 or less and
    for an L within which no plane makes beta_slow turns or all make more than beta_fast.

    >>> yarn = YaRN(10.0, 2048)
    >>> yarn.correction_range(128, 10000.0), f"{yarn.attention_scaling:.4f}"
    ((16.0, 41.0), '1.2303')
    """

    name: ClassVar[str] = "yarn"
    paper: ClassVar[str] = "YaRN, arXiv 2309.00071, definition 3"
    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)
        check_count("original_max_position_embeddings", self.original_max_position_embeddings)
        check_number("beta_fast", self.beta_fast, above=0)
        check_number("beta_slow", self.beta_slow, above=0)
        if self.beta_fast < self.beta_slow:
            raise ValueError(
                f"beta_fast is {self.beta_fast} and beta_slow {self.beta_slow}; beta_fast must be "
                "at least beta_slow, since fast planes make more turns: swap them"
            )
        if self.attention_factor is not None:
            check_number("attention_factor", self.attention_factor, above=0)
        for name, weight in (("mscale", self.mscale), ("mscale_all_dim", self.mscale_all_dim)):
            if weight is not None:
                check_number(name, weight, at_least=0)
        check_flag("truncate", self.truncate)

    @property
    def attention_scaling(self) -> float:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        if self.mscale and self.mscale_all_dim:
            return mscale(self.factor, self.mscale) / mscale(self.factor, self.mscale_all_dim)
        return mscale(self.factor)

    @property
    def reach(self) -> int:
        return int(self.factor * self.original_max_position_embeddings)

    def correction_range(self, dim: int, base: float) -> tuple[float, float]:
        """The planes between which the ramp rises from 0 to 1, within 0 ... dim - 1.

        The plane that makes beta turns within L is j = d ln(L / 2 pi beta) / (2 ln base).

        >>> low, high = YaRN(10.0, 2048, truncate=False).correction_range(128, 10000.0)
        >>> f"{low:.3f} {high:.3f}"
        '16.128 40.210'
        """
        if base <= 1:
            raise ValueError(f"base is {base}; YaRN must have one above 1, such as 10000.0")

        def plane(turns: float) -> float:
            wavelength = self.original_max_position_embeddings / turns
            return dim * math.log(wavelength / (2 * math.pi)) / (2 * math.log(base))

        low, high = plane(self.beta_fast), plane(self.beta_slow)
        if self.truncate:
            low, high = float(math.floor(low)), float(math.ceil(high))
        self._check_range(low, high, dim, base)
        return max(low, 0.0), min(high, dim - 1.0)

    def _check_range(self, low: float, high: float, dim: int, base: float) -> None:
        """Refuse a ramp that lies before the first plane or past them all: it would be inverted."""
        trained = self.original_max_position_embeddings
        what = f"original_max_position_embeddings is {trained}; for dim {dim} and base {base:g}"
        if high < 0:
            raise ValueError(
                f"{what} YaRN must have a plane that makes beta_slow, {self.beta_slow:g}, turns "
                f"within it: use Linear({self.factor:g}), which slows all planes down, or a "
                "smaller beta_slow"
            )
        if low > dim - 1:
            raise ValueError(
                f"{what} YaRN must have a plane that makes at most beta_fast, {self.beta_fast:g}, "
                "turns within it: use Default(), which keeps all planes, or a larger base"
            )

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        low, high = self.correction_range(2 * len(inv_freq), base)
        if low == high:
            high += 0.001  # a step instead of a ramp, as the reference implementations have it
        j = torch.arange(len(inv_freq), dtype=inv_freq.dtype, device=inv_freq.device)
        ramp = ((j - low) / (high - low)).clamp(0, 1)
        return inv_freq * (1 - ramp) + inv_freq / self.factor * ramp


def mscale(factor: float, weight: float = 1.0) -> float:
    """0.1 weight ln(factor) + 1, and 1 for a factor of at most 1 (YaRN, equation 22).

    Raises ValueError or TypeError for what is no finite number.

    >>> f"{mscale(16.0):.5f}"
    '1.27726'
    """
    check_number("factor", factor)
    check_number("weight", weight)
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
