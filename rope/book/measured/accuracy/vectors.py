"""What the error of a table does to vectors: to a rotated pair, and to scores and lengths.

`measure_pairs` is of chapter "How exact must it be?": the error of a rotated pair in units of its
own length, all dtypes, both layouts. `measure_relativity` is of chapter "Properties": an exact
rotation keeps scores when both positions move, and lengths; with rounded tables it does not.

Shapes: P positions, H heads of random pairs, R rotated width; T shifts, V pairs of vectors.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rope.book.measured.accuracy import DIM, LARGEST
from rope.book.measured.accuracy.tables import sample_positions
from rope.book.measured.accuracy.truth import exact_rows, spectrum
from rope.extensions import Default
from rope.frequencies import inverse_frequencies, rotary_tables
from rope.functional import rotary_embedding

HALVES = (torch.float32, torch.bfloat16, torch.float16)
DTYPES = (*HALVES, torch.float64)
PAIR_HEADS, PAIR_SEED = 32, 20
RELATIVITY_BASE, RELATIVITY_SEED, RELATIVITY_PAIRS, RELATIVITY_SHIFTS = 10_000.0, 10, 256, 4096


def unit(dtype: torch.dtype) -> float:
    """What an error is measured in, as a share of the pair's length: eps, and 2**-29 in float64.

    A float64 pair feels the float64 angle, which at a million positions is off by far more than
    the eps of float64.

    >>> unit(torch.bfloat16), unit(torch.float64) == 2**-29
    (0.0078125, True)
    """
    return 2.0**-29 if dtype == torch.float64 else torch.finfo(dtype).eps


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
    shape = (2, PAIR_HEADS, rows, DIM // 2)
    size, direction = torch.rand(shape, generator=generator, dtype=torch.float64)
    info = torch.finfo(dtype)
    low, high = math.log2(info.tiny) + 2, math.log2(info.max) - 2
    length = torch.exp2(low + size * (high - low))
    angle = 2 * math.pi * direction
    return (length * angle.cos()).to(dtype), (length * angle.sin()).to(dtype)


def measure_pairs(base: float, dtype: torch.dtype) -> list[dict[str, Any]]:
    """The largest error of a pair in both layouts, in units of `unit(dtype)` times its length.

    Tables are those of the layer: float32, and float64 for float64 vectors. An error may reach two
    units, in float64 one.
    """
    positions = pair_positions()
    exact = _exact_tables(base)
    wide = torch.promote_types(dtype, torch.float32)
    tables = rotary_tables(torch.tensor(positions), inverse_frequencies(DIM, base), dtype=wide)
    pair = random_pairs(dtype, len(positions))
    return [
        {
            "base": base,
            "bound": 1.0 if dtype == torch.float64 else 2.0,
            "dim": DIM,
            "dtype": str(dtype).removeprefix("torch."),
            "interleaved": interleaved,
            "max_error": pair_error(pair, tables, exact, interleaved=interleaved),
            "unit": unit(dtype),
        }
        for interleaved in (False, True)
    ]


@cache
def _exact_tables(base: float) -> tuple[Tensor, Tensor]:
    return exact_rows(pair_positions(), spectrum(DIM, base, Default()))


def pair_error(
    pair: tuple[Tensor, Tensor],
    tables: tuple[Tensor, Tensor],
    exact: tuple[Tensor, Tensor],
    *,
    interleaved: bool,
) -> float:
    """The length of the largest error vector, over `unit` times the length of the pair.

    pair: `[H, P, R/2]` twice; tables, exact: `[P, R/2]` twice, the latter float64.
    """
    axis = -1 if interleaved else -2  # where a pair's two halves are stacked: [..., R/2, 2]
    vectors = torch.stack(pair, dim=axis)
    rotated = rotary_embedding(vectors.flatten(-2)[None], *tables, interleaved=interleaved)[0]
    ours = rotated.double().view_as(vectors).unbind(axis)
    (cos, sin), (u, v) = exact, (half.double() for half in pair)
    off = torch.hypot(ours[0] - (u * cos - v * sin), ours[1] - (v * cos + u * sin))
    return float((off / torch.hypot(u, v)).max()) / unit(pair[0].dtype)


def unit_planes(generator: torch.Generator) -> Tensor:
    """Random vectors of length 1, complex `[V, R/2]`: a direction drawn evenly from the sphere."""
    shape = (RELATIVITY_PAIRS, DIM // 2, 2)
    vectors = torch.randn(shape, generator=generator, dtype=torch.float64)
    vectors = vectors / vectors.pow(2).sum((1, 2), keepdim=True).sqrt()
    return torch.view_as_complex(vectors)


def measure_relativity(dtype: torch.dtype) -> dict[str, Any]:
    """How far a score of unit vectors moves over all shifts, and the worst length of a row.

    Only the tables are rounded; the rotation and the score are computed in float64.
    Pair v stands at the positions (t, t + v), t = 0 ... T-1. `score_shift` is the largest minus
    the smallest of its scores, `score_error` their largest distance from the exact score, both for
    q and k of length 1 and the worst of V pairs; times R they are those of vectors with entries
    around 1, whose length is sqrt(R). `norm_error` is the largest | |R x| / |x| - 1 |.
    """
    generator = torch.Generator().manual_seed(RELATIVITY_SEED)
    q, k = unit_planes(generator), unit_planes(generator)
    rows = RELATIVITY_SHIFTS + RELATIVITY_PAIRS
    inv_freq = inverse_frequencies(DIM, RELATIVITY_BASE)
    tables = rotary_tables(rows, inv_freq, dtype=dtype)
    rotation = torch.complex(*(table.double() for table in tables))  # [rows, R/2]
    exact = torch.complex(*rotary_tables(rows, inv_freq, dtype=torch.float64))
    shift = error = 0.0
    for offset, product in enumerate(q * k.conj()):
        at_q, at_k = rotation[:RELATIVITY_SHIFTS], rotation[offset : offset + RELATIVITY_SHIFTS]
        scores = (at_q * at_k.conj() * product).real.sum(-1)  # [T]
        truth = (exact[offset].conj() * product).real.sum()
        shift = max(shift, float(scores.max() - scores.min()))
        error = max(error, float((scores - truth).abs().max()))
    return {
        "base": RELATIVITY_BASE,
        "dim": DIM,
        "dtype": str(dtype).removeprefix("torch."),
        "norm": 1.0,
        "norm_error": float((rotation.abs() - 1).abs().max()),
        "pairs": RELATIVITY_PAIRS,
        "score_error": error,
        "score_error_norm_sqrt_dim": error * DIM,
        "score_shift": shift,
        "score_shift_norm_sqrt_dim": shift * DIM,
        "seed": RELATIVITY_SEED,
        "shifts": RELATIVITY_SHIFTS,
    }
