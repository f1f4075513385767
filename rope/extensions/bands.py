"""Define extensions that change only slow planes. Llama 3 slows them, and p-RoPE stops them.

See the chapter "Longer than the training text". Within the trained length L, plane j makes
r_j = L theta_j / (2 pi) turns. With the factor s, Llama 3 computes

    theta'_j = (1 - t_j) theta_j / s + t_j theta_j,

where t_j = (r_j - low_freq_factor)/(high_freq_factor - low_freq_factor), clipped to 0 ... 1.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rope.checks import check_count, check_number
from rope.extensions.base import Extension


@dataclass(frozen=True)
class Llama3(Extension):
    """Keep fast frequencies, divide slow frequencies by s, and blend the rest, as Llama 3.1 does.

    factor: s, at least 1. original_max_position_embeddings: the trained length L.
    low_freq_factor, high_freq_factor: the ends of the blend, in turns within L. They may be equal.
    Raises ValueError or TypeError for invalid numbers. The formula comes from Llama's released
    code; the report (arXiv 2407.21783, section 3.4.2) states only the base.

    >>> import rope
    >>> plain = rope.inverse_frequencies(128, 500_000.0)
    >>> changed = Llama3(8.0, 8192).scale(plain, 500_000.0)
    >>> int((changed == plain).sum()), int((changed == plain / 8).sum())
    (29, 29)
    """

    name: ClassVar[str] = "llama3"
    factor: float
    original_max_position_embeddings: int
    _: KW_ONLY
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)
        check_count("original_max_position_embeddings", self.original_max_position_embeddings)
        if self.high_freq_factor < self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor is {self.high_freq_factor}; it must be at least low_freq_factor "
                f"({self.low_freq_factor}); raise high_freq_factor, or lower low_freq_factor"
            )

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        turns = inv_freq * (self.original_max_position_embeddings / (2 * math.pi))
        low, width = self.low_freq_factor, self.high_freq_factor - self.low_freq_factor
        kept = ((turns - low) / width).clamp(0, 1) if width else (turns > low).to(turns)
        return inv_freq / self.factor * (1 - kept) + inv_freq * kept


@dataclass(frozen=True)
class Proportional(Extension):
    """Rotate only the first floor(p R/2) planes; the slower planes don't rotate (p-RoPE).

    partial_rotary_factor: p, between 0 and 1. factor: the divisor of all frequencies, at least 1.
    A smaller dim isn't the same, because it spreads the entire spectrum over the rotating planes.
    Raises ValueError or TypeError for invalid numbers.
    See Barbero et al., arXiv 2410.06205, section 6.1.

    >>> import rope
    >>> Proportional(0.5).scale(rope.inverse_frequencies(8, base=16.0), 16.0)
    tensor([1.0000, 0.5000, 0.0000, 0.0000], dtype=torch.float64)
    """

    name: ClassVar[str] = "proportional"
    partial_rotary_factor: float = 1.0
    _: KW_ONLY
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.partial_rotary_factor <= 1:
            raise ValueError(
                f"partial_rotary_factor is {self.partial_rotary_factor}; it is the share of "
                "rotating planes and must be between 0 and 1"
            )
        check_number("factor", self.factor, at_least=1)

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        j = torch.arange(len(inv_freq), device=inv_freq.device)
        return inv_freq / self.factor * (j < int(self.partial_rotary_factor * len(inv_freq)))
