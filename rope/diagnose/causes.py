"""From measurements to causes, in an order in which a cause comes before its consequences.

Shapes: n planes, P positions, R rotated width.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rope.diagnose import spectrum
from rope.diagnose.influence import NAMES, SHORT, Influence, differing, short_text
from rope.diagnose.measure import Measured, factors
from rope.diagnose.planes import Structure, Turns, wrapped
from rope.diagnose.probe import Probe, Refusal
from rope.diagnose.report import Finding, finding


def of_structure(structures: list[Structure], turns: list[Turns], eps: float) -> Iterator[Finding]:
    """Whether planes are turned at all."""
    for name, structure, turn in zip(NAMES, structures, turns, strict=True):
        # Roundings to bfloat16 on the way come to 2^-8; a mean or size that depends on m to more.
        mixed = structure.dense > max(structure.noise, 1e-3, 64 * eps)
        if (mixed and not len(structure.tangled)) or structure.misfit > max(0.01, 4 * eps):
            yield finding("norm-after", name=name, off=max(structure.dense, structure.misfit))
        if len(structure.tangled):
            a, b = int(structure.tangled[0]), int(structure.tangled[-1])
            yield finding("pairing", name=name, a=a, b=b, off=structure.dense)
        if len(structure.planes):
            bent = turn.beta.abs() / torch.hypot(turn.alpha.abs(), turn.beta.abs())
            # A gain after it makes (cos, −g sin; sin / g, cos): determinant 1, diagonal equal.
            area = turn.alpha.abs().square() - turn.beta.abs().square() - 1
            ellipse = torch.maximum(turn.beta.real.abs(), area.abs()).max() < 0.1 * bent.max()
            a, b = structure.planes[int(bent.amax(0).argmax())].tolist()
            if bent.max() > max(64 * turn.misfit, 1e-5):
                code = "norm-after" if ellipse else "pairing"
                yield finding(code, name=name, a=a, b=b, off=float(bent.max()))
        if len(structure.lone):
            yield finding("rest-changed", "position", name=name, a=int(structure.lone[0]))
    if not all(len(structure.planes) for structure in structures):
        yield finding("positions-ignored", "unseen")


def in_order(
    probe: Probe,
    influence: Influence,
    q: Measured,
    k: Measured,
    expected: Any,
    expected_theta: Tensor | None,
) -> Iterator[Finding]:
    """What is wrong with two rotations; expected_theta: the frequencies of the one expected."""
    yield from _pair(q, k)
    yield from _dtypes(probe, influence.far)
    assert influence.first is not None
    again = probe(short_text(probe), SHORT)
    if fault := differing(probe, influence.first, again, "later"):
        yield fault
    fixed = expected is not None and not expected.extension.length_dependent
    if influence.moved and (fixed or (influence.cache and influence.kept)):
        yield influence.length_dependence()
    for which, measured in enumerate((q, k)):
        yield from _alone(probe, influence, measured, which, expected, expected_theta)
    if expected is not None and all(influence.linear) and None not in (q.scaling, k.scaling):
        scaling = expected.extension.attention_scaling
        # Scores see the product; a query may carry the attention's 1/sqrt(D) besides.
        product = q.scaling * k.scaling / scaling**2  # type: ignore[operator]
        if min(abs(product - 1), abs(product * probe.head_dim**0.5 - 1)) > max(1e-3, 4 * probe.eps):
            yield finding("attention-scaling", query=q.scaling, key=k.scaling, expected=scaling)
    by_position = list(factors(q, k))
    yield from (factor for factor in by_position if factor.code == "not-relative")
    yield from _scores(probe, influence.far, bool(by_position))
    for dtype, returned in probe.returned.items():
        if returned != dtype:
            yield finding("dtype-changed", dtype=plain(dtype), returned=plain(returned))


def _alone(
    probe: Probe,
    influence: Influence,
    measured: Measured,
    which: int,
    expected: Any,
    expected_theta: Tensor | None,
) -> Iterator[Finding]:
    """What is wrong with one of them."""
    name = NAMES[which]
    yield from _positions(measured, which, probe)
    if measured.radial >= max(1e-5, 8 * probe.eps):
        yield finding("low-precision-tables", name=name, off=measured.radial)
    if expected is not None:
        layout = "interleaved" if expected.interleaved else "half"
        if measured.width != expected.dim:
            yield finding("width", name=name, measured=measured.width, expected=expected.dim)
        if measured.layout != layout and expected.dim > 2:
            yield finding("layout", name=name, measured=measured.paired, expected=layout)
    yield from _spectrum(measured, name, expected_theta, influence.moved > 0)
    # Coordinates beyond the planes come out as they went in, or scaled alike, as all are.
    rest, scaling = measured.structure.rest_gain, measured.scaling
    if all(influence.linear) and scaling is not None and rest is not None and len(rest):
        if expected is None:
            alike = float(rest.median()) or 1.0
        else:
            alike = scaling / expected.extension.attention_scaling
        allowed = torch.tensor([1.0, scaling, alike], dtype=torch.float64)
        off, index = (rest - allowed[:, None]).abs().amin(0).max(dim=0)
        if off > max(1e-3, measured.structure.noise):
            a = int(measured.structure.rest[index])
            yield finding("rest-changed", "factor", name=name, a=a, factor=rest[index])


def _pair(q: Measured, k: Measured) -> Iterator[Finding]:
    """What must be alike in q and k."""
    (planes, source), (others, sources) = (
        (side.structure.planes, side.structure.source) for side in (q, k)
    )
    common = (planes[:, None] == others).all(-1)  # [n_q, n_k]
    alone = torch.cat((q.theta[~common.any(1)], k.theta[~common.any(0)])).abs()
    # One may have slow planes more, which the other's roundings hide.
    if (alone * q.turns.positions[-1] > 0.5).any():
        yield finding("layouts-differ", query=q.paired, key=k.paired)
    elif source is not None and sources is not None and not source.equal(sources):
        yield finding("layouts-differ", query="permuted on the way", key="otherwise")
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


def _positions(measured: Measured, which: int, probe: Probe) -> Iterator[Finding]:
    """Whether angles are multiples of the position."""
    name, m = NAMES[which], measured.turns.positions
    size, off = m[:, None] * measured.theta.abs(), measured.off.abs()
    wrong = (off > measured.allowed).any(1)
    if not wrong.any():
        return
    first, multiples = int(wrong.nonzero()[0, 0]), measured.last > 1
    # A position, a frequency and a product, each rounded to bfloat16, come to 3 of 2^-9.
    within_a_turn = size * 2.0**-7 < 1
    if multiples and ((off <= measured.allowed + 2.0**-7 * size) | ~within_a_turn).all():
        facts = dict(begin=int(m[first]), off=float((off * within_a_turn).max()))
        yield finding("low-precision-angles", "positions", name=name, **facts)
    low, high = int(m[first - 1]), int(m[first])
    while high - low > 1 and multiples:
        middle = (low + high) // 2
        try:
            wrong_there = _is_wrong(middle, which, measured, probe)
        except Refusal:  # of what was not asked beforehand
            break
        low, high = (low, middle) if wrong_there else (middle, high)
    phases = measured.turns.alpha.angle()
    beyond = phases[first:]
    if len(beyond) > 1 and wrapped(beyond - beyond[-1]).abs().max() < 8 * measured.noise:
        yield finding("clamped", name=name, begin=high)
    for lowest in (0, -high) if multiples else ():  # a type without a sign, and one with it
        taken = (m - lowest) % (high - lowest) + lowest
        if (wrapped(phases - taken[:, None] * measured.theta).abs() <= measured.allowed).all():
            yield finding("wraps", name=name, begin=high, lowest=lowest)
    yield finding("position-map", name=name, begin=high)


def _is_wrong(position: int, which: int, measured: Measured, probe: Probe) -> bool:
    """Whether some angle at one position is not that of the position."""
    ids = [0, position, *[0] * (len(SHORT) - 3), int(measured.turns.positions[-1])]
    y, (a, b) = probe(short_text(probe), ids)[which][0], measured.structure.planes.T
    z = torch.complex(y[:, :2, a], y[:, :2, b])  # [H, 2, n]
    off = wrapped((z[:, 1] * z[:, 0].conj()).sum(0).angle() - position * measured.theta)
    slack = 8 * measured.noise * (1 + position / measured.last) + 2.0**-20 * position
    return bool((off.abs() > slack).any())


def _spectrum(
    measured: Measured, name: str, expected_theta: Tensor | None, follows: bool
) -> Iterator[Finding]:
    """Whether the frequencies are those expected, or else of a known kind."""
    (theta, slack), known = measured.spectrum, measured.known
    slack = slack + spectrum.rounding(theta)
    sharp = slack < 2.0**-12 * theta  # by chance, one in sixteen is near a number of 8 bits
    for dtype in (torch.bfloat16, torch.float16):
        near = (theta - theta.to(dtype).double()).abs() <= slack
        if (known is None or known[1] is None) and sharp.sum() > 3 and near[sharp].all():
            yield finding("low-precision-angles", "frequencies", name=name, dtype=plain(dtype))
    if expected_theta is not None and len(expected_theta) == len(theta):
        excess = (expected_theta - theta).abs() - slack - spectrum.rounding(expected_theta)
        worst = int(excess.argmax())
        if excess[worst] > 0:
            facts = dict(measured=theta[worst], expected=expected_theta[worst], known=known)
            variant = "named" if known else "expected"
            yield finding("frequencies", variant, name=name, plane=worst, **facts)
        return
    # One kept plane of four or fewer leaves too much open to tell a change from a fault.
    few = len(theta) <= 4 and theta[0] <= 1 + slack[0] and bool((theta.diff() <= 0).all())
    strange = (known is None and not few) or not measured.direction
    if strange and not follows and measured.layout != "other":
        yield finding("frequencies", "unknown", name=name, measured=theta[0])


def plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtypes(probe: Probe, far: int) -> Iterator[Finding]:
    """The same vectors in float32 and bfloat16: their angles must stay."""
    x = short_text(probe)
    ids = torch.tensor([min(m, far) for m in (3, 11, 263, 1021, 4093, 16381, far)])
    wide = probe(x, ids)
    for dtype in (torch.float32, torch.bfloat16):
        limits = torch.finfo(dtype)
        try:
            narrow = probe(x, ids, dtype) if limits.eps >= probe.eps else wide
        except Refusal:
            continue
        for name, y, z in zip(NAMES, wide, narrow, strict=True):
            size, off = (entries.abs().amax(dim=(0, 1, 3)) for entries in (y, z - y))
            wrong = off > (16 * limits.eps + 2.0**-20 * ids) * size
            wrong &= (limits.tiny < size) & (size < limits.max)  # a decay may leave it
            if wrong.any():
                facts = dict(dtype=plain(dtype), off=float(off.max()), begin=int(ids[wrong][0]))
                yield finding("low-precision-angles", "narrower", name=name, **facts)


def _scores(probe: Probe, far: int, tempered: bool) -> Iterator[Finding]:
    """Scores before and after all positions move: what all this is about."""
    x, by, scores, sizes = probe.vectors(len(SHORT), seed=3), min(777, far - max(SHORT) - 1), [], []
    for shift in (0, by):
        q, k = (y[0, 0, :-1] for y in probe(x, [*(m + shift for m in SHORT[:-1]), far]))
        row = (q @ k.T).norm(dim=1, keepdim=True) if tempered else 1.0
        scores.append(q @ k.T / row)
        sizes.append(q.norm(dim=-1)[:, None] * k.norm(dim=-1) / row)
    off = float(((scores[1] - scores[0]).abs() / torch.maximum(*sizes)).max())
    if off > max(1e-3, 8 * probe.eps):
        yield finding("not-relative", off=off, by=by)


def notes(q: Measured, k: Measured) -> Iterator[Finding]:
    """What is unusual and right."""
    if q.direction == k.direction == -1:
        yield finding("direction")
    if q.offset is not None and q.offset == k.offset and q.offset:
        yield finding("first-position", offset=q.offset)
    yield from factors(q, k)
    if q.follows and k.follows:
        growth = (q.turns.radius[-1].log() / q.turns.positions[-1]).flatten()
        yield finding("decay", off=float(growth[growth.abs().argmax()]))
