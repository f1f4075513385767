"""One number for all planes: slower positions, or a larger base.

Chapter "Longer than the training text". With s the factor, d the rotated width and L the trained
length,

    linear:   theta'_j = theta_j / s
    NTK:      theta'_j = (base * s**(d/(d-2)))**(-2j/d) = theta_j * s**(-2j/(d-2))
    dynamic:  NTK with s replaced by s*n/L - (s-1) at a length n > L.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rope.checks import check_count
from rope.extensions.base import Extension
from rope.scalars import check_number


@dataclass(frozen=True)
class Linear(Extension):
    """Position interpolation: every position is divided by the factor.

    factor: s, at least 1; reach: s times the trained length, whatever that was.
    Raises ValueError or TypeError for a bad factor. Chen et al., arXiv 2306.15595, section 3.2.

    >>> import rope
    >>> Linear(4.0).scale(rope.inverse_frequencies(4), 10000.0)
    tensor([0.2500, 0.0025], dtype=torch.float64)
    """

    name: ClassVar[str] = "linear"
    paper: ClassVar[str] = "Position Interpolation, arXiv 2306.15595, equation 4"
    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        return inv_freq / self.factor


@dataclass(frozen=True)
class NTK(Extension):
    """NTK-aware scaling: the base grows so that the slowest plane slows down by s, the first not.

    factor: s, at least 1. Raises ValueError or TypeError for a bad factor, and, in `scale`,
    ValueError for a single plane. It has no paper; YaRN (arXiv 2309.00071), section 3.1, writes it
    down.

    >>> import rope
    >>> plain = rope.inverse_frequencies(8)
    >>> (NTK(4.0).scale(plain, 10000.0) / plain)[[0, -1]]
    tensor([1.0000, 0.2500], dtype=torch.float64)
    """

    name: ClassVar[str] = "ntk"
    paper: ClassVar[str] = "NTK-aware scaling (2023), in YaRN, arXiv 2309.00071, definition 1"
    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        return _larger_base(inv_freq, self.factor)


@dataclass(frozen=True)
class DynamicNTK(Extension):
    """NTK-aware scaling by as much as the length in use asks for, and not at all up to L.

    factor: s, at least 1; original_max_position_embeddings: L. Keys rotated at one length do not
    fit queries rotated at another: with a cache, fix seq_len at the final length.
    Raises ValueError or TypeError for bad numbers, and, in `scale`, ValueError for a single plane.
    It has no paper; YaRN (arXiv 2309.00071), section 3.3, discusses it.

    >>> import rope
    >>> plain, dynamic = rope.inverse_frequencies(8), DynamicNTK(1.0, 100)
    >>> (dynamic.scale(plain, 10000.0, seq_len=400) / plain)[-1].item()
    0.25
    >>> bool((dynamic.scale(plain, 10000.0, seq_len=100) == plain).all())
    True
    """

    name: ClassVar[str] = "dynamic"
    paper: ClassVar[str] = "dynamic NTK scaling (2023), in YaRN, arXiv 2309.00071, section 3.3"
    factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)
        check_count("original_max_position_embeddings", self.original_max_position_embeddings)

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        trained = self.original_max_position_embeddings
        if seq_len is None or seq_len <= trained:
            return inv_freq
        return _larger_base(inv_freq, self.factor * seq_len / trained - (self.factor - 1))

    @property
    def length_dependent(self) -> bool:
        return True

    def regime(self, seq_len: int | None) -> int | None:
        beyond = seq_len is not None and seq_len > self.original_max_position_embeddings
        return seq_len if beyond else None


def _larger_base(inv_freq: Tensor, factor: float) -> Tensor:
    """theta_j * factor**(-2j/(d-2)): 1 at the first plane, 1/factor at the last."""
    planes = len(inv_freq)
    if planes < 2:
        raise ValueError(
            "dim is 2; NTK-aware scaling must have at least two planes, of which the first is kept "
            "and the last slowed down: pass dim=4 or more, or use Linear"
        )
    j = torch.arange(planes, dtype=inv_freq.dtype, device=inv_freq.device)
    return inv_freq * torch.full_like(j, factor).pow(-j / (planes - 1))
