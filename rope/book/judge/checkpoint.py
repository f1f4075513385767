"""Step 9: a checkpoint of the other layout, and YaRN for a longer context.

Chapters "Two layouts" and "Longer than the training text". Shapes: H heads, D head dimension,
E width of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import log, tau
from random import Random
from typing import Any

import torch
from torch import Tensor

import rope
from rope.book.judge.answers import Function, Part, Unusable, numbers, shape
from rope.book.judge.rotations import BASE
from rope.extensions import YaRN


# Step 9: a checkpoint of the other layout, and a longer context.
def convert(weight: Tensor, head_dim: int) -> Tensor:
    """Rows `[H·D, E]` of neighbours, put in the order of halves, head by head."""
    return _sorted(weight, head_dim // 2, 2)


def _sorted(weight: Tensor, *sizes: int) -> Tensor:
    """Rows, of which each head is an array of these sizes, column by column of that."""
    return weight.unflatten(0, (-1, *sizes)).transpose(1, 2).flatten(0, 2)


def yarn(head_dim: int, base: float, factor: float, trained: int, **options: Any) -> Any:
    """YaRN's frequencies, and what multiplies cos and sin."""
    extension = YaRN(factor, trained, **options)
    frequencies = rope.inverse_frequencies(head_dim, base, extension=extension)
    return frequencies, extension.attention_scaling


def _weights(draw: Random) -> list[tuple[Any, ...]]:
    noise = torch.Generator().manual_seed(9)
    counted = [(torch.arange(float(rows))[:, None], 4) for rows in (4, 8)]
    drawn = [(torch.randn(rows, 5, generator=noise), d) for rows, d in ((8, 8), (48, 16))]
    drawn.append((torch.randn(2 * (width := 2 * draw.randrange(3, 9)), 3, generator=noise), width))
    return [*counted, *drawn]


def _longer(draw: Random) -> list[tuple[Any, ...]]:
    drawn = (2 * draw.randrange(16, 64), draw.uniform(1e4, 1e6), draw.uniform(2, 40), 3000)
    return [(32, BASE, 8.0, 2048), (128, BASE, 4.0, 4096), (64, 500_000.0, 40.0, 8192), drawn]


WAYS = {
    ", with whole planes as the ramp's ends": "whole planes",
    ", with the ramp's ends as they are": "planes",
    ", with a ramp in turns, as the paper has it": "turns",
}


def _ramp(
    kept: Tensor, base: float, trained: float, way: str, *, turn: float = tau, end: bool = True
) -> Tensor:
    """0 where 32 turns or more are made within the trained length, 1 up to one turn."""
    if way == "turns":
        ramp = (32 - trained * kept / turn) / 31
    else:
        low, high = (len(kept) * log(trained / (turn * n)) / log(base) for n in (32, 1))
        low, high = (math.floor(low), math.ceil(high)) if way == "whole planes" else (low, high)
        ramp = (torch.arange(len(kept), dtype=torch.float64) - low) / (high - low)
    return ramp.clamp(0, 1) if end else ramp


def _mix(kept: Tensor | float, scaled: Tensor | float, ramp: Tensor) -> Tensor:
    return kept * (1 - ramp) + scaled * ramp


def _ntk(kept: Tensor, factor: float) -> Tensor:
    """Frequencies for the larger base of NTK-aware scaling."""
    return kept * factor ** (-torch.arange(len(kept)) / (len(kept) - 1))


