"""The frequencies from the angles, and the name of a spectrum.

An angle is known but for whole turns. At position 1 the smallest one is taken, |theta| <= pi. If
theta is known to within e, 2 theta is to within 2 e, far less than a turn: so each doubling of the
position halves the error, as long as the angles are multiples of the position.

Shapes: n planes, P positions, R rotated width.
"""

import torch
from torch import Tensor

from rope.diagnose.planes import wrapped
from rope.extensions import Default, Extension, Linear, Llama3, Proportional, YaRN
from rope.frequencies import inverse_frequencies

#: Trained lengths that are tried for extensions that have one: powers of two, and whole kilos.
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

    The extension is None for a spectrum that is a ladder at first and only slower from there on,
    whose formula is not found. A larger base is NTK's, and counts as a base.

    >>> spectrum = inverse_frequencies(64, 5e5, extension=Llama3(8.0, 8192))
    >>> name(spectrum, 1e-9 * spectrum)
    (500000.0, Llama3(factor=8.0, original_max_position_embeddings=8192, low_freq_factor=1.0,
        high_freq_factor=4.0))
    """
    turning = int((theta > 0).sum())
    if turning < 1 or (theta[:turning] <= 0).any():
        return None
    dim, seen = 2 * len(theta), theta[:turning]
    if turning == 1:
        return (10000.0, Default()) if abs(seen[0] - 1) <= slack[0] else None
    j = torch.arange(turning, dtype=torch.float64)
    weight = (seen / slack[:turning]).clamp(max=1e9)
    design = torch.stack((torch.ones_like(j), -j), 1) * weight[:, None]
    height, step = (
        torch.linalg.lstsq(design, (seen.log() * weight)[:, None]).solution[:, 0].tolist()
    )
    share = {"partial_rotary_factor": turning / len(theta)} if turning < len(theta) else None
    for first in (1.0, _plain(float(torch.tensor(-height).exp()))):
        base = _plain(float(torch.tensor(step * len(theta)).exp()))
        if first < 1 or base < 1:
            continue
        extension: Extension = Linear(first) if first > 1 else Default()
        if share:
            extension = Proportional(**share, factor=first)
        if _fits(theta, slack, base, extension):
            return base, extension
    for kept in range(turning - 1, 1, -1):  # the planes that the extension leaves alone
        part = slice(1, kept)
        trust = weight[part].square() * j[part]
        step = -float((trust * seen[part].log()).sum() / (trust * j[part]).sum())
        base = _plain(float(torch.tensor(step * len(theta)).exp()))
        if base <= 1:
            continue
        plain = inverse_frequencies(dim, base)[:turning]
        if ((plain - seen).abs() > slack[:turning])[:kept].any():
            continue
        ratio = seen / plain
        factor = _plain(1 / float(ratio[-1]))
        if factor <= 1 or (ratio.diff() > (2 * slack[:turning] / plain)[1:]).any():
            return None
        for length in LENGTHS:
            tried: list[Extension] = [Llama3(factor, length), YaRN(factor, length)]
            for extension in (*tried, YaRN(factor, length, truncate=False)):
                if _fits(theta, slack, base, extension):
                    return base, extension
        return base, None
    return None


def _fits(theta: Tensor, slack: Tensor, base: float, extension: Extension) -> bool:
    try:
        made = inverse_frequencies(2 * len(theta), base, extension=extension)
    except ValueError:  # a length within which YaRN has no plane to interpolate
        return False
    return bool(((made - theta).abs() <= slack).all())


def _plain(value: float) -> float:
    """The number with five digits, where the measured one is that but for its error."""
    short = float(f"{value:.5g}")
    return short if abs(short - value) <= 1e-5 * abs(value) else value
