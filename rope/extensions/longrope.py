"""LongRoPE: one searched factor a plane, with a second set for texts beyond the trained length.

Chapter "Longer than the training text". With L the trained length and n the length in use,

    theta'_j = theta_j / short_j for n <= L,   theta_j / long_j for n > L,

and cos and sin are multiplied by sqrt(1 + ln s / ln L) unless the attention factor is given.
Ding et al., arXiv 2402.13753; the two sets and the attention factor are those of Phi-3's code.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rope.checks import check_count
from rope.extensions.base import Extension
from rope.scalars import check_number


@dataclass(frozen=True)
class LongRoPE(Extension):
    """LongRoPE as Phi-3 uses it: searched divisors for each plane, short and long.

    short_factor, long_factor: R/2 positive numbers each, kept as tuples.
    original_max_position_embeddings: L; factor: s, at least 1, which sets the attention factor
    unless attention_factor is given. Reach: s L. Keys rotated below L do not fit queries rotated
    above it: with a cache, fix seq_len at the final length.
    Raises ValueError or TypeError for bad numbers, and, in `scale`, for a wrong number of them.

    >>> import rope
    >>> long = LongRoPE((1.0, 1.0), (1.0, 4.0), 4096, factor=32.0)
    >>> plain = rope.inverse_frequencies(4)
    >>> long.scale(plain, 10000.0, 4096).tolist(), long.scale(plain, 10000.0, 4097).tolist()
    ([1.0, 0.01], [1.0, 0.0025])
    """

    name: ClassVar[str] = "longrope"
    paper: ClassVar[str] = "LongRoPE, arXiv 2402.13753, with Phi-3's released code"
    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position_embeddings: int
    factor: float | None = None
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        check_count("original_max_position_embeddings", self.original_max_position_embeddings)
        if self.factor is None and self.attention_factor is None:
            raise ValueError(
                "factor is None and attention_factor too; one must be a number: pass the ratio of "
                "the extended to the trained length as factor"
            )
        if self.factor is not None:
            check_number("factor", self.factor, at_least=1)
        if self.attention_factor is not None:
            check_number("attention_factor", self.attention_factor, above=0)
        elif self.original_max_position_embeddings < 2:
            raise ValueError(
                f"original_max_position_embeddings is {self.original_max_position_embeddings}; it "
                "must be at least 2 for the attention factor's logarithm: pass attention_factor"
            )
        for name in ("short_factor", "long_factor"):
            values = getattr(self, name)
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise TypeError(
                    f"{name} is a {type(values).__name__}; it must be a list or tuple of numbers, "
                    "one a plane: pass list(...)"
                )
            for value in values:
                check_number(f"each of {name}", value, above=0)
            object.__setattr__(self, name, tuple(map(float, values)))  # so that it can be hashed
        if len(self.short_factor) != len(self.long_factor):
            raise ValueError(
                f"short_factor has {len(self.short_factor)} numbers and long_factor "
                f"{len(self.long_factor)}; they must be one a plane each: complete the shorter one"
            )

    @property
    def attention_scaling(self) -> float:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        assert self.factor is not None  # __post_init__ saw to it
        trained = self.original_max_position_embeddings
        return math.sqrt(1 + math.log(self.factor) / math.log(trained))

    @property
    def reach(self) -> int | None:
        if self.factor is None:
            return None
        return int(self.factor * self.original_max_position_embeddings)

    @property
    def length_dependent(self) -> bool:
        return True

    def regime(self, seq_len: int | None) -> str | None:
        beyond = seq_len is not None and seq_len > self.original_max_position_embeddings
        return "long" if beyond else None

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        factors = self.short_factor if self.regime(seq_len) is None else self.long_factor
        if len(factors) != len(inv_freq):
            raise ValueError(
                f"short_factor and long_factor have {len(factors)} numbers; for a dim of "
                f"{2 * len(inv_freq)} they must have {len(inv_freq)}, one a plane: pass those of "
                "this width"
            )
        return inv_freq / torch.tensor(factors, dtype=inv_freq.dtype, device=inv_freq.device)