# Of k, the frequencies as trained, ramp and the factor s; a ramp may be of another length.
FREQUENCIES: dict[str, Callable[[Tensor, Callable[..., Tensor], float], Tensor]] = {
    "nothing is scaled": lambda k, ramp, s: k,
    "all planes are divided: that is position interpolation": lambda k, ramp, s: k / s,
    "the base is changed: that is NTK-aware scaling": lambda k, ramp, s: _ntk(k, s),
    "the ramp is the wrong way round: fast planes must be kept, slow ones divided": (
        lambda k, ramp, s: _mix(k, k / s, 1 - ramp())
    ),
    "the ramp counts turns within the extended length; it must be the trained one": (
        lambda k, ramp, s: _mix(k, k / s, ramp(s))
    ),
    "a turn is 2π radians: within L positions a plane makes L θ / 2π turns": (
        lambda k, ramp, s: _mix(k, k / s, ramp(turn=1.0))
    ),
    "the ramp goes on below 0 and above 1: it must stop there": (
        lambda k, ramp, s: _mix(k, k / s, ramp(end=False))
    ),
    "slow planes are multiplied by the factor; divide them": (
        lambda k, ramp, s: _mix(k, k * s, ramp())
    ),
    "wavelengths are mixed; frequencies must be": lambda k, ramp, s: k / _mix(1, s, ramp()),
    "slow planes have the factor inside the power: divide the frequency itself by it": (
        lambda k, ramp, s: _mix(k, k * s ** (-torch.arange(len(k)) / len(k)), ramp())
    ),
    "fast planes have the base of NTK-aware scaling; they must be kept": (
        lambda k, ramp, s: _mix(_ntk(k, s), k / s, ramp())
    ),
    "slow planes are one over the frequency, divided by the factor: invert once": (
        lambda k, ramp, s: _mix(k, 1 / k / s, ramp())
    ),
}
SCALES: dict[str, Callable[[float, float], float]] = {
    "the second result has the logarithm to base 10; ln is meant": (
        lambda a, s: 0.1 * math.log10(s) + 1
    ),
    "the second result has the logarithm to base 2; ln is meant": (
        lambda a, s: 0.1 * math.log2(s) + 1
    ),
    "the second result is the root of what it must be": lambda a, s: a**0.5,
    "the second result is one over what it must be": lambda a, s: 1 / a,
    "the second result is the factor; it must be 0.1 ln(factor) + 1": lambda a, s: s,
    "nothing multiplies cos and sin: the second result must be 0.1 ln(factor) + 1": (
        lambda a, s: 1.0
    ),
    "the second result is squared: it multiplies q and k, each once": lambda a, s: a * a,
    "the second result has the logarithm twice: 0.1 ln(factor) + 1 is all": (
        lambda a, s: 0.1 * a * math.log(s) + 1
    ),
}


def _changed(cause: str, way: str) -> Function:
    """YaRN, of which the frequencies or what multiplies cos and sin are changed."""

    def changed(head_dim: int, base: float, factor: float, trained: int) -> Any:
        kept = rope.inverse_frequencies(head_dim, base)
        ramp = lambda times=1.0, **change: _ramp(kept, base, trained * times, way, **change)
        right = lambda k, ramp, s: _mix(k, k / s, ramp())
        scaling = yarn(head_dim, base, factor, trained)[1]
        number = SCALES[cause](scaling, factor) if cause in SCALES else scaling
        return FREQUENCIES.get(cause, right)(kept, ramp, factor), number

    return changed


def _two(result: Any) -> Any:
    """Frequencies and factor, as they are compared."""
    if not isinstance(result, (tuple, list)) or len(result) != 2 or shape(result[1]):
        raise Unusable("yarn must return two things, the frequencies and what multiplies cos, sin")
    # As logarithms: a low frequency is to be as exact as a high one.
    frequencies = [math.log(f) if 0 < f < math.inf else f for f in numbers(result[0])]
    return frequencies, result[1]


STEP_9 = (
    Part(
        "convert",
        "Two layouts",
        _weights,
        {"": convert},
        {
            "the rows are as they were": lambda w, d: w,
            "that is the way back: it makes neighbours of halves": (
                lambda w, d: _sorted(w, 2, d // 2)
            ),
            "the rows of all heads are sorted together; each head must be sorted alone": (
                lambda w, d: convert(w, len(w))
            ),
            "each head is sorted in two pieces; its head_dim rows must be sorted together": (
                lambda w, d: convert(w, d // 2)
            ),
            "columns are sorted; the coordinates of a head are rows": (
                lambda w, d: torch.cat((w[:, ::2], w[:, 1::2]), dim=1)
            ),
        },
    ),
    Part(
        "yarn",
        "Longer than the training text",
        _longer,
        {said: _changed("", way) for said, way in WAYS.items()},
        {
            cause: tuple(_changed(cause, way) for way in WAYS.values())
            for cause in (*FREQUENCIES, *SCALES)
        }
        | {
            "the base is always 10,000, whatever is given": lambda d, base, s, trained: yarn(
                d, BASE, s, trained
            ),
        },
        view=_two,
    ),
)

PARTS = {9: STEP_9}
