"""Find the frequencies from the angles, and the base and extension that explain the frequencies.

An angle is known only up to multiples of 2 pi. At position 1, we take the angle with |theta| <= pi.
If theta is known to within e, then 2 theta is known to within 2e, far less than 2 pi. So each
doubling of the position halves the error while the angles are proportional to the position.

Shapes: n planes, P positions, R rotated width.
"""

import math
from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor

from rope.diagnose.planes import wrapped
from rope.extensions import Default, Extension, Linear, Llama3, Proportional, YaRN
from rope.frequencies import inverse_frequencies

#: Trained lengths to try for extensions that have one: powers of two, then multiples of 1024.
LENGTHS = [*(1 << k for k in range(8, 21)), *(1024 * k for k in range(1, 65))]


def frequencies(positions: Tensor, phases: Tensor) -> tuple[Tensor, int]:
    """Return signed theta `[n]` for phases `[P, n]`, and the last power of two that theta fits."""
    row = {int(m): i for i, m in enumerate(positions)}
    theta, last, step = phases[row[1]], 1, 2
    while step in row:
        off = wrapped(phases[row[step]] - step * theta)
        if off.abs().max() > 0.05:  # rounding errors of bfloat16, doubled, reach 0.02
            break
        theta, last, step = theta + off / step, step, 2 * step
    return theta, last


def row_length(
    positions: Tensor, phases: Tensor, theta: Tensor, last: int, noise: float
) -> int | None:
    """Return N if planes follow the column m % N of a patch m, and others its row, or None.

    A function of patches may number them row by row. In the first row, the planes of the other axes
    stand still. positions `[P]` ascend. phases: `[P, n]`. theta `[n]`: the frequencies up to
    position `last`. noise: the possible error of a phase.
    """

    def off(m: Tensor) -> Tensor:
        angle = m[:, None] * theta
        allowed = 2.0**-18 * angle.abs() + 4 * noise * (1 + m[:, None] / last)
        return (wrapped(phases - angle).abs() > allowed).any(1 if m is positions else 0)

    first = int(off(positions).int().argmax())
    for size in range(int(positions[first - 1]) + 1, int(positions[first]) + 1) if first else ():
        others = off(positions % size)
        if 0 < others.sum() < len(others) and (theta[others].abs() <= 4 * noise / last).all():
            return size
    return None


def rounding(theta: Tensor) -> Tensor:
    """Return the largest error of frequencies that were computed as powers in float32.

    The exponent, about ln theta, has a relative error of a few times 2^-24. The absolute error of
    the exponent is the relative error of the power.
    """
    return 2.0**-20 * theta * (1 + theta.clamp(min=1e-300).log().abs())


def are_axes(theta: Tensor, slack: Tensor) -> bool:
    """Return True if frequencies `[R/2]` look like those of one axis of several, or of all axes.

    The planes of the other axes may rest, or each axis may have powers that begin anew at 1.
    """
    planes = (theta > 2 * slack).nonzero()[:, 0]
    rest = len(planes) and int(planes[-1]) >= len(planes)  # some plane before the last one rests
    again = planes[1:][theta[planes].diff() > 0]  # where the powers begin anew
    starts = theta[torch.cat((planes[:1], again))]
    return bool((len(again) or rest) and ((starts - starts[0]).abs() < 1e-4).all())


def name(theta: Tensor, slack: Tensor) -> tuple[float, Extension | None] | None:
    """Return the base and extension of frequencies `[R/2]` known to within slack `[R/2]`, or None.

    The numbers have as few digits as the tightest explanation allows. The extension is None if the
    first planes have the frequencies of a base and the other planes are slower, but follow no known
    formula. NTK is recovered as a larger base.

    >>> spectrum = inverse_frequencies(64, 5e5, extension=Llama3(8.0, 8192))
    >>> base, extension = name(spectrum, 1e-15 * spectrum)
    >>> base, extension == Llama3(8.0, 8192)
    (500000.0, True)
    """
    rotating = int((theta > 0).sum())
    if not rotating or (theta[:rotating] <= 0).any():
        return None
    for share in (2.0**-28, 2.0**-4, 2.0**-2, 1.0):  # from float64's errors to float32's
        allowed = slack + share * rounding(theta)
        bases, kept = _bases(theta, allowed, rotating)
        for base, extension in _candidates(theta, allowed, rotating, bases, kept):
            try:
                candidate = inverse_frequencies(2 * len(theta), base, extension=extension)
            except ValueError:  # a length within which YaRN has no plane to interpolate
                continue
            if ((candidate - theta).abs() <= allowed).all():
                return base, extension
    powers = inverse_frequencies(2 * len(theta), bases[0])[:rotating]
    slower = theta[:rotating] / powers
    rises = (slower.diff() > 2 * (allowed[:rotating] / powers)[1:]).any()
    return None if kept < 2 or slower[-1] >= 1 or rises else (bases[0], None)


def _candidates(
    theta: Tensor, slack: Tensor, rotating: int, bases: tuple[float, ...], kept: int
) -> Iterator[tuple[float, Extension]]:
    """Yield pairs of base and extension to try, simplest first; `bases` fit the first planes."""
    planes, last, near = len(theta), float(theta[rotating - 1]), float(slack[rotating - 1])
    p = next(p for p in (rotating, rotating + 0.5) if int(p / planes * planes) == rotating)
    p /= planes
    if kept == rotating:
        yield from ((bases[0], Default()), (bases[0], Proportional(p)))
    if (whole := float(1 / theta[0])) > 1:
        factors = whole, _shortest(whole, lambda f: abs(1 / f - float(theta[0])) <= slack[0])
        scaled, _ = _bases(theta * whole, slack * whole, rotating)
        for base, factor in product(scaled, factors) if factors[1] > 1 else ():
            yield from ((base, Linear(factor)), (base, Proportional(p, factor)))
    slowest = float(inverse_frequencies(2 * planes, bases[0])[rotating - 1])
    factor = _shortest(slowest / last, lambda f: f > 0 and abs(slowest / f - last) <= near)
    for base, length in product(bases, LENGTHS) if 1 < kept < rotating and factor > 1 else ():
        yield base, Llama3(factor, length)
        yield from ((base, YaRN(factor, length, truncate=cut)) for cut in (True, False))


def _bases(theta: Tensor, slack: Tensor, rotating: int) -> tuple[tuple[float, ...], int]:
    """Fit the powers 1, b^(-2/R), ... to as many of the first planes as possible.

    Returns b, in few digits and in all digits, and the number of planes that it fits.
    """
    planes, j = len(theta), torch.arange(rotating, dtype=torch.float64)
    trust = (theta / slack)[:rotating].clamp(max=1e9).square() * j

    def fits(base: float) -> bool:
        powers = inverse_frequencies(2 * planes, base)[:kept] if base > 1.001 else 0 * theta[:kept]
        return bool(((powers - theta[:kept]).abs() <= slack[:kept]).all())

    for kept in range(rotating, 1, -1):
        part = slice(1, kept)
        slope = float((trust[part] * theta[part].log()).sum() / (trust[part] * j[part]).sum())
        if fits(base := math.exp(min(-slope * planes, 700))):
            return (_shortest(base, fits), base), kept
    return (10000.0,), 1  # every base has the same first plane


def _shortest(value: float, fits: Callable[[float], object]) -> float:
    """Return `value` rounded to the fewest digits with which it still fits."""
    return next(short for digits in range(1, 18) if fits(short := float(f"{value:.{digits}g}")))
