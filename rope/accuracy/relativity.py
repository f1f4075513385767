"""What rounding the tables costs: scores that move with both positions, and lengths that change.

Chapter "Properties". An exact rotation keeps both. Only the tables are rounded; the rotation and
the score are computed in float64. Shapes: T shifts, V pairs of vectors, R rotated width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rope.accuracy.cases import (
    RELATIVITY_DIM,
    RELATIVITY_PAIRS,
    RELATIVITY_SEED,
    RELATIVITY_SHIFTS,
)
from rope.frequencies import inverse_frequencies, rotary_tables

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
BASE = 10000.0


def unit_planes(generator: torch.Generator) -> Tensor:
    """Random vectors of length 1, complex `[V, R/2]`: a direction drawn evenly from the sphere.

    >>> vectors = unit_planes(torch.Generator().manual_seed(0))
    >>> bool((vectors.abs().pow(2).sum(-1) - 1).abs().max() < 1e-12)
    True
    """
    shape = (RELATIVITY_PAIRS, RELATIVITY_DIM // 2, 2)
    vectors = torch.randn(shape, generator=generator, dtype=torch.float64)
    vectors = vectors / vectors.pow(2).sum((1, 2), keepdim=True).sqrt()
    return torch.view_as_complex(vectors)


def measure_relativity(dtype: torch.dtype) -> dict[str, Any]:
    """How far a score of unit vectors moves over all shifts, and the worst length of a row.

    Pair v stands at the positions (t, t + v), t = 0 ... T-1. `score_shift` is the largest minus
    the smallest of its scores, `score_error` their largest distance from the exact score, both for
    q and k of length 1 and the worst of V pairs; times R they are those of vectors with entries
    around 1, whose length is sqrt(R). `norm_error` is the largest | |R x| / |x| - 1 |.
    """
    generator = torch.Generator().manual_seed(RELATIVITY_SEED)
    q, k = unit_planes(generator), unit_planes(generator)
    rows = RELATIVITY_SHIFTS + RELATIVITY_PAIRS
    inv_freq = inverse_frequencies(RELATIVITY_DIM, BASE)
    tables = rotary_tables(rows, inv_freq, dtype=dtype)
    turn = torch.complex(*(table.double() for table in tables))  # [rows, R/2]
    exact = torch.complex(*rotary_tables(rows, inv_freq, dtype=torch.float64))
    products = q * k.conj()
    shift = error = 0.0
    for offset, product in enumerate(products):
        scores = _scores(turn, product, offset)
        truth = (exact[offset].conj() * product).real.sum()
        shift = max(shift, float(scores.max() - scores.min()))
        error = max(error, float((scores - truth).abs().max()))
    return {
        "base": BASE,
        "dim": RELATIVITY_DIM,
        "dtype": str(dtype).removeprefix("torch."),
        "norm": 1.0,
        "norm_error": float((turn.abs() - 1).abs().max()),
        "pairs": RELATIVITY_PAIRS,
        "score_error": error,
        "score_error_norm_sqrt_dim": error * RELATIVITY_DIM,
        "score_shift": shift,
        "score_shift_norm_sqrt_dim": shift * RELATIVITY_DIM,
        "seed": RELATIVITY_SEED,
        "shifts": RELATIVITY_SHIFTS,
    }


def _scores(turn: Tensor, product: Tensor, offset: int) -> Tensor:
    """Re sum_j (q_j t_m)(k_j t_n)* at m = 0 ... T-1, n = m + offset: `[T]`."""
    at_q, at_k = turn[:RELATIVITY_SHIFTS], turn[offset : offset + RELATIVITY_SHIFTS]
    return (at_q * at_k.conj() * product).real.sum(-1)
