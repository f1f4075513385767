"""Name the faults that explain the measurements. A cause is yielded before its consequences.

Shapes: n planes, P positions, R rotated width.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rope.config.models import LAYOUTS
from rope.diagnose.codes import Finding, finding, listed
from rope.diagnose.influence import NAMES, SHORT, CallError, Probe, difference, short_text
from rope.diagnose.measure import Measurement, are_axes, factors, offset, rounding
from rope.diagnose.planes import Structure, wrapped

#: Models that normalize queries and keys after the rotation, with a gain per coordinate.
NORM_LAST = ("hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text")


def structure_faults(structures: list[Structure], eps: float) -> Iterator[Finding]:
    """Yield a fault for each way in which q or k is not rotated in planes."""
    for structure in structures:
        fault, lone = partial(finding, name=structure.name), structure.lone.tolist()
        alpha, beta = structure.alpha, structure.beta
        # Intermediates in bfloat16 add up to 2^-8. A mean or size that depends on m adds more.
        mixed = structure.dense > max(structure.noise, 1e-3, 64 * eps)
        unlike = (mixed and not len(structure.tangled)) or structure.misfit > max(0.01, 4 * eps)
        off = max(structure.dense, structure.misfit, structure.bent)
        if unlike and structure.flat:
            yield fault("norm-after", "after", off=off)
        if len(structure.tangled):
            a, b = structure.tangled[[0, -1]].tolist()
            yield fault("pairing", a=a, b=b, off=structure.dense)
        # The structure was fitted to vectors of ±1, on which odd functions such as tanh are linear.
        if unlike or structure.bent > max(0.02, 8 * eps):
            yield fault("not-a-rotation", "mixed", off=off)
        if len(structure.planes):
            bent = beta.abs() / torch.hypot(alpha.abs(), beta.abs())
            # A later gain g gives [cos, −g sin; sin / g, cos], with determinant 1, equal diagonal.
            area = alpha.abs().square() - beta.abs().square() - 1
            ellipse = torch.maximum(beta.real.abs(), area.abs()).max() < 0.1 * bent.max()
            a, b = structure.planes[int(bent.amax(0).argmax())].tolist()
            if bent.max() > max(64 * structure.bent, 1e-5):
                kind = ("norm-after", "after") if ellipse else ("pairing",)
                yield fault(*kind, a=a, b=b, off=float(bent.max()))
        elif lone:
            yield fault("not-a-rotation", "alone", a=lone[0])
        if lone:
            yield fault("rest-changed", "position", a=lone[0])
    if not all(len(structure.planes) for structure in structures):
        yield finding("positions-ignored", "unseen")


def later_gains(structure: Structure) -> Tensor:
    """Return factors `[D]` that turn [cos, -r sin; sin / r, cos] in each plane into a rotation."""
    share = (structure.alpha.imag * structure.beta.imag).sum(0)
    share /= structure.alpha.imag.square().sum(0)
    factors = torch.ones(len(structure.rest) + 2 * len(structure.planes), dtype=torch.float64)
    factors[structure.planes[:, 1]] = ((1 - share) / (1 + share)).clamp(min=1e-6).sqrt()
    return factors


def norm_order(norm: Finding | None, structures: list[Structure], probe: Probe) -> Finding | None:
    """Return a finding if the norm is not on the same side of the rotation as in the model.

    norm: the finding on gains after the rotation, or None. Adds to `probe.missed` if it can't tell.
    """
    model_type = getattr(probe.expected, "model_type", None)
    last, known = model_type in NORM_LAST, model_type in LAYOUTS
    if norm is not None and not last:
        return norm if known else replace(norm, severity="note")
    for structure, linear in zip(structures, probe.linear, strict=True):
        if last and structure.uneven > 0.01 and not linear:
            return finding("norm-after", "before", name=structure.name, model_type=model_type)
    if norm is None and not all(probe.linear) and not (known and structures[0].uneven > 0.01):
        why = "which has no effect here" if known else "because no model_type was given"
        probe.missed.append(f"the order of norm and rotation, {why}")
    return None


def _width(measured: Measurement, name: str, expected: Any) -> Iterator[Finding]:
    """Yield a fault if more or fewer planes rotate than expected, or if their width differs."""
    (theta, slack), due, width = measured.spectrum, measured.expected_theta, measured.width
    few = due is not None and len(due) == len(theta) and ((theta == 0) & (due > 8 * slack)).any()
    if due is not None and (few or width != expected.dim):
        facts = dict(rotating=int((theta > 0).sum()), planes=int((due > 0).sum()), name=name)
        variant = "spread" if facts["rotating"] == facts["planes"] else "planes"
        yield finding("width", variant, measured=width, expected=expected.dim, **facts)


def rotation_faults(probe: Probe, q: Measurement, k: Measurement) -> Iterator[Finding]:
    """Yield the faults in the rotations of q and k."""
    expected = probe.expected
    for name, measured in zip(NAMES, (q, k), strict=True):
        if measured.rough >= 0.3:  # too rough for a rotation: even with 8-bit tables, it's 0.2
            yield from _width(measured, name, expected)
            radius = measured.structure.radius  # [P, H, n]
            plane = int((radius.log().amax((0, 1)) - radius.log().amin((0, 1))).argmax())
            a, b = measured.structure.planes[plane].tolist()
            low, high = radius[..., plane].aminmax()
            yield finding("not-a-rotation", "sizes", name=name, a=a, b=b, low=low, high=high)
    yield from _differences(q, k)
    yield from _narrow_inputs(probe)
    again = probe(short_text(probe), SHORT)
    if fault := difference(probe, probe.first, again, "stateful", "later"):
        yield fault
    fixed = expected is not None and not expected.extension.length_dependent
    if probe.length_change and (fixed or (probe.cache and probe.keys_change)):
        yield finding("length-dependent", off=probe.length_change)
    for which, measured in enumerate((q, k)):
        yield from _side_faults(probe, measured, which)
    if expected is not None and q.direction == k.direction == -1:
        yield replace(finding("direction"), severity="fault")
    if expected is not None and all(probe.linear) and None not in (q.scaling, k.scaling):
        scaling = expected.extension.attention_scaling
        # Scores depend only on the product, and a query may also contain the scale 1/sqrt(D).
        product = q.scaling * k.scaling / scaling**2  # type: ignore[operator]
        if min(abs(product - 1), abs(product * probe.head_dim**0.5 - 1)) > max(1e-3, 4 * probe.eps):
            yield finding("attention-scaling", query=q.scaling, key=k.scaling, expected=scaling)
    yield from (factor for factor in factors(q, k) if factor.code == "not-relative")
    for dtype, returned in probe.returned.items():
        if returned != dtype:
            yield finding("dtype-changed", dtype=plain(dtype), returned=plain(returned))


def _side_faults(probe: Probe, measured: Measurement, which: int) -> Iterator[Finding]:
    """Yield the faults in the rotation of one tensor: q if `which` is 0, k if `which` is 1."""
    name, expected = NAMES[which], probe.expected
    yield from _positions(measured, which, probe)
    if measured.radial >= max(1e-5, 8 * probe.eps):
        yield finding("low-precision-tables", name=name, off=measured.radial)
    yield from _rounded_frequencies(measured, name)
    yield from _width(measured, name, expected)
    if expected is not None:
        layout = "interleaved" if expected.interleaved else "half"
        if measured.layout != layout and expected.dim > 2:
            yield finding("layout", name=name, measured=measured.layout, expected=layout)
    yield from _frequencies(measured, name, probe.length_change > 0)
    # Coordinates beyond the planes must stay unchanged, or be scaled like all other coordinates.
    rest, scaling = measured.structure.rest_gain, measured.scaling
    if all(probe.linear) and scaling is not None and rest is not None and len(rest):
        median = float(rest.median()) or 1.0
        common = median if expected is None else scaling / expected.extension.attention_scaling
        off, index = torch.stack([(rest - x).abs() for x in (1, scaling, common)]).amin(0).max(0)
        if off > max(1e-3, measured.structure.noise):
            a = int(measured.structure.rest[index])
            yield finding("rest-changed", "factor", name=name, a=a, factor=rest[index])


def _differences(q: Measurement, k: Measurement) -> Iterator[Finding]:
    """Yield a fault for each property in which the rotations of q and k differ."""
    planes, others = (side.structure.planes for side in (q, k))
    source, other = (side.structure.source for side in (q, k))
    common = (planes[:, None] == others).all(-1)  # [n_q, n_k]
    single = torch.cat((q.theta[~common.any(1)], k.theta[~common.any(0)])).abs()
    # One side may show more slow planes, because rounding hides them on the other side.
    if (single * q.structure.positions[-1] > 0.5).any():
        layouts = [f"{side.layout} over {side.width} coordinates" for side in (q, k)]
        yield finding("layouts-differ", query=layouts[0], key=layouts[1])
    elif source is not None and other is not None and not source.equal(other):
        yield finding("layouts-differ", query="permuted beforehand", key="permuted differently")
    theta_q, theta_k = q.theta[common.any(1)], k.theta[common.any(0)]
    slack = 2 * rounding(theta_q.abs()) + 8 * max(q.noise / q.last, k.noise / k.last)
    excess = (theta_q - theta_k).abs() - slack
    if (excess > 0).any():
        if ((theta_q + theta_k).abs() <= slack).all():
            yield finding("directions-differ")
        for i, (twice, once) in enumerate(((theta_q, theta_k), (theta_k, theta_q))):
            if ((twice - 2 * once).abs() <= 4 * slack).all():
                yield finding("rotated-twice", name=NAMES[i], other=NAMES[1 - i])
        worst = int(excess.argmax())
        of_q, of_k = theta_q[worst].abs(), theta_k[worst].abs()
        yield finding("spectra-differ", plane=worst, query=of_q, key=of_k)
    if None in (q.offset, k.offset):
        yield from _shifted(q, k)
    elif q.offset != k.offset:
        yield finding("query-key-offset", "all", query=q.offset, key=k.offset)


def _shifted(q: Measurement, k: Measurement) -> Iterator[Finding]:
    """Yield a fault if the angles of q and k at position 0 differ in some heads or planes."""
    (i, j), at_q = (q.structure.planes[:, None] == k.structure.planes).all(-1).nonzero().T, None
    if q.structure.start is not None and k.structure.start is not None:
        at_q, at_k = q.structure.start[:, i], k.structure.start[:, j]
        at_key = at_k.repeat_interleave(max(1, len(at_q) // len(at_k)), 0)[: len(at_q)]
    tolerance = q.structure.start_tolerance + k.structure.start_tolerance
    if at_q is None or (wrapped(at_q[: len(at_key)] - at_key).abs() <= tolerance).all():
        return  # no score changes
    which, theta, common = int(q.offset is not None), q.theta[i], q.offset or k.offset or 0.0
    ahead = wrapped((at_q, at_k)[which] - common * theta)  # [H, n]
    off = ahead.abs() > tolerance
    cells = replace(q.structure, start=ahead[off][None], start_tolerance=tolerance)
    by, heads = offset(cells, theta.expand_as(ahead)[off]), off.any(1)
    where = [] if heads.all() else [listed("head", heads.nonzero())]
    if by is None or (wrapped(ahead - by * theta)[heads].abs() > tolerance).any():
        where.append(listed("plane", q.slots[i][off.any(0)]))
    if by is not None or tolerance < 0.05:
        facts = dict(by=common + (by or 0), common=common, off=float(ahead.abs().max()))
        place, variant = " and ".join(where), "angles" if by is None else "parts"
        yield finding("query-key-offset", variant, where=place, name=NAMES[which], **facts)


def _positions(measured: Measurement, which: int, probe: Probe) -> Iterator[Finding]:
    """Yield faults, the most specific first, if the angles are not proportional to the position."""
    name, m, phases = NAMES[which], measured.structure.positions, measured.structure.alpha.angle()
    # If theta is 1, the angles are exact, so only cos and sin can be off, as with fast intrinsics.
    exact = (measured.slots == 0) & ((measured.theta.abs() - 1).abs() < 1e-6)
    exact &= measured.noise < 1e-5
    theta = torch.where(exact, measured.theta.round(), measured.theta)
    size = m[:, None] * theta.abs()
    off = wrapped(phases - m[:, None] * theta).abs()
    # Relative errors of angles are a few 2^-24 in float32, but 2^-12 or more in TF32 or narrower.
    allowed = 2.0**-20 * size + 4 * measured.noise * (1 + m[:, None] / measured.last)
    allowed = torch.where(exact, 2.0**-18 + 8 * measured.noise, allowed)
    wrong = (off > allowed).any(1)
    if not wrong.any():
        return
    first, multiples = int(wrong.nonzero()[0, 0]), measured.last > 1
    # Rounding a position, a frequency, and their product to bfloat16 adds up to 3 times 2^-9.
    within_a_turn = size * 2.0**-7 < 1
    if multiples and ((off <= allowed + 2.0**-7 * size) | ~within_a_turn).all():
        worst = (off * (within_a_turn | exact)).max()
        yield finding("low-precision-angles", "positions", name=name, begin=m[first], off=worst)
    low, high = int(m[first - 1]), int(m[first])
    a, b = measured.structure.planes.T  # [n]
    while high - low > 1 and multiples:
        middle = (low + high) // 2
        ids = [0, middle, *[0] * (len(SHORT) - 3), int(m[-1])]
        try:
            y = probe(short_text(probe), ids)[which][0]
        except CallError:  # the answers in a file don't cover this position
            break
        z = torch.complex(y[:, :2, a], y[:, :2, b])  # [H, 2, n]
        turn = (z[:, 1] * z[:, 0].conj()).sum(0).angle()
        limit = 8 * measured.noise * (1 + middle / measured.last) + 2.0**-20 * middle
        right = (wrapped(turn - middle * theta).abs() <= limit).all()
        low, high = (middle, high) if right else (low, middle)
    beyond = phases[first:]
    if len(beyond) > 1 and wrapped(beyond - beyond[-1]).abs().max() < 8 * measured.noise:
        yield finding("clamped", name=name, begin=high)
    for lowest in (0, -high) if multiples else ():  # an unsigned type, then a signed one
        stored = (m - lowest) % (high - lowest) + lowest
        if (wrapped(phases - stored[:, None] * theta).abs() <= allowed).all():
            yield finding("wraps", name=name, begin=high, lowest=lowest)
    after = (m.diff() == 1) & (m[:-1] >= high)
    rates, slack = wrapped(phases.diff(dim=0))[after], allowed[1:][after]
    if len(rates) > 2 and ((rates - rates[0]).abs() <= slack).all():
        change = (rates[0] - theta).abs()
        plane = int(change.argmax())
        if rates[0].abs().max() > 0.01 and change[plane] > 2 * slack.max():
            facts = dict(plane=plane, new=rates[0, plane], old=theta[plane])
            yield finding("table-changes", name=name, begin=high, **facts)
    yield finding("position-map", name=name, begin=high)


def _whole(measured: Measurement) -> Tensor:
    """Return the frequencies `[R/2]`; restore frequencies above half a turn per position."""
    theta = measured.spectrum[0].clone()
    main = 1 if (measured.theta > 0).sum() >= (measured.theta < 0).sum() else -1
    theta[measured.slots[measured.theta.sign() == -main]] *= -1  # only seems to rotate backward
    return theta.where(theta >= 0, theta + 2 * torch.pi)


def _rounded_frequencies(measured: Measurement, name: str) -> Iterator[Finding]:
    """Yield a fault if the frequencies are rounded to 8 or 16 bits."""
    (theta, slack), whole = measured.spectrum, _whole(measured)
    slack = slack + rounding(theta)
    sharp = slack < 2.0**-12 * theta  # by chance, one number in 16 is near an 8-bit number
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16):
        near = (whole - whole.to(dtype).double()).abs() <= slack
        explained = measured.known is not None and measured.known[1] is not None
        if not explained and sharp.sum() > 3 and near[sharp].all():
            yield finding("low-precision-angles", "frequencies", name=name, dtype=plain(dtype))


def _frequencies(measured: Measurement, name: str, length_dependent: bool) -> Iterator[Finding]:
    """Yield a fault if the frequencies differ from the expected ones, or have no known base."""
    (theta, slack), known, expected = measured.spectrum, measured.known, measured.expected_theta
    slack, whole = slack + rounding(theta), _whole(measured)
    if expected is not None and len(expected) == len(theta):
        excess = (expected - theta).abs() - slack - rounding(expected)
        worst = int(excess.argmax())
        if excess[worst] > 0:
            ratio = (whole / expected)[expected > 0]
            if ((ratio - ratio[-1]).abs() < 1e-3 * ratio[-1]).all():
                facts = dict(factor=ratio[-1], scaling=measured.scaling or 1.0)
                yield finding("frequencies", "multiple", name=name, **facts)
            numbers = dict(measured=theta[worst], expected=expected[worst])
            yield finding("frequencies", "expected", name=name, plane=worst, **numbers)
        return
    # With at most four planes, one unscaled plane can't distinguish an extension from a fault.
    few = len(theta) <= 4 and theta[0] <= 1 + slack[0] and bool((theta.diff() <= 0).all())
    # Frequencies per pixel have no formula: they are evenly spaced, belong to several axes, or
    # rotate from the center of the image, where position 0 is negative.
    even = len(theta) > 2 and bool((whole.diff().diff().abs() <= 8 * slack[2:]).all())
    axes = measured.direction and are_axes(theta, slack)
    pixels = axes or even or (measured.offset or 0) < 0
    unknown = (known is None and not few) or not measured.direction
    if unknown and not pixels and not length_dependent and measured.layout != "other":
        yield finding("frequencies", "unknown", name=name, measured=theta[0])


def plain(dtype: torch.dtype) -> str:
    """Return the name of a dtype without the prefix "torch."."""
    return str(dtype).removeprefix("torch.")


def _narrow_inputs(probe: Probe) -> Iterator[Finding]:
    """Yield a fault for each narrower dtype in which q or k is rotated by different angles."""
    x, far = short_text(probe), probe.far
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
    yield from factors(q, k)
    if q.follows and k.follows:
        growth = (q.structure.radius[-1].log() / q.structure.positions[-1]).flatten()
        yield finding("decay", off=float(growth[growth.abs().argmax()]))
