"""Planes treated by bands: Llama 3 slows the slow ones down, proportional RoPE stops them.

Chapter "Longer than the training text". With r_j = L theta_j / 2pi the turns of plane j within the
trained length L and s the factor, Llama 3 has

    theta'_j = (1 - t_j) theta_j / s + t_j theta_j,   t_j = (r_j - low)/(high - low) in 0 ... 1.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rope.checks import check_count
from rope.extensions.base import Extension
from rope.scalars import check_number


@dataclass(frozen=True)
class Llama3(Extension):
    """Llama 3.1's scaling: keep what turns often within L, divide what turns seldom, blend between.

    factor: s, at least 1; original_max_position_embeddings: L.
    low_freq_factor, high_freq_factor: the turns at which the blend begins and ends. Reach: s L.
    Raises ValueError or TypeError for bad numbers. The formula is that of the released code; the
    report (arXiv 2407.21783, section 3.4.2) gives the base alone.

    >>> import rope
    >>> plain = rope.inverse_frequencies(128, 500_000.0)
    >>> changed = Llama3(8.0, 8192).scale(plain, 500_000.0)
    >>> int((changed == plain).sum()), int((changed == plain / 8).sum())
    (29, 29)
    """

    name: ClassVar[str] = "llama3"
    paper: ClassVar[str] = "Llama 3.1's released code (2024); Llama 3, arXiv 2407.21783"
    factor: float
    original_max_position_embeddings: int
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)
        check_count("original_max_position_embeddings", self.original_max_position_embeddings)
        check_number("low_freq_factor", self.low_freq_factor, above=0)
        check_number("high_freq_factor", self.high_freq_factor, above=0)
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor is {self.high_freq_factor} and low_freq_factor "
                f"{self.low_freq_factor}; high_freq_factor must be the larger one: swap them"
            )

    @property
    def reach(self) -> int:
        return int(self.factor * self.original_max_position_embeddings)

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        turns = inv_freq * (self.original_max_position_embeddings / (2 * math.pi))
        width = self.high_freq_factor - self.low_freq_factor
        kept = ((turns - self.low_freq_factor) / width).clamp(0, 1)
        return inv_freq / self.factor * (1 - kept) + inv_freq * kept


@dataclass(frozen=True)
class Proportional(Extension):
    """p-RoPE: the first floor(p R/2) planes turn, with the frequencies they would have among all.

    partial_rotary_factor: p, in 0 ... 1; factor: divides the frequencies, at least 1.
    Unlike partial rotation, the spectrum is not squeezed into the planes that turn, and the two
    coordinates of a still plane keep their places. Raises ValueError or TypeError for bad numbers.
    Barbero et al., arXiv 2410.06205, section 6.1.

    >>> import rope
    >>> Proportional(0.5).scale(rope.inverse_frequencies(8, base=16.0), 16.0)
    tensor([1.0000, 0.5000, 0.0000, 0.0000], dtype=torch.float64)
    """

    name: ClassVar[str] = "proportional"
    paper: ClassVar[str] = "p-RoPE, arXiv 2410.06205, section 6.1"
    partial_rotary_factor: float = 1.0
    factor: float = 1.0

    def __post_init__(self) -> None:
        check_number("partial_rotary_factor", self.partial_rotary_factor, at_least=0)
        if self.partial_rotary_factor > 1:
            raise ValueError(
                f"partial_rotary_factor is {self.partial_rotary_factor}; it must be at most 1, the "
                "share of the planes that turn: pass 1.0 for all"
            )
        check_number("factor", self.factor, at_least=1)

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        turning = int(self.partial_rotary_factor * len(inv_freq))
        j = torch.arange(len(inv_freq), device=inv_freq.device)
        return torch.where(j < turning, inv_freq / self.factor, torch.zeros_like(inv_freq))
