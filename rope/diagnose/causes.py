"""Name the cause of a measured fault. Each cause is yielded before its consequences.

Shapes: n planes, P positions, R rotated width.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rope.diagnose import spectrum
from rope.diagnose.influence import NAMES, SHORT, Influence, changed_since, short_text
from rope.diagnose.measure import Measurement, factors
from rope.diagnose.planes import Angles, Structure, wrapped
from rope.diagnose.probe import CallError, Probe
from rope.diagnose.report import Finding, finding
from rope.frequencies import inverse_frequencies


def structure_faults(
    structures: list[Structure], fitted: list[Angles], eps: float
) -> Iterator[Finding]:
    """Yield a fault for each way in which q or k is not rotated in planes."""
    for name, structure, angles in zip(NAMES, structures, fitted, strict=True):
        # Intermediate rounding to bfloat16 adds up to 2^-8; a mean or size that depends on m, more.
        mixed = structure.dense > max(structure.noise, 1e-3, 64 * eps)
        unlike = (mixed and not len(structure.tangled)) or structure.misfit > max(0.01, 4 * eps)
        off = max(structure.dense, structure.misfit, angles.misfit)
        if unlike and structure.flat:
            yield finding("norm-after", name=name, off=off)
        if len(structure.tangled):
            a, b = int(structure.tangled[0]), int(structure.tangled[-1])
            yield finding("pairing", "apart", name=name, a=a, b=b, off=structure.dense)
        # The structure's vectors of signs let odd functions, such as tanh, look linear.
        if unlike or angles.misfit > max(0.02, 8 * eps):
            variant = "mixed" if math.isfinite(off) else "zero"
            yield finding("not-a-rotation", variant, name=name, off=off)
        if len(structure.planes):
            bent = angles.beta.abs() / torch.hypot(angles.alpha.abs(), angles.beta.abs())
            # A later gain g gives [cos, −g sin; sin / g, cos]: determinant 1, equal diagonal.
            area = angles.alpha.abs().square() - angles.beta.abs().square() - 1
            ellipse = torch.maximum(angles.beta.real.abs(), area.abs()).max() < 0.1 * bent.max()
            a, b = structure.planes[int(bent.amax(0).argmax())].tolist()
            if bent.max() > max(64 * angles.misfit, 1e-5) and ellipse:
                yield finding("norm-after", name=name, off=float(bent.max()))
            elif bent.max() > max(64 * angles.misfit, 1e-5):
                yield finding("pairing", "apart", name=name, a=a, b=b, off=float(bent.max()))
        elif len(structure.lone):
            yield finding("not-a-rotation", "alone", name=name, a=int(structure.lone[0]))
        if len(structure.lone):
            yield finding("rest-changed", "position", name=name, a=int(structure.lone[0]))
    if not all(len(structure.planes) for structure in structures):
        yield finding("positions-ignored", "unseen")


def _broken(measured: Measurement, name: str, expected: Any) -> Iterator[Finding]:
    """Yield a fault if pairs are multiplied by numbers of no common size instead of rotated."""
    if measured.rough < 0.3:  # tables in 8 bits reach 0.2
        return
    if expected is not None and measured.width != expected.dim:
        yield finding("width", name=name, measured=measured.width, expected=expected.dim)
    structure, angles = measured.structure, measured.angles
    plane = int((angles.radius.log().amax((0, 1)) - angles.radius.log().amin((0, 1))).argmax())
    facts = dict(name=name, a=int(structure.planes[plane, 0]), b=int(structure.planes[plane, 1]))
    if structure.start is not None and structure.gain is not None:
        table = angles.alpha * torch.polar(structure.gain, structure.start)  # cos + i sin
        low, high = table[:, plane].abs().square().aminmax()
        if torch.maximum(table.real.abs(), table.imag.abs()).max() < 1.5:  # YaRN's factors
            yield finding("pairing", "tables", low=float(low), high=float(high), **facts)
    low, high = angles.radius[..., plane].aminmax()
    yield finding("not-a-rotation", "sizes", low=float(low), high=float(high), **facts)


def rotation_faults(
    probe: Probe, influence: Influence, q: Measurement, k: Measurement, expected: Any, cache: bool
) -> Iterator[Finding]:
    """Yield the faults in the rotations of q and k. expected, cache: as in `diagnose`."""
    for name, measured in zip(NAMES, (q, k), strict=True):
        yield from _broken(measured, name, expected)
    yield from _doubled(q, k, expected)
    yield from _table_changes(q, k)
    yield from _differences(q, k)
    yield from _narrow_inputs(probe, influence.far)
    again = probe(short_text(probe), SHORT)
    if fault := changed_since(probe, influence.first, again, "later"):
        yield fault
    fixed = expected is not None and not expected.extension.length_dependent
    if influence.length_change and (fixed or (cache and influence.keys_change)):
        yield finding("length-dependent", off=influence.length_change)
    for which, measured in enumerate((q, k)):
        yield from _side_faults(probe, influence, measured, which, expected)
    if expected is not None and all(influence.linear) and None not in (q.scaling, k.scaling):
        scaling = expected.extension.attention_scaling
        # Scores depend only on the product, and a query may also contain the scale 1/sqrt(D).
        product = q.scaling * k.scaling / scaling**2  # type: ignore[operator]
        if min(abs(product - 1), abs(product * probe.head_dim**0.5 - 1)) > max(1e-3, 4 * probe.eps):
            yield finding("attention-scaling", query=q.scaling, key=k.scaling, expected=scaling)
    yield from (factor for factor in factors(q, k) if factor.code == "not-relative")
    for dtype, returned in probe.returned.items():
        if returned != dtype:
            yield finding("dtype-changed", dtype=plain(dtype), returned=plain(returned))


def _side_faults(
    probe: Probe,
    influence: Influence,
    measured: Measurement,
    which: int,
    expected: Any,
) -> Iterator[Finding]:
    """Yield the faults in the rotation of one tensor: q if `which` is 0, k if `which` is 1."""
    name = NAMES[which]
    yield from _positions(measured, which, probe)
    if measured.radial >= max(1e-5, 8 * probe.eps):
        yield finding("low-precision-tables", name=name, off=measured.radial)
    if expected is not None:
        layout = "interleaved" if expected.interleaved else "half"
        if measured.width != expected.dim:
            yield finding("width", name=name, measured=measured.width, expected=expected.dim)
        if measured.layout != layout and expected.dim > 2:
            yield finding("layout", name=name, measured=measured.layout, expected=layout)
    yield from _frequencies(measured, name, influence.length_change > 0)
    # Coordinates beyond the planes must stay unchanged, or be scaled like all other coordinates.
    rest, scaling = measured.structure.rest_gain, measured.scaling
    if all(influence.linear) and scaling is not None and rest is not None and len(rest):
        median = float(rest.median()) or 1.0
        common = median if expected is None else scaling / expected.extension.attention_scaling
        allowed = torch.tensor([1.0, scaling, common], dtype=torch.float64)
        off, index = (rest - allowed[:, None]).abs().amin(0).max(dim=0)
        if off > max(1e-3, measured.structure.noise):
            a = int(measured.structure.rest[index])
            yield finding("rest-changed", "factor", name=name, a=a, factor=rest[index])


def _doubled(q: Measurement, k: Measurement, expected: Any) -> Iterator[Finding]:
    """Yield a fault if q, k, or both are rotated twice: double angles and a squared factor."""
    rates = [side.spectrum[0] for side in (q, k)]
    slack = [side.spectrum[1] + 2 * spectrum.rounding(side.spectrum[0]) for side in (q, k)]
    once = q.expected_theta
    factor = expected.extension.attention_scaling if expected is not None else None

    def fits(which: int, theta: Tensor) -> bool:
        return len(theta) == len(rates[which]) and bool(
            ((rates[which] - theta).abs() <= 4 * slack[which]).all() and theta.any()
        )

    for one, name in enumerate(NAMES):
        other = 1 - one
        if fits(one, 2 * rates[other]) and (once is None or fits(other, once)):
            yield finding("rotated-twice", "one", name=name, other=NAMES[other])
    if once is None and (known := spectrum.name(rates[0] / 2, slack[0])) and known[1] is not None:
        once = inverse_frequencies(2 * len(rates[0]), known[0], extension=known[1])
        factor = known[1].attention_scaling
    if once is None or factor in (None, 1.0) or not all(fits(i, 2 * once) for i in (0, 1)):
        return
    if all(side.scaling and abs(side.scaling / factor**2 - 1) < 1e-3 for side in (q, k)):
        yield finding("rotated-twice", "both", query=q.scaling, factor=factor)


def _table_changes(q: Measurement, k: Measurement) -> Iterator[Finding]:
    """Yield a fault if q and k have other frequencies or another factor from some position on."""
    for side in (q, k):
        m, phases = side.angles.positions[:, None], side.angles.alpha.angle()
        logs = side.angles.radius.log().flatten(1)
        off = wrapped(phases - side.coordinates * side.theta).abs()
        turned = off > 2.0**-18 * (1 + m) * side.theta.abs() + 16 * side.noise
        sized = logs.median(1).values.abs() > max(1e-3, 16 * side.radial)
        first = int((turned.any(1) | sized).int().argmax())
        m, logs, phases = m[first:], logs[first:], phases[first:]
        pair = int((m.diff(dim=0) == 1).int().argmax())  # neighbors, after which distances double
        if not first or side.sizes or len(m) < 6 or m[pair + 1] - m[pair] != 1:
            return
        steps = (m[pair + 1 :] - m[pair])[:, 0]
        theta = spectrum.refined(steps, phases[pair + 1 :] - phases[pair], side.noise)
        off = wrapped(phases - m * theta).abs() - 2.0**-16 * m * theta.abs()
        if off.max() > 0.01 or (logs - logs.median()).abs().max() > 0.01:
            return
    change, factor = (theta - side.theta).abs(), logs.median().exp()
    plane = int(change.argmax())
    others = float(change[plane] / side.theta[plane].abs()) > 1e-3
    if theta.abs().max() > 0.01 and (others or abs(float(factor) - 1) > 1e-3):
        facts = dict(begin=int(m[0]), plane=plane, new=theta[plane], old=side.theta[plane])
        variant = "frequencies" if others else "factor"
        yield finding("table-changes", variant, factor=factor, **facts)


def _differences(q: Measurement, k: Measurement) -> Iterator[Finding]:
    """Yield a fault for each property in which the rotations of q and k differ."""
    (planes, source), (others, sources) = (
        (side.structure.planes, side.structure.source) for side in (q, k)
    )
    common = (planes[:, None] == others).all(-1)  # [n_q, n_k]
    single = torch.cat((q.theta[~common.any(1)], k.theta[~common.any(0)])).abs()
    # One side may show more slow planes, because rounding hides them on the other side.
    if (single * q.angles.positions[-1] > 0.5).any():
        layouts = [f"{side.layout} over {side.width} coordinates" for side in (q, k)]
        yield finding("layouts-differ", query=layouts[0], key=layouts[1])
    elif source is not None and sources is not None and not source.equal(sources):
        yield finding("layouts-differ", query="permuted beforehand", key="permuted differently")
    theta_q, theta_k = q.theta[common.any(1)], k.theta[common.any(0)]
    slack = 2 * spectrum.rounding(theta_q.abs()) + 8 * max(q.noise / q.last, k.noise / k.last)
    excess = (theta_q - theta_k).abs() - slack
    if (excess > 0).any():
        if ((theta_q + theta_k).abs() <= slack).all():
            yield finding("directions-differ")
        worst = int(excess.argmax())
        rates = dict(query=abs(float(theta_q[worst])), key=abs(float(theta_k[worst])))
        yield finding("spectra-differ", plane=worst, **rates)
    if None not in (q.offset, k.offset) and q.offset != k.offset:
        yield finding("query-key-offset", query=q.offset, key=k.offset)


def _positions(measured: Measurement, which: int, probe: Probe) -> Iterator[Finding]:
    """Yield faults, the most specific first, if the angles are not proportional to the position."""
    name, m, phases = NAMES[which], measured.angles.positions, measured.angles.alpha.angle()
    size = measured.coordinates * measured.theta.abs()
    off = wrapped(phases - measured.coordinates * measured.theta).abs()
    # Angles in float32 have relative errors of a few 2^-24; in TF32 or narrower, 2^-12 and more.
    allowed = 2.0**-20 * size + 4 * measured.noise * (1 + m[:, None] / measured.last)
    wrong = (off > allowed).any(1)
    if not wrong.any() or measured.sizes:
        return
    first, multiples = int(wrong.nonzero()[0, 0]), measured.last > 1
    # Rounding a position, a frequency and their product to bfloat16 adds up to 3 times 2^-9.
    within_a_turn = size * 2.0**-7 < 1
    if multiples and ((off <= allowed + 2.0**-7 * size) | ~within_a_turn).all():
        facts = dict(begin=int(m[first]), off=float((off * within_a_turn).max()))
        yield finding("low-precision-angles", "positions", name=name, **facts)
    low, high = int(m[first - 1]), int(m[first])
    while high - low > 1 and multiples:
        middle = (low + high) // 2
        try:
            wrong_there = _is_wrong(middle, which, measured, probe)
        except CallError:  # the answers in a file don't cover this position
            break
        low, high = (low, middle) if wrong_there else (middle, high)
    beyond = phases[first:]
    if len(beyond) > 1 and wrapped(beyond - beyond[-1]).abs().max() < 8 * measured.noise:
        yield finding("clamped", name=name, begin=high)
    for lowest in (0, -high) if multiples else ():  # unsigned and signed types
        stored = (m - lowest) % (high - lowest) + lowest
        if (wrapped(phases - stored[:, None] * measured.theta).abs() <= allowed).all():
            yield finding("wraps", name=name, begin=high, lowest=lowest)
    yield finding("position-map", name=name, begin=high)


def _is_wrong(position: int, which: int, measured: Measurement, probe: Probe) -> bool:
    """Return True if any plane's angle at this position differs from position times theta."""
    ids = [0, position, *[0] * (len(SHORT) - 3), int(measured.angles.positions[-1])]
    y, (a, b) = probe(short_text(probe), ids)[which][0], measured.structure.planes.T
    z = torch.complex(y[:, :2, a], y[:, :2, b])  # [H, 2, n]
    off = wrapped((z[:, 1] * z[:, 0].conj()).sum(0).angle() - position * measured.theta)
    slack = 8 * measured.noise * (1 + position / measured.last) + 2.0**-20 * position
    return bool((off.abs() > slack).any())


