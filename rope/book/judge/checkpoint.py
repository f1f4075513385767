"""Step 9: a checkpoint of the other layout, and YaRN for a longer context.

Chapters "Two layouts" and "Longer than the training text". Shapes: H heads, D head dimension,
E width of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor

import rope
from rope.book.judge.answers import Function, Part, Unusable
from rope.book.judge.rotations import BASE
from rope.extensions import NTK, YaRN


# Step 9: a checkpoint of the other layout, and a longer context.
def convert(weight: Tensor, head_dim: int) -> Tensor:
    """Rows `[H·D, E]` of neighbours, put in the order of halves, head by head."""
    return weight.unflatten(0, (-1, head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)


def yarn(head_dim: int, base: float, factor: float, trained: int, **options: Any) -> Any:
    """YaRN's frequencies, and what multiplies cos and sin."""
    extension = YaRN(factor, trained, **options)
    return _scaled(head_dim, base, extension), extension.attention_scaling


def _scaled(head_dim: int, base: float, extension: Any) -> Tensor:
    return rope.inverse_frequencies(head_dim, base, extension=extension)


def _weights(draw: Random) -> list[tuple[Any, ...]]:
    shapes = [(4, 1, 4), (8, 1, 4), (8, 3, 8), (48, 5, 16)]
    noise = torch.Generator().manual_seed(9)
    column = torch.arange(4.0)[:, None]
    return [(column, 4), *((torch.randn(a, b, generator=noise), d) for a, b, d in shapes)]


def _longer(draw: Random) -> list[tuple[Any, ...]]:
    return [(32, BASE, 8.0, 2048), (128, BASE, 4.0, 4096), (64, 500_000.0, 40.0, 8192)]


def _changed(change: Callable[..., Any]) -> Function:
    """YaRN, of which the frequencies and the factor are changed: f(kept, scaled, divided, a)."""

    def changed(head_dim: int, base: float, factor: float, trained: int) -> Any:
        kept = rope.inverse_frequencies(head_dim, base)
        return change(kept, *yarn(head_dim, base, factor, trained), factor)

    return changed


def _two(result: Any) -> Any:
    """Frequencies and factor."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise Unusable("yarn must return two things, the frequencies and what multiplies cos, sin")
    return result


STEP_9 = (
    Part(
        "convert",
        "Two layouts",
        _weights,
        {"": convert},
        {
            "the rows are as they were": lambda w, d: w,
            "that is the way back: it makes neighbours of halves": (
                lambda w, d: w.unflatten(0, (-1, 2, d // 2)).transpose(1, 2).flatten(0, 2)
            ),
            "the rows of all heads are sorted together; each head must be sorted alone": (
                lambda w, d: convert(w, len(w))
            ),
            "the way back, with the rows of all heads together": (
                lambda w, d: w.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)
            ),
            "columns are sorted; the coordinates of a head are rows": (
                lambda w, d: torch.cat((w[:, ::2], w[:, 1::2]), dim=1)
            ),
            "second coordinates come before first ones": lambda w, d: (
                w.unflatten(0, (-1, d // 2, 2)).transpose(1, 2).flip(1).flatten(0, 2)
            ),
            "only the two halves have changed places": (
                lambda w, d: w.unflatten(0, (-1, 2, d // 2)).flip(1).flatten(0, 2)
            ),
            "only the two of each pair have changed places": (
                lambda w, d: w.unflatten(0, (-1, d // 2, 2)).flip(2).flatten(0, 2)
            ),
            "the rows are sorted twice": lambda w, d: convert(convert(w, d), d),
        },
    ),
    Part(
        "yarn",
        "Longer than the training text",
        _longer,
        {
            ", with whole planes as the ramp's ends": yarn,
            ", with the ramp's ends as they are": lambda *given: yarn(*given, truncate=False),
        },
        {
            "nothing is scaled": _changed(lambda kept, new, scaling, s: (kept, scaling)),
            "all planes are divided by the factor: that is position interpolation": (
                _changed(lambda kept, new, scaling, s: (kept / s, scaling))
            ),
            "the base is changed: that is NTK-aware scaling": lambda d, base, s, trained: (
                _scaled(d, base, NTK(s)),
                yarn(d, base, s, trained)[1],
            ),
            "the ramp is the wrong way round: fast planes must be kept, slow ones divided": (
                _changed(lambda kept, new, scaling, s: (kept + kept / s - new, scaling))
            ),
            "nothing multiplies cos and sin: the second result must be 0.1 ln(factor) + 1": (
                _changed(lambda kept, new, scaling, s: (new, 1.0))
            ),
            "the second result is squared: it multiplies q and k, each once": (
                _changed(lambda kept, new, scaling, s: (new, scaling**2))
            ),
            "the second result has a logarithm to base 10; ln is meant": (
                _changed(lambda kept, new, scaling, s: (new, 0.1 * math.log10(s) + 1))
            ),
            "the second result has a logarithm to base 2; ln is meant": (
                _changed(lambda kept, new, scaling, s: (new, 0.1 * math.log2(s) + 1))
            ),
            "the second result is one over what it must be": (
                _changed(lambda kept, new, scaling, s: (new, 1 / scaling))
            ),
            "the ramp counts turns within the extended length; it must be the trained one": (
                lambda d, base, s, trained: (
                    yarn(d, base, s, int(trained * s))[0],
                    yarn(d, base, s, trained)[1],
                )
            ),
        },
        view=_two,
    ),
)

PARTS = {9: STEP_9}
