"""The frequencies from the angles, and the name of a spectrum.

An angle is known but for whole turns. At position 1 the smallest is taken, |theta| <= pi. If theta
is known to within e, 2 theta is to within 2 e, far less than a turn: each doubling of the position
halves the error, as long as angles are multiples of the position.

Shapes: n planes, P positions, R rotated width.
"""

import math

import torch
from torch import Tensor

from rope.diagnose.planes import wrapped
from rope.extensions import Default, Extension, Linear, Llama3, Proportional, YaRN
from rope.frequencies import inverse_frequencies

#: Trained lengths tried for the extensions that have one: powers of two, and whole kilos.
LENGTHS = sorted({1 << k for k in range(8, 21)} | {1024 * k for k in range(1, 65)})


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


def name(theta: Tensor, slack: Tensor) -> tuple[float, Extension | None] | None:
    """Base and extension of frequencies `[R/2]` known to within slack `[R/2]`, None without a name.

    The extension is None for a spectrum that is a ladder at first and slower from there on, whose
    formula is not found. NTK's is a ladder, of a larger base.

    >>> spectrum = inverse_frequencies(64, 5e5, extension=Llama3(8.0, 8192))
    >>> base, extension = name(spectrum, 1e-9 * spectrum)
    >>> base, extension == Llama3(8.0, 8192)
    (500000.0, True)
    """
    turning, planes = int((theta > 0).sum()), len(theta)
    seen, slack_of = theta[:turning], slack[:turning]
    if not turning or (seen <= 0).any():
        return None
    j, weight = torch.arange(turning, dtype=torch.float64), (seen / slack_of).clamp(max=1e9)
    design = torch.stack((torch.ones_like(j), j), 1) * weight[:, None]
    height, slope = torch.linalg.lstsq(design, (seen.log() * weight)[:, None]).solution[:, 0]
    first, base = _plain(math.exp(-height)), _plain(math.exp(-slope * planes))
    if turning == 1:
        first, base = _plain(1 / float(seen[0])), 10000.0  # any base has it
    for factor in (1.0, first) if base > 1 else ():
        ladder = Proportional(turning / planes, max(factor, 1.0))
        plain = Linear(factor) if factor > 1 else Default()
        extension: Extension = ladder if turning < planes else plain
        if _fits(theta, slack, base, extension):
            return base, extension
    for kept in range(turning - 1, 1, -1):  # the planes that the extension leaves alone
        part = slice(1, kept)
        trust = weight[part].square() * j[part]
        slope = (trust * seen[part].log()).sum() / (trust * j[part]).sum()
        base = _plain(math.exp(-slope * planes))
        made = inverse_frequencies(2 * planes, base)[:turning]
        if base > 1 and ((made - seen).abs() <= slack_of)[:kept].all():
            break
    else:
        return None
    factor = _plain(float(made[-1] / seen[-1]))
    if factor <= 1 or ((seen / made).diff() > (2 * slack_of / made)[1:]).any():
        return None
    for length in LENGTHS:
        yarns = YaRN(factor, length), YaRN(factor, length, truncate=False)
        for extension in (Llama3(factor, length), *yarns):
            if _fits(theta, slack, base, extension):
                return base, extension
    return base, None


def _fits(theta: Tensor, slack: Tensor, base: float, extension: Extension) -> bool:
    try:
        made = inverse_frequencies(2 * len(theta), base, extension=extension)
    except ValueError:  # a length within which YaRN has no plane to interpolate
        return False
    return bool(((made - theta).abs() <= slack).all())


def _plain(value: float) -> float:
    """The number in few digits, where the measured one is that but for its error."""
    for digits in (3, 5):
        short = float(f"{value:.{digits}g}")
        if abs(short - value) <= 2e-5 * abs(value):
            return short
    return value