def _frequencies(measured: Measurement, name: str, length_dependent: bool) -> Iterator[Finding]:
    """Yield a fault if the frequencies are rounded to 16 or 8 bits, differ from the expected
    spectrum, or, without an expected spectrum, match no known one.
    """
    (theta, slack), known, expected = measured.spectrum, measured.known, measured.expected_theta
    slack = slack + spectrum.rounding(theta)
    explained = known is not None and known[1] is not None
    sharp = slack < 2.0**-12 * theta  # by chance, one number in 16 is near an 8-bit number
    main = 1 if (measured.theta > 0).sum() >= (measured.theta < 0).sum() else -1
    whole = theta.clone()  # a plane that seems to rotate backward may rotate by over half a turn
    whole[measured.slots[measured.theta.sign() == -main]] *= -1
    whole = whole.where(whole >= 0, whole + 2 * torch.pi)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16):
        near = (whole - whole.to(dtype).double()).abs() <= slack
        if not explained and sharp.sum() > 3 and near[sharp].all():
            still = int((theta == 0).sum())
            facts = dict(name=name, dtype=plain(dtype), still=still)
            variant = "vanish" if still and dtype.itemsize == 1 else "frequencies"
            yield finding("low-precision-angles", variant, **facts)
    if expected is not None and len(expected) == len(theta):
        excess = (expected - theta).abs() - slack - spectrum.rounding(expected)
        worst = int(excess.argmax())
        if excess[worst] > 0:
            base, extension = known or (None, None)
            numbers = dict(measured=theta[worst], expected=expected[worst])
            formula = dict(base=base, extension=extension)
            twice = bool(((2 * expected - theta).abs() <= 2 * slack).all())
            variant = "twice" if twice else "named" if explained else "expected"
            yield finding("frequencies", variant, name=name, plane=worst, **numbers, **formula)
        else:
            yield from _drift(measured, name, expected)
        return
    if known is not None and known[1] is not None:
        reference = inverse_frequencies(2 * len(theta), known[0], extension=known[1])
        yield from _drift(measured, name, reference)
    # With at most four planes, one unscaled plane can't distinguish an extension from a fault.
    few = len(theta) <= 4 and theta[0] <= 1 + slack[0] and bool((theta.diff() <= 0).all())
    # Frequencies per pixel have no formula: they are evenly spaced, belong to several axes, or
    # rotate from the center of the image, where position 0 is negative.
    even = len(theta) > 2 and bool((whole.diff().diff().abs() <= 8 * slack[2:]).all())
    axes = measured.sizes or (measured.direction and spectrum.are_axes(theta, slack))
    pixels = axes or even or (measured.offset or 0) < 0
    unknown = (known is None and not few) or not measured.direction
    if unknown and not pixels and not length_dependent and measured.layout != "other":
        half = spectrum.name(theta / 2, slack)
        twice = half is not None and half[1] is not None and bool(theta[0] > 1)
        facts = dict(name=name, plane=0, measured=theta[0], expected=theta[0] / 2)
        yield finding("frequencies", "twice" if twice else "unknown", **facts)


