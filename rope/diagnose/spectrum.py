"""The frequencies from the angles, and the name of a spectrum.

An angle is known but for whole turns. At position 1 the smallest is taken, |theta| <= pi. If theta
is known to within e, 2 theta is to within 2 e, far less than a turn: each doubling of the position
halves the error, as long as angles are multiples of the position.

Shapes: n planes, P positions, R rotated width.
"""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from rope.diagnose.planes import wrapped
from rope.extensions import Default, Extension, Linear, Llama3, Proportional, YaRN
from rope.frequencies import inverse_frequencies

#: Trained lengths tried for the extensions that have one: powers of two, then whole kilos.
LENGTHS = [*(1 << k for k in range(8, 21)), *(1024 * k for k in range(1, 65))]


def frequencies(positions: Tensor, phases: Tensor) -> tuple[Tensor, int]:
    """theta `[n]` with sign, and the last power of two that agrees with those before."""
    row = {int(m): i for i, m in enumerate(positions)}
    theta, last, step = phases[row[1]], 1, 2
    while step in row:
        off = wrapped(phases[row[step]] - step * theta)
        if off.abs().max() > 0.05:  # bfloat16's own roundings, doubled, come to 0.02
            break
        theta, last, step = theta + off / step, step, 2 * step
    return theta, last


def rounding(theta: Tensor) -> Tensor:
    """By how much frequencies that are powers in float32 may be off.

    The exponent, of size ln theta, is off by a few 2^-24 of itself, and then the power is.
    """
    return 2.0**-20 * theta * (1 + theta.clamp(min=1e-300).log().abs())


def name(theta: Tensor, slack: Tensor) -> tuple[float, Extension | None] | None:
    """Base and extension of frequencies `[R/2]` measured to within slack `[R/2]`, None without a
    name that explains them all.

    Numbers are as short as the closest explanation allows. The extension is None for a spectrum
    that is a ladder at first and slower from there on, whose formula is not found. NTK's is a
    ladder, of a larger base.

    >>> spectrum = inverse_frequencies(64, 5e5, extension=Llama3(8.0, 8192))
    >>> base, extension = name(spectrum, 1e-15 * spectrum)
    >>> base, extension == Llama3(8.0, 8192)
    (500000.0, True)
    """
    turning = int((theta > 0).sum())
    if not turning or (theta[:turning] <= 0).any():
        return None
    for share in (2.0**-28, 2.0**-4, 2.0**-2, 1.0):  # as float64 leaves it, or else float32
        allowed = slack + share * rounding(theta)
        bases, kept = _ladder(theta, allowed, turning)
        for base, extension in _candidates(theta, allowed, turning, bases, kept):
            if _fits(theta, allowed, base, extension):
                return base, extension
    ladder = inverse_frequencies(2 * len(theta), bases[0])[:turning]
    slower = theta[:turning] / ladder
    if kept < 2 or slower[-1] >= 1 or (slower.diff() > 2 * (allowed[:turning] / ladder)[1:]).any():
        return None
    return bases[0], None


def _candidates(
    theta: Tensor, slack: Tensor, turning: int, bases: tuple[float, ...], kept: int
) -> Iterator[tuple[float, Extension]]:
    """What the spectrum may be, the plainest first; the first kept planes are those of bases."""
    planes, last, near = len(theta), float(theta[turning - 1]), float(slack[turning - 1])
    p = next(p for p in (turning, turning + 0.5) if int(p / planes * planes) == turning) / planes
    if kept == turning:
        yield from ((bases[0], Default()), (bases[0], Proportional(p)))
    if (whole := float(1 / theta[0])) > 1:
        factors = whole, _shortest(whole, lambda f: abs(1 / f - theta[0]) <= slack[0])
        scaled, _ = _ladder(theta * whole, slack * whole, turning)
        for base, factor in product(scaled, factors) if factors[1] > 1 else ():
            yield from ((base, Linear(factor)), (base, Proportional(p, factor)))
    slowest = float(inverse_frequencies(2 * planes, bases[0])[turning - 1])
    factor = _shortest(slowest / last, lambda f: f > 0 and abs(slowest / f - last) <= near)
    for base, length in product(bases, LENGTHS) if 1 < kept < turning and factor > 1 else ():
        yield base, Llama3(factor, length)
        yield from ((base, YaRN(factor, length, truncate=cut)) for cut in (True, False))


def _ladder(theta: Tensor, slack: Tensor, turning: int) -> tuple[tuple[float, ...], int]:
    """The base of 1, b^(-2/R), ... in few digits and in all, and how many first planes have it."""
    planes, j = len(theta), torch.arange(turning, dtype=torch.float64)
    trust = (theta / slack)[:turning].clamp(max=1e9).square() * j

    def fits(base: float) -> bool:
        ladder = inverse_frequencies(2 * planes, base)[:kept] if base > 1.001 else 0 * theta[:kept]
        return bool(((ladder - theta[:kept]).abs() <= slack[:kept]).all())

    for kept in range(turning, 1, -1):
        part = slice(1, kept)
        slope = float((trust[part] * theta[part].log()).sum() / (trust[part] * j[part]).sum())
        if fits(base := math.exp(min(-slope * planes, 700))):
            return (_shortest(base, fits), base), kept
    return (10000.0,), 1  # any base has the first plane


def _fits(theta: Tensor, slack: Tensor, base: float, extension: Extension) -> bool:
    try:
        candidate = inverse_frequencies(2 * len(theta), base, extension=extension)
    except ValueError:  # a length within which YaRN has no plane to interpolate
        return False
    return bool(((candidate - theta).abs() <= slack).all())


def _shortest(value: float, fits: Callable[[float], Any]) -> float:
    """The number in as few digits as still fit; 17 are all that it has."""
    return next(short for digits in range(1, 18) if fits(short := float(f"{value:.{digits}g}")))
