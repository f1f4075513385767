"""Measure one tensor's rotation: its layout, frequencies, sizes, and rounding errors.

An angle is known only up to multiples of 2 pi. At position 1, we take the angle with |theta| <= pi.
If theta is known to within e, the angle at position 2 is known to within 2e, far less than 2 pi.
Each doubling of the position therefore halves the error of theta.

Shapes: n planes, P positions, R rotated width.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from rope.axes import section_frequencies
from rope.diagnose.codes import Finding, Rotation, finding
from rope.diagnose.influence import Probe
from rope.diagnose.planes import Structure, wrapped
from rope.extensions import Default, Extension, Linear, Llama3, Proportional, YaRN
from rope.frequencies import inverse_frequencies

#: Trained lengths to try for extensions that have one: powers of two, then multiples of 1024.
LENGTHS = [*(1 << k for k in range(8, 21)), *(1024 * k for k in range(1, 65))]


@dataclass
class Measurement:
    """Hold what was measured for one tensor.

    theta `[n]`: the signed frequencies. last: the last power of two whose angles fit theta.
    follows: True if sizes depend on the position. radial: the error of the radii, not counting that
    dependence. rough: how much sizes differ between neighboring positions. noise: the largest error
    that an angle may have. slots `[n]`: each plane's index among the R/2 planes. direction, offset:
    as in `Rotation`. expected_theta: the expected frequencies.
    """

    structure: Structure
    theta: Tensor
    last: int
    follows: bool
    radial: float
    rough: float
    noise: float
    layout: str
    width: int
    slots: Tensor
    direction: int
    offset: float | None
    expected_theta: Tensor | None

    @property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """Return |theta| for all R/2 planes (0 for planes that don't rotate) and error bounds."""
        theta = torch.zeros(self.width // 2, dtype=torch.float64)
        unseen = 2 * self.structure.noise / float(self.structure.positions[-1])
        slack = torch.full_like(theta, max(unseen, 4 * self.noise / self.last))
        theta[self.slots], slack[self.slots] = self.theta.abs(), 4 * self.noise / self.last
        return theta, slack

    @cached_property
    def known(self) -> tuple[float, Extension | None] | None:
        """Return the base and the extension that explain the spectrum, or None if none do."""
        return name(*self.spectrum)

    @property
    def scaling(self) -> float | None:
        """Return the factor that all planes share at position 0, or None if the factors differ."""
        gain, slack = self.structure.gain, max(1e-6, self.structure.noise)
        if gain is None or (gain - gain.median()).abs().max() > max(1e-3, slack) * gain.median():
            return None
        middle = float(gain.median())
        return 1.0 if abs(middle - 1) < slack else middle

    @cached_property
    def row_length(self) -> int | None:
        """Return N if the positions seem to count patches row by row, N per row; else None.

        Some planes then follow the column m % N of patch m, and the other planes follow its row.
        In the first row of patches, these other planes don't rotate.
        """
        m, still = self.structure.positions, 4 * self.noise / self.last

        def off(positions: Tensor) -> Tensor:  # [P, n]
            angle = positions[:, None] * self.theta
            allowed = 2.0**-18 * angle.abs() + 4 * self.noise + still * positions[:, None]
            return wrapped(self.structure.alpha.angle() - angle).abs() > allowed

        first = int(off(m).any(1).int().argmax())
        for size in range(int(m[first - 1]) + 1, int(m[first]) + 1) if first else ():
            others = off(m % size).any(0)
            if 0 < others.sum() < len(others) and (self.theta[others].abs() <= still).all():
                return size
        return None


def measure(structure: Structure, eps: float, expected_theta: Tensor | None) -> Measurement:
    """Measure the frequencies, the errors, and the layout of a tensor with at least one plane."""
    m, logs = structure.positions.double()[:, None], structure.radius.log().flatten(1)
    # The factor of a decay or a temperature is smooth, or all planes share it. The errors of
    # rounded tables are rough: they differ between neighboring positions and between planes.
    apart = logs - logs.median(dim=1, keepdim=True).values * (logs.shape[1] > 1)
    inner = (m[2:] - m[:-2] == 2)[:, 0]
    rough = float((apart[2:] - 2 * apart[1:-1] + apart[:-2])[inner].abs().median(0).values.max())
    radial = float(logs.expm1().abs().max())
    if follows := radial > max(4 * rough, 4 * eps, 2.0**-18):
        radial = rough
    # Rounding a table causes errors of the same size along the circle and across it.
    noise = max(4 * eps, 2 * radial if radial < 0.1 else 0.0, 1e-12)
    row = {int(m): i for i, m in enumerate(structure.positions)}
    phases, last, step = structure.alpha.angle(), 1, 2
    theta = phases[row[1]]
    while step in row:
        off = wrapped(phases[row[step]] - step * theta)
        if off.abs().max() > 0.05:  # rounding errors of bfloat16, doubled, reach 0.02
            break
        theta, last, step = theta + off / step, step, 2 * step
    theta = torch.where(theta.abs() > 4 * noise / last, theta, 0)
    planes, signs = structure.planes, theta.sign()
    if structure.source is not None:
        planes = structure.source[planes]
        signs = signs * planes.diff(dim=1)[:, 0].sign()
    layout, width, slots = _layout(planes.sort(dim=1).values)
    due, unseen = expected_theta, 2 * max(noise, structure.noise) / m[-1]
    pairs = layout == "interleaved" or width == 2
    if due is not None and pairs and 2 * len(due) > width and due[width // 2 :].max() < unseen:
        layout, width = "interleaved", 2 * len(due)
    directions = set(signs[theta != 0].tolist())
    direction = int(directions.pop()) if len(directions) == 1 else 0
    return Measurement(
        structure, theta, last, follows, radial, rough, noise, layout, width, slots,
        direction, offset(structure, theta), expected_theta,
    )  # fmt: skip


def along_axis(q: Measurement, k: Measurement, probe: Probe) -> Finding | None:
    """Find the axis along which the ids move, and expect only that axis's frequencies.

    Returns a fault if planes of another axis rotate, and lists the other axes in `probe.missed`.
    """
    (theta, slack), every, expected = q.spectrum, q.expected_theta, probe.expected
    sections = getattr(expected, "sections", None)
    if sections is None or every is None or len(theta) != len(every):
        return None
    turns = expected.interleaved_sections
    rows = torch.stack([every, *section_frequencies(every, sections, interleaved_sections=turns)])
    off = (rows - theta).abs() > slack + 2 * rounding(rows)  # [1 + A, R/2]
    axis = int(off.sum(1).argmin()) - 1
    seen = "separately, because all moved together" if axis < 0 else f"other than {axis}"
    how = "diagnose one axis at a time, with the others at 0"
    probe.missed.append(f"the model's {len(rows) - 1} axes {seen} ({how})")
    q.expected_theta = k.expected_theta = row = rows[axis + 1]
    if axis < 0 or not (off[axis + 1] & ((row == 0) | (theta == 0))).any():
        return None
    planes = theta.nonzero()[:, 0].tolist()
    return finding("sections", axis=axis, first=planes[0], last=planes[-1])


def factors(q: Measurement, k: Measurement) -> Iterator[Finding]:
    """Yield a finding unless the sizes of q and k are constant, or change as e^(gm) and e^(-gn)."""
    common = (q.structure.planes[:, None] == k.structure.planes).all(-1)  # [n_q, n_k]
    if not (common.any() and (q.follows or k.follows)):
        return
    ln_q = q.structure.radius.log()[..., common.any(1)]
    ln_k = k.structure.radius.log()[..., common.any(0)]
    ln_k = ln_k.repeat_interleave(max(1, ln_q.shape[1] // ln_k.shape[1]), dim=1)
    total = (ln_q[:, : ln_k.shape[1]] + ln_k[:, : ln_q.shape[1]]).flatten(1)  # ln |q_m| |k_m|
    m, slack = q.structure.positions.double(), max(1e-3, 4 * q.radial, 4 * k.radial)

    def bent(logs: Tensor) -> Tensor:
        return (logs - logs[-1:] * (m / m[-1])[:, None]).abs()

    shared = total.median(1, keepdim=True).values
    if total.abs().max() > slack:
        by = total.abs().amax(1).argmax()
        in_query = bent(ln_k.flatten(1)).max() <= slack and (total - shared).abs().max() <= slack
        tempered = in_query and bent(shared).max() > slack
        off = (shared[by] if tempered else total[by].abs().max()).expm1()
        code = "temperature" if tempered else "not-relative"
        yield finding(code, off=float(off), by=int(m[by]))


def _layout(planes: Tensor) -> tuple[str, int, Tensor]:
    """Return the layout, the rotated width, and the index of each plane. planes: `[n, 2]`."""
    a, b = planes.T
    gap, place = int(b[0] - a[0]), a - a.min()
    if (b - a == gap).all() and int(place.max()) < gap and (gap > 1 or len(planes) == 1):
        # If some planes are hidden, the first visible one may not be plane 0.
        return "half", 2 * gap, a if int(a.max()) < gap else place
    if (b - a == 1).all() and (place % 2 == 0).all():
        return "interleaved", int(place.max()) + 2, place // 2
    return "other", 2 * len(planes), torch.arange(len(planes))


def offset(structure: Structure, theta: Tensor) -> float | None:
    """Return the offset nearest to 0 whose angles equal A_0's angles in all planes, or None.

    Offsets may be half-integers, because pixels may be numbered by their centers.
    """
    start, tolerance = structure.start, structure.start_tolerance
    if start is None:
        return None
    offsets = torch.arange(-(1 << 18), (1 << 18) + 1, dtype=torch.float64) / 2
    fastest = theta.abs().topk(min(4, len(theta))).indices
    for few, planes in ((start[:1], fastest), (start, slice(None))):  # exclude most offsets first
        error = wrapped(few[:, planes] - offsets[:, None, None] * theta[planes]).abs()
        offsets = offsets[error.amax((1, 2)) < tolerance]
    nearest = min(offsets.tolist(), key=abs, default=0.0)
    # Slow planes fit any position, and two fast planes fit some position by chance.
    needed = 0 if tolerance < 0.05 and abs(nearest) <= 64 else 2
    enough = nearest == 0 or int((theta.abs() > 0.05).sum()) > needed
    return nearest if len(offsets) and enough else None


def rotation(measured: Measurement, linear: bool) -> Rotation:
    """Return the rotation to report. linear: True if attention_scaling can be measured."""
    theta, _ = measured.spectrum
    base, extension = measured.known or (None, None)
    reference, expected = theta, measured.expected_theta
    if expected is not None and len(expected) == len(theta):
        reference = expected
    elif base is not None and extension is not None:
        reference = inverse_frequencies(2 * len(theta), base, extension=extension)
    angles, signed = measured.structure, reference[measured.slots] * measured.theta.sign()
    off = wrapped(angles.alpha.angle() - angles.positions[:, None] * signed)
    far = angles.positions[off.abs().amax(1) > 0.01]
    scaling, error = measured.scaling if linear else None, float(off.abs().max())
    return Rotation(
        measured.layout, measured.width, theta, base, extension, scaling, measured.direction,
        measured.offset, error, int(far[0]) if len(far) else None,
    )  # fmt: skip


def rounding(theta: Tensor) -> Tensor:
    """Return the largest error of frequencies that were computed as powers in float32.

    The exponent, about ln theta, has a relative error of a few times 2^-24. Its absolute error is
    the relative error of the power.
    """
    return 2.0**-20 * theta * (1 + theta.clamp(min=1e-300).log().abs())


def are_axes(theta: Tensor, slack: Tensor) -> bool:
    """Return True if frequencies `[R/2]` look like those of a function with several axes.

    With several axes, some planes don't rotate, or the powers of the base restart for each axis.
    """
    planes = (theta > 2 * slack).nonzero()[:, 0]
    rest = len(planes) and int(planes[-1]) >= len(planes)  # an earlier plane doesn't rotate
    again = planes[1:][theta[planes].diff() > 0]  # where the powers begin anew
    starts = theta[torch.cat((planes[:1], again))]
    return bool((len(again) or rest) and ((starts - starts[0]).abs() < 1e-4).all())


def name(theta: Tensor, slack: Tensor) -> tuple[float, Extension | None] | None:
    """Return the base and extension of frequencies `[R/2]` known to within slack `[R/2]`, or None.

    The numbers are rounded to as few digits as still fit. The extension is None if no known formula
    fits: the first planes match the plain frequencies for some base, but the remaining planes are
    slower. NTK scaling is reported as a larger base.
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
            except ValueError:  # within this length, YaRN has no plane to interpolate
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
            yield from ((base, Linear(factor)), (base, Proportional(p, factor=factor)))
    slowest = float(inverse_frequencies(2 * planes, bases[0])[rotating - 1])
    factor = _shortest(slowest / last, lambda f: f > 0 and abs(slowest / f - last) <= near)
    for base, length in product(bases, LENGTHS) if 1 < kept < rotating and factor > 1 else ():
        yield base, Llama3(factor, length)
        yield from ((base, YaRN(factor, length, truncate=cut)) for cut in (True, False))


def _bases(theta: Tensor, slack: Tensor, rotating: int) -> tuple[tuple[float, ...], int]:
    """Fit the powers 1, b^(-2/R), ... to as many of the first planes as possible.

    Returns candidates for b, with few digits and with all digits, and how many planes b fits.
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
    """Return `value`, rounded to the fewest digits with which it still fits the measurements."""
    return next(short for digits in range(1, 18) if fits(short := float(f"{value:.{digits}g}")))