def _drift(measured: Measurement, name: str, theta: Tensor) -> Iterator[Finding]:
    """Yield a fault if angles drift though they are exact: theta `[R/2]` is then a power of two."""
    m, theta = measured.angles.positions, theta[measured.slots] * measured.theta.sign()
    off = wrapped(measured.angles.alpha.angle() - m[:, None] * theta).abs()
    wrong = off > 2.0**-18 + 8 * measured.noise
    wrong &= theta.abs().frexp().mantissa == 0.5
    if measured.noise < 1e-5 and wrong.any() and not measured.sizes:
        facts = dict(begin=int(m[wrong.any(1)][0]), off=float((off * wrong).max()))
        yield finding("low-precision-angles", "drift", name=name, **facts)


def plain(dtype: torch.dtype) -> str:
    """Return the name of a dtype without the prefix "torch."."""
    return str(dtype).removeprefix("torch.")


def _narrow_inputs(probe: Probe, far: int) -> Iterator[Finding]:
    """Yield a fault for each narrower dtype in which q or k is rotated by different angles."""
    x = short_text(probe)
    ids = torch.tensor([min(m, far) for m in (3, 11, 263, 1021, 4093, 16381, far)])
    wide = probe(x, ids)
    for dtype in (torch.float32, torch.bfloat16):
        limits = torch.finfo(dtype)
        try:
            narrow = probe(x, ids, dtype) if limits.eps >= probe.eps else wide
        except CallError:
            continue
        for name, y, z in zip(NAMES, wide, narrow, strict=True):
            size, off = (entries.abs().amax(dim=(0, 1, 3)) for entries in (y, z - y))
            wrong = off > (16 * limits.eps + 2.0**-20 * ids) * size
            wrong &= (limits.tiny < size) & (size < limits.max)  # a decay may go out of range
            if wrong.any():
                facts = dict(dtype=plain(dtype), off=float(off.max()), begin=int(ids[wrong][0]))
                yield finding("low-precision-angles", "narrower", name=name, **facts)


def notes(q: Measurement, k: Measurement) -> Iterator[Finding]:
    """Yield a note on each property that is unusual but not wrong."""
    if q.direction == k.direction == -1:
        yield finding("direction")
    if q.offset is not None and q.offset == k.offset and q.offset:
        yield finding("first-position", offset=q.offset)
    if q.sizes:
        yield finding("axes", sizes=" × ".join(map(str, q.sizes)))
    yield from factors(q, k)
    if q.follows and k.follows:
        growth = (q.angles.radius[-1].log() / q.angles.positions[-1]).flatten()
        yield finding("decay", off=float(growth[growth.abs().argmax()]))
