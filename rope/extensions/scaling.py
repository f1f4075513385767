"""Define extensions with one factor, which either divides all positions or enlarges the base.

See the chapter "Longer than the training text". With the factor s, the rotated width R, and the
trained length L, the frequencies are

    linear:   theta'_j = theta_j / s
    NTK:      theta'_j = (base * s**(R/(R-2)))**(-2j/R) = theta_j * s**(-2j/(R-2))
    dynamic:  NTK with s replaced by s*n/L - (s-1) at a length n > L.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rope.checks import check_number
from rope.extensions.base import Extension


@dataclass(frozen=True)
class Linear(Extension):
    """Divide every position by a factor (position interpolation).

    factor: s, at least 1. Raises ValueError or TypeError for an invalid factor.
    See Chen et al., arXiv 2306.15595, equation 4.

    >>> import rope
    >>> Linear(4.0).scale(rope.inverse_frequencies(4), 10000.0)
    tensor([0.2500, 0.0025], dtype=torch.float64)
    """

    name: ClassVar[str] = "linear"
    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        return inv_freq / self.factor


@dataclass(frozen=True)
class NTK(Extension):
    """Divide the slowest frequency by s and keep the fastest, with a larger base (NTK-aware).

    factor: s, at least 1. Raises ValueError or TypeError for an invalid factor. NTK-aware scaling
    has no paper of its own; YaRN (arXiv 2309.00071), definition 1, states the formula.

    >>> import rope
    >>> plain = rope.inverse_frequencies(8)
    >>> (NTK(4.0).scale(plain, 10000.0) / plain)[[0, -1]]
    tensor([1.0000, 0.2500], dtype=torch.float64)
    """

    name: ClassVar[str] = "ntk"
    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        return _with_larger_base(inv_freq, self.factor)


@dataclass(frozen=True)
class DynamicNTK(Extension):
    """Apply NTK-aware scaling beyond the trained length, with a factor that grows with the length.

    factor: s, at least 1. original_max_position_embeddings: the trained length L. If you use a
    cache, fix seq_len at the final length, because keys cached at one length don't match queries
    rotated at another length. Raises ValueError or TypeError for an invalid factor.
    See YaRN (arXiv 2309.00071), section 3.3.

    >>> import rope
    >>> plain, dynamic = rope.inverse_frequencies(8), DynamicNTK(1.0, 100)
    >>> (dynamic.scale(plain, 10000.0, seq_len=400) / plain)[-1].item()
    0.25
    >>> bool((dynamic.scale(plain, 10000.0, seq_len=100) == plain).all())
    True
    """

    name: ClassVar[str] = "dynamic"
    length_dependent: ClassVar[bool] = True
    factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        trained = self.original_max_position_embeddings
        if seq_len is None or seq_len <= trained:
            return inv_freq
        return _with_larger_base(inv_freq, self.factor * seq_len / trained - (self.factor - 1))

    def regime(self, seq_len: int | None) -> int | None:
        beyond = seq_len is not None and seq_len > self.original_max_position_embeddings
        return seq_len if beyond else None


def _with_larger_base(inv_freq: Tensor, factor: float) -> Tensor:
    """Return theta_j * factor**(-2j/(R-2)), `[R/2]`; the multiplier falls from 1 to 1/factor."""
    planes = len(inv_freq)  # for a single plane, 0/0 is NaN, which inverse_frequencies rejects
    j = torch.arange(planes, dtype=inv_freq.dtype, device=inv_freq.device)
    return inv_freq * torch.full_like(j, factor).pow(-j / (planes - 1))
