"""The error of a rotated pair, in units of its own length: all dtypes, both layouts.

Shapes: P positions, H heads of random pairs, R rotated width.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rope.accuracy.cases import LARGEST, PAIR_HEADS, PAIR_SEED, PEER_DIM
from rope.accuracy.tables import sample_positions
from rope.accuracy.truth import exact_rows, spectrum
from rope.extensions import Default
from rope.frequencies import inverse_frequencies, rotary_tables
from rope.functional import rotary_embedding

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def unit(dtype: torch.dtype) -> float:
    """What an error is measured in, as a share of the pair's length: eps, and 2**-29 in float64.

    A float64 pair feels the float64 angle, which at a million positions is off by far more than
    the eps of float64.

    >>> unit(torch.bfloat16), unit(torch.float64) == 2**-29
    (0.0078125, True)
    """
    return 2.0**-29 if dtype == torch.float64 else torch.finfo(dtype).eps


def bound(dtype: torch.dtype) -> float:
    """How many units an error may reach.

    >>> bound(torch.float16)
    2.0
    """
    return 1.0 if dtype == torch.float64 else 2.0


def pair_positions() -> list[int]:
    """The sampled positions of the tables, and as many random ones up to 2**20."""
    near = sample_positions()
    generator = torch.Generator().manual_seed(PAIR_SEED)
    return near + torch.randint(LARGEST + 1, (len(near),), generator=generator).tolist()


def random_pairs(dtype: torch.dtype, rows: int) -> tuple[Tensor, Tensor]:
    """Pairs in every direction, `[H, rows, R/2]` twice, from four times the smallest normal
    number of the dtype to a quarter of its largest, spread evenly over the powers of two.

    >>> x, y = random_pairs(torch.float16, 3)
    >>> x.shape, x.dtype
    (torch.Size([32, 3, 64]), torch.float16)
    """
    generator = torch.Generator().manual_seed(PAIR_SEED)
    shape = (2, PAIR_HEADS, rows, PEER_DIM // 2)
    draw, turn = torch.rand(shape, generator=generator, dtype=torch.float64)
    info = torch.finfo(dtype)
    low, high = math.log2(info.tiny) + 2, math.log2(info.max) - 2
    length = torch.exp2(low + draw * (high - low))
    angle = 2 * math.pi * turn
    return (length * angle.cos()).to(dtype), (length * angle.sin()).to(dtype)


def measure_pairs(base: float, dtype: torch.dtype) -> list[dict[str, Any]]:
    """The largest error of a pair in both layouts, in units of `unit(dtype)` times its length.

    Tables are those of the layer: float32, and float64 for float64 vectors.
    """
    positions = pair_positions()
    exact = _exact(base)
    wide = torch.promote_types(dtype, torch.float32)
    tables = rotary_tables(torch.tensor(positions), inverse_frequencies(PEER_DIM, base), dtype=wide)
    x, y = random_pairs(dtype, len(positions))
    return [
        {
            "base": base,
            "bound": bound(dtype),
            "dim": PEER_DIM,
            "dtype": str(dtype).removeprefix("torch."),
            "interleaved": interleaved,
            "max_error": pair_error((x, y), tables, exact, interleaved=interleaved),
            "unit": unit(dtype),
        }
        for interleaved in (False, True)
    ]


@cache
def _exact(base: float) -> tuple[Tensor, Tensor]:
    return exact_rows(pair_positions(), spectrum(PEER_DIM, base, Default()))


def pair_error(
    pair: tuple[Tensor, Tensor],
    tables: tuple[Tensor, Tensor],
    exact: tuple[Tensor, Tensor],
    *,
    interleaved: bool,
) -> float:
    """The length of the largest error vector, over `unit` times the length of the pair.

    >>> pair = torch.ones(1, 1, 1), torch.zeros(1, 1, 1)
    >>> quarter = torch.zeros(1, 1), torch.ones(1, 1)
    >>> exact = quarter[0].double(), quarter[1].double()
    >>> pair_error(pair, quarter, exact, interleaved=True)
    0.0
    """
    x, y = pair
    planes = x.shape[-1]
    vectors = torch.stack((x, y), dim=-1).flatten(-2) if interleaved else torch.cat((x, y), dim=-1)
    turned = rotary_embedding(vectors[None], *tables, interleaved=interleaved)[0].double()
    if interleaved:
        ours = turned[..., 0::2], turned[..., 1::2]
    else:
        ours = turned[..., :planes], turned[..., planes:]
    (cos, sin), u, v = exact, x.double(), y.double()
    off = torch.hypot(ours[0] - (u * cos - v * sin), ours[1] - (v * cos + u * sin))
    return float((off / torch.hypot(u, v)).max()) / unit(x.dtype)
