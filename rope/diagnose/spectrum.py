"""The frequencies from the angles, and the name of a spectrum.

An angle is known but for whole turns. At position 1 the smallest is taken, |theta| <= pi. If theta
is known to within e, 2 theta is to within 2 e, far less than a turn: each doubling of the position
halves the error, as long as angles are multiples of the position.

Shapes: n planes, P positions, R rotated width.
"""

import math
from collections.abc import Iterator
from itertools import product

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
        *ladder, kept = _ladder(theta, allowed, turning)
        for base, extension in _candidates(theta, allowed, turning, ladder, kept):
            if _fits(theta, allowed, base, extension):
                return base, extension
    made = inverse_frequencies(2 * len(theta), ladder[0])[:turning]
    slower = theta[:turning] / made
    if kept < 2 or slower[-1] >= 1 or (slower.diff() > 2 * (allowed[:turning] / made)[1:]).any():
        return None
    return ladder[0], None


def _candidates(
    theta: Tensor, slack: Tensor, turning: int, ladder: list[float], kept: int
) -> Iterator[tuple[float, Extension]]:
    """What the spectrum may be, the plainest first; of ladder's planes the first kept fit."""
    planes, seen = len(theta), theta[:turning]
    p = next(p for p in (turning, turning + 0.5) if int(p / planes * planes) == turning) / planes
    if kept == turning:
        yield from ((ladder[0], Default()), (ladder[0], Proportional(p)))
    j, weight = torch.arange(turning, dtype=torch.float64), (seen / slack[:turning]).clamp(max=1e9)
    design = torch.stack((torch.ones_like(j), j), 1) * weight[:, None]
    height, slope = torch.linalg.lstsq(design, (seen.log() * weight)[:, None]).solution[:, 0]
    for digits in range(1, 18 if height < 0 else 0):
        base = _short(math.exp(min(-slope * planes, 700)), digits) if turning > 1 else ladder[0]
        factor = _short(math.exp(min(-height, 700)), digits)
        if factor > 1:
            yield from ((base, Linear(factor)), (base, Proportional(p, factor)))
    last = inverse_frequencies(2 * planes, ladder[0])[turning - 1]
    factors = (_short(float(last / seen[-1]), digits) for digits in range(1, 18))
    fitting = (
        each for each in factors if each and abs(last / each - seen[-1]) <= slack[turning - 1]
    )
    factor = next(fitting, 0.0)
    for base, length in product(ladder, LENGTHS) if 1 < kept < turning and factor > 1 else ():
        yield base, Llama3(factor, length)
        yield from ((base, YaRN(factor, length, truncate=each)) for each in (True, False))


def _ladder(theta: Tensor, slack: Tensor, turning: int) -> tuple[float, float, int]:
    """The base of 1, b^(-2/R), ... in few digits and in all, and how many first planes have it."""
    planes, j = len(theta), torch.arange(turning, dtype=torch.float64)
    trust = (theta / slack)[:turning].clamp(max=1e9).square() * j

    def fits(base: float) -> bool:
        made = inverse_frequencies(2 * planes, base)[:kept] if base > 1.001 else 0 * theta[:kept]
        return bool(((made - theta[:kept]).abs() <= slack[:kept]).all())

    for kept in range(turning, 1, -1):
        part = slice(1, kept)
        slope = float((trust[part] * theta[part].log()).sum() / (trust[part] * j[part]).sum())
        base = math.exp(min(-slope * planes, 700))
        if fits(base):
            return next(b for n in range(1, 18) if fits(b := _short(base, n))), base, kept
    return 10000.0, 10000.0, 1  # any base has the first plane


def _fits(theta: Tensor, slack: Tensor, base: float, extension: Extension) -> bool:
    try:
        made = inverse_frequencies(2 * len(theta), base, extension=extension)
    except ValueError:  # a length within which YaRN has no plane to interpolate
        return False
    return bool(((made - theta).abs() <= slack).all())


def _short(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
