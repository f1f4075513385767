"""Implement YaRN: keep fast frequencies, interpolate slow frequencies, and blend in between.

See the chapter "Longer than the training text". Plane j makes r_j = L theta_j / (2 pi) turns within
the trained length L. Plane `low` makes beta_fast turns, and plane `high` makes beta_slow turns. Let
s be the factor, and ramp_j = (j - low)/(high - low), clipped to 0 ... 1. The frequencies are

    theta'_j = (1 - ramp_j) theta_j + ramp_j theta_j / s,

and cos and sin are multiplied by the attention factor, which is 0.1 ln s + 1 by default.
See Peng et al., arXiv 2309.00071, sections 3.2 and 3.4. The paper's ramp is linear in r_j; this
ramp is linear in j, as in the authors' code and in every released model.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rope.checks import check_number
from rope.extensions.base import Extension


@dataclass(frozen=True)
class YaRN(Extension):
    """Interpolate only slow planes and sharpen the scores (YaRN), as Qwen2.5 and gpt-oss do.

    factor: s, at least 1. original_max_position_embeddings: the trained length L.
    beta_fast, beta_slow: planes with more than beta_fast turns within L are unchanged; planes with
    fewer than beta_slow turns are interpolated.
    attention_factor: the factor for cos and sin. None means mscale(s) unless `mscale` and
    `mscale_all_dim` are nonzero; then it means mscale(s, mscale) / mscale(s, mscale_all_dim).
    truncate: if True, round the ends of the ramp outward to integer planes.
    Raises ValueError or TypeError for invalid numbers. `scale` raises ValueError if base is at most
    1, if every plane makes fewer than beta_slow turns within L, or if every plane makes more than
    beta_fast turns.

    >>> yarn = YaRN(10.0, 2048)
    >>> yarn.correction_range(128, 10000.0), f"{yarn.attention_scaling:.4f}"
    ((16.0, 41.0), '1.2303')
    """

    name: ClassVar[str] = "yarn"
    factor: float
    original_max_position_embeddings: int
    _: KW_ONLY
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)
        if self.beta_fast < self.beta_slow:
            raise ValueError(
                f"beta_fast is {self.beta_fast} and beta_slow is {self.beta_slow}; beta_fast must "
                "be at least beta_slow, because fast planes make more turns; swap the two"
            )
        if self.attention_factor is not None:
            check_number("attention_factor", self.attention_factor, above=0)

    @property
    def attention_scaling(self) -> float:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        if self.mscale and self.mscale_all_dim:
            return mscale(self.factor, self.mscale) / mscale(self.factor, self.mscale_all_dim)
        return mscale(self.factor)

    def correction_range(self, dim: int, base: float) -> tuple[float, float]:
        """Return the planes at which the ramp begins and ends, clipped to 0 ... dim - 1.

        The plane that makes beta turns within L is j = dim ln(L / (2 pi beta)) / (2 ln base).
        Raises ValueError if base is at most 1 or the ramp lies outside 0 ... dim - 1.

        >>> low, high = YaRN(10.0, 2048, truncate=False).correction_range(128, 10000.0)
        >>> f"{low:.3f} {high:.3f}"
        '16.128 40.210'
        """
        if base <= 1:
            raise ValueError(f"base is {base}; YaRN needs a base above 1, such as 10000.0")

        def plane(turns: float) -> float:
            wavelength = self.original_max_position_embeddings / turns
            return dim * math.log(wavelength / (2 * math.pi)) / (2 * math.log(base))

        low, high = plane(self.beta_fast), plane(self.beta_slow)
        if self.truncate:
            low, high = float(math.floor(low)), float(math.ceil(high))
        # Clipping a ramp that lies outside 0 ... dim - 1 would invert it.
        if high < 0 or low > dim - 1:
            few_or_many = "fewer than beta_slow" if high < 0 else "more than beta_fast"
            raise ValueError(
                f"original_max_position_embeddings is {self.original_max_position_embeddings}; "
                f"at dim {dim} and base {base:g}, every plane makes {few_or_many} turns within "
                f"this length; use {'Linear' if high < 0 else 'Default'}, or change the betas"
            )
        return max(low, 0.0), min(high, dim - 1.0)

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        low, high = self.correction_range(2 * len(inv_freq), base)
        if low == high:
            high += 0.001  # the ramp becomes a step, as in the reference implementations
        j = torch.arange(len(inv_freq), dtype=inv_freq.dtype, device=inv_freq.device)
        ramp = ((j - low) / (high - low)).clamp(0, 1)
        return inv_freq * (1 - ramp) + inv_freq / self.factor * ramp


def mscale(factor: float, weight: float = 1.0) -> float:
    """Return 0.1 * weight * ln(factor) + 1, or 1 if factor is at most 1 (YaRN, equation 22).

    >>> f"{mscale(16.0):.5f}"
    '1.27726'
    """
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
