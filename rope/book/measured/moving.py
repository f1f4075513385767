"""Move rotated keys repeatedly in their storage dtype, for the chapter "Keys that move".

A stored key k_0 is moved s times by delta and rounded to its dtype after each move; the result is
k_s. Each coordinate pair of k_s then differs from the same pair of R_{s delta} k_0 by at most

    rho (r_0 + r_1 + ... + r_{s-1}),        rho = u + (2 + sqrt 2) 2^-24,

where r_i is the pair's norm after i moves, and u is the unit roundoff of a 16-bit dtype, or 0 for
float32, which isn't rounded again.

Shapes: N keys, R rotated width, P = R/2 planes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rope.module import RotaryEmbedding

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
DIM, STEPS, KEYS, START, SEED = 128, 4000, 32, 8000, 21


class Moved(NamedTuple):
    """Hold the errors of moved keys. Each array has one entry per number of moves s.

    error: the largest |k_s - R_{s delta} k_0| / |k_0| over the N keys, float64 `[steps]`.
    ratio: the bound divided by the error for the pair closest to its bound, float64 `[steps]`.
    """

    error: Tensor
    ratio: Tensor


def rho(dtype: torch.dtype) -> float:
    """Return rho, which bounds the relative error of a move without underflow, for one of DTYPES.

    >>> [f"{rho(dtype):.2g}" for dtype in DTYPES]
    ['0.0039', '0.00049', '2e-07']
    """
    storage = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
    return storage + (2 + 2**0.5) * 2.0**-24


def moved(dtype: torch.dtype, steps: int = STEPS, delta: int = -1, keys: int = KEYS) -> Moved:
    """Move random keys `steps` times with `RotaryEmbedding.shift`, and return their errors.

    dtype: one of DTYPES. delta: the number of positions per move. keys: the number of keys.

    >>> moved(torch.bfloat16, steps=3).error.shape
    torch.Size([3])
    """
    rotary = RotaryEmbedding(DIM)
    random = torch.Generator().manual_seed(SEED)
    k = torch.randn(1, 1, keys, DIM, generator=random, dtype=torch.float64).to(dtype)
    k = rotary.rotate(k, offset=START)
    first = pairs = _pairs(k)
    step = delta * rotary.inv_freq
    bound, one = torch.zeros_like(pairs.real), torch.ones_like(step)
    errors, ratios = [], []
    for s in range(1, steps + 1):
        bound += rho(dtype) * pairs.abs()
        k = rotary.shift(k, delta)
        pairs = _pairs(k)
        off = (pairs - first * torch.polar(one, s * step)).abs()
        errors.append((off.norm(dim=-1) / first.abs().norm(dim=-1)).max())
        ratios.append((bound / off).min())
    return Moved(torch.stack(errors), torch.stack(ratios))


def _pairs(k: Tensor) -> Tensor:
    """Return half-split keys `[1, 1, N, R]` as complex numbers `[N, P]`."""
    return torch.complex(*k[0, 0].double().chunk(2, dim=-1))
