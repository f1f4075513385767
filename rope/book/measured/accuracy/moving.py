"""Keys moved again and again in the format that they are stored in: chapter "Keys that move".

A stored key k_0 is moved s times by delta, each time rounded to the format, which gives k_s. Each
of its pairs of coordinates is then off by at most

    rho (r_0 + r_1 + ... + r_{s-1}),        rho = u + (2 + sqrt 2) 2^-24,

from the pair of R_{s delta} k_0, r_i being its norm after i moves and u the unit roundoff of a
format of 16 bits, 0 for float32, which is not rounded to again. `python -m
rope.book.measured.accuracy.moving` measures each s up to 4,000, in a minute, and writes moving.json
in this folder.

Shapes: N keys, R rotated width, P = R/2 planes.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rope.book.measured.accuracy import DIM
from rope.book.measured.record import rounded, write
from rope.module import RotaryEmbedding

RESULT = Path(__file__).with_name("moving.json")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
STEPS, KEYS, START, SEED = 4000, 32, 8000, 21


class Moved(NamedTuple):
    """error: by s, the largest |k_s - R_{s delta} k_0| / |k_0| of the N keys, `[steps]`.

    ratio: by s, bound over error of the pair that comes closest to its bound, `[steps]`.
    """

    error: Tensor
    ratio: Tensor


def rho(dtype: torch.dtype) -> float:
    """The largest relative error of one move, apart from underflow; dtype: one of DTYPES.

    >>> [f"{rho(dtype):.2g}" for dtype in DTYPES]
    ['0.0039', '0.00049', '2e-07']
    """
    storage = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
    return storage + (2 + 2**0.5) * 2.0**-24


def moved(dtype: torch.dtype, steps: int = STEPS, delta: int = -1, keys: int = KEYS) -> Moved:
    """Random keys moved in steps, with `RotaryEmbedding.shift`; dtype: one of DTYPES.

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
    """Half-split keys `[1, 1, N, R]` as complex numbers `[N, P]`."""
    return torch.complex(*k[0, 0].double().chunk(2, dim=-1))


def committed() -> dict[str, Any]:
    """The record that the package ships.

    >>> committed()["steps"]
    4000
    """
    found: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
    return found


def main(path: Path = RESULT) -> None:
    """Measure, and write for each format some errors and the extreme ratios."""
    report: dict[str, Any] = {"steps": STEPS, "keys": KEYS, "delta": -1, "dim": DIM}
    for dtype in DTYPES:
        error, ratio = moved(dtype)
        report[str(dtype).removeprefix("torch.")] = {
            "error": {str(s): float(error[s - 1]) for s in (1, 10, 100, 1000, STEPS)},
            "least_ratio": float(ratio.min()),
            "largest_ratio": float(ratio.max()),
        }
    write(path, rounded(report))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
