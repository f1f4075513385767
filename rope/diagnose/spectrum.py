"""Find the frequencies from the angles, and the base and extension that explain the frequencies.

An angle is known only up to multiples of 2 pi. At position 1, we take the angle with |theta| <= pi.
If theta is known to within e, then 2 theta is known to within 2e, far less than 2 pi. So each
doubling of the position halves the error while the angles are proportional to the position.

Shapes: n planes, P positions, R rotated width.
"""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise, product

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


def refined(steps: Tensor, phases: Tensor, noise: float) -> Tensor:
    """Return signed theta `[n]` for phases `[P, n]` at ascending steps `[P]` that start at 1.

    noise: the possible error of a phase. A step is used only if theta is known well enough for it.
    """
    theta, known = phases[0], 1
    for step, phase in zip(steps[1:].tolist(), phases[1:], strict=True):
        if step > known and step * noise < 0.1 * known:
            theta, known = theta + wrapped(phase - step * theta) / step, step
    return theta


def split(
    positions: Tensor, phases: Tensor, theta: Tensor, last: int, noise: float
) -> tuple[list[int], Tensor, Tensor] | None:
    """Return sizes, theta `[n]` and coordinates `[P, n]` if planes follow m % N or m // N, or None.

    A function of patches may number them row by row. Then some planes rotate by the column, m % N,
    and the others by the row, m // N, or by the row and frame that m // N numbers in turn. sizes:
    each N. positions `[P]` ascend. theta: the frequencies up to position `last`. noise: the
    possible error of a phase.
    """

    def off(m: Tensor, theta: Tensor) -> Tensor:
        angle = m[:, None] * theta
        allowed = 2.0**-18 * angle.abs() + 4 * noise * (1 + m[:, None] / last)
        return wrapped(phases - angle).abs() > allowed  # [P, n]

    first = int(off(positions, theta).any(1).int().argmax())
    for size in range(int(positions[first - 1]) + 1, int(positions[first]) + 1) if first else ():
        column, row = positions % size, positions // size
        inner, starts = ~off(column, theta).any(0), row.unique()[1:]
        if not inner.any() or inner.all() or starts[0] != 1:
            continue
        at = torch.stack([(row == start).int().argmax() for start in starts])
        outer = torch.where(inner, theta, refined(starts, phases[at], noise))
        if not off(row, outer)[:, ~inner].any():
            return [size], outer, torch.where(inner, column[:, None], row[:, None])
        deeper = split(starts, phases[at][:, ~inner], phases[at[0], ~inner], 1, noise)
        if deeper is not None:
            sizes, outer[~inner], coordinates = deeper
            whole = column[:, None].repeat(1, len(theta))
            from_0 = torch.cat((torch.zeros_like(coordinates[:1]), coordinates))
            whole[:, ~inner] = from_0[torch.searchsorted(starts, row, right=True)]
            return [size, *sizes], outer, whole
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
    cuts = [0, *((theta[planes].diff() > 0).nonzero()[:, 0] + 1).tolist(), len(planes)]
    pieces = [planes[a:b] for a, b in pairwise(cuts)]
    rest = len(planes) and int(planes[-1]) >= len(planes)  # some plane before the last one rests
    if any(len(piece) < 2 for piece in pieces) or (len(pieces) < 2 and not rest):
        return False
    for piece in pieces:
        logs, away = theta[piece].log(), piece - piece[0]
        line = logs[0] + (logs[1] - logs[0]) / away[1] * away
        if ((logs - line).abs() > 1e-3 * (1 + away)).any():
            return False
    return len({round(float(theta[piece[0]]), 4) for piece in pieces}) == 1


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
