"""Implement LongRoPE, which divides each plane's frequency by a factor that a search has found.

See the chapter "Longer than the training text". With the trained length L and the current length n,

    theta'_j = theta_j / short_j if n <= L,   theta'_j = theta_j / long_j if n > L,

and cos and sin are multiplied by sqrt(1 + ln s / ln L) unless the attention factor is given.
See Ding et al., arXiv 2402.13753. Both sets of factors and the square root are from Phi-3's code.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rope.checks import check_number
from rope.extensions.base import Extension


@dataclass(frozen=True)
class LongRoPE(Extension):
    """Divide each plane's frequency by a factor for that plane (LongRoPE), as Phi-3 does.

    short_factor, long_factor: the factors for lengths n <= L and n > L, R/2 positive numbers each.
    original_max_position_embeddings: the trained length L. factor: s, the extended length divided
    by L, at least 1. attention_factor: the factor for cos and sin; None means that s determines it.
    If you use a cache, fix seq_len at the final length, because keys cached at a length up to L
    don't match queries rotated at a length above L.
    Raises ValueError or TypeError for invalid numbers. `scale` raises ValueError unless
    short_factor and long_factor have R/2 numbers each.

    >>> import rope
    >>> long = LongRoPE((1.0, 1.0), (1.0, 4.0), 4096, factor=32.0)
    >>> plain = rope.inverse_frequencies(4)
    >>> long.scale(plain, 10000.0, 4096).tolist(), long.scale(plain, 10000.0, 4097).tolist()
    ([1.0, 0.01], [1.0, 0.0025])
    """

    name: ClassVar[str] = "longrope"
    length_dependent: ClassVar[bool] = True
    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position_embeddings: int
    _: KW_ONLY
    factor: float | None = None
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        if self.attention_factor is not None:
            check_number("attention_factor", self.attention_factor, above=0)
        elif self.factor is None:
            raise ValueError("factor and attention_factor are both None; pass at least one")
        if self.factor is not None:
            check_number("factor", self.factor, at_least=1)
        for name in ("short_factor", "long_factor"):
            # Tuples are hashable, so equal extensions can share tables.
            object.__setattr__(self, name, tuple(map(float, getattr(self, name))))

    @property
    def attention_scaling(self) -> float:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        assert self.factor is not None  # __post_init__ checks this
        trained = self.original_max_position_embeddings
        return math.sqrt(1 + math.log(self.factor) / math.log(trained))

    def regime(self, seq_len: int | None) -> str | None:
        beyond = seq_len is not None and seq_len > self.original_max_position_embeddings
        return "long" if beyond else None

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        planes = len(inv_freq)
        if not len(self.short_factor) == len(self.long_factor) == planes:
            raise ValueError(
                f"short_factor has {len(self.short_factor)} numbers and long_factor has "
                f"{len(self.long_factor)}; at dim {2 * planes}, each needs {planes}, one per plane"
            )
        factors = self.short_factor if self.regime(seq_len) is None else self.long_factor
        return inv_freq / torch.tensor(factors, dtype=inv_freq.dtype, device=inv_freq.device)
