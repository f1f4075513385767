"""From measurements to causes, in an order in which a cause comes before its consequences.

Shapes: n planes, P positions, R rotated width.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rope.diagnose import spectrum
from rope.diagnose.influence import NAMES, SHORT, Influence, Said, differing, short_text
from rope.diagnose.measure import Measured, factors
from rope.diagnose.planes import Structure, Turns, wrapped
from rope.diagnose.probe import Probe, Refusal
from rope.frequencies import inverse_frequencies


def of_structure(found: list[Structure], turns: list[Turns], eps: float) -> Iterator[Said]:
    """Whether planes are turned at all."""
    for name, each, turn in zip(NAMES, found, turns, strict=True):
        # Roundings to bfloat16 on the way come to 2^-8; a mean or size that depends on m to more.
        mixed = each.dense > max(each.noise, 1e-3, 64 * eps) and not len(each.tangled)
        if mixed or each.misfit > max(0.01, 4 * eps):
            yield "norm-after", dict(name=name, off=max(each.dense, each.misfit))
        if len(each.tangled):
            a, b = int(each.tangled[0]), int(each.tangled[-1])
            yield "pairing", dict(name=name, a=a, b=b, off=each.dense)
        if len(each.planes):
            bent = turn.beta.abs() / torch.hypot(turn.alpha.abs(), turn.beta.abs())
            # A gain after it makes (cos, −g sin; sin / g, cos): determinant 1, diagonal equal.
            area = turn.alpha.abs().square() - turn.beta.abs().square() - 1
            ellipse = torch.maximum(turn.beta.real.abs(), area.abs()).max() < 0.1 * bent.max()
            a, b = each.planes[int(bent.amax(0).argmax())].tolist()
            if bent.max() > max(64 * turn.misfit, 1e-5):
                measured = dict(name=name, a=a, b=b, off=float(bent.max()))
                yield "norm-after" if ellipse else "pairing", measured
        if len(each.lone):
            a, how = int(each.lone[0]), "changes with the position"
            yield "rest-changed", dict(name=name, a=a, how=how)
    if not all(len(each.planes) for each in found):
        yield "positions-ignored", dict(name="rotation", how="is of no plane that can be seen")


def in_order(
    probe: Probe, influence: Influence, q: Measured, k: Measured, expected: Any, made: Tensor | None
) -> Iterator[Said]:
    """What is wrong with two rotations; made: the frequencies expected."""
    yield from _pair(q, k)
    yield from _dtypes(probe, influence.far)
    assert influence.first is not None
    again = probe(short_text(probe), SHORT)  # the first call once more, after longer ones
    if said := differing(probe, influence.first, again, "after longer calls"):
        yield said
    fixed = expected is not None and not expected.extension.length_dependent
    if influence.moved and (fixed or (influence.cache and influence.cached)):
        yield "length-dependent", dict(off=influence.moved, cached=influence.cached)
    for which, found in enumerate((q, k)):
        for code, numbers in _alone(probe, influence, found, which, expected, made):
            yield code, dict(name=NAMES[which], **numbers)
    if expected is not None and all(influence.linear) and None not in (q.scaling, k.scaling):
        right = expected.extension.attention_scaling
        # Scores see the product; a query may carry the attention's 1/sqrt(D) besides.
        product = q.scaling * k.scaling / right**2  # type: ignore[operator]
        if min(abs(product - 1), abs(product * probe.head_dim**0.5 - 1)) > max(1e-3, 4 * probe.eps):
            yield "attention-scaling", dict(one=q.scaling, other=k.scaling, right=right)
    tempered = dict(factors(q, k))
    yield from ((code, numbers) for code, numbers in tempered.items() if code == "not-relative")
    yield from _scores(probe, influence.far, bool(tempered))
    for given, back in probe.returned.items():
        if back != given:
            yield "dtype-changed", dict(one=plain(given), other=plain(back))


def _alone(
    probe: Probe,
    influence: Influence,
    found: Measured,
    which: int,
    expected: Any,
    made: Tensor | None,
) -> Iterator[Said]:
    """What is wrong with one of them."""
    yield from _positions(found, which, probe)
    if found.radial >= max(1e-5, 8 * probe.eps):
        yield "low-precision-tables", dict(off=found.radial)
    if expected is not None:
        layout = "interleaved" if expected.interleaved else "half"
        if found.width != expected.dim:
            yield "width", dict(one=found.width, other=expected.dim)
        if found.layout != layout and expected.dim > 2:
            yield "layout", dict(one=found.paired, other=layout)
    yield from _spectrum(found, made, influence.moved > 0)
    # Coordinates beyond the planes come out as they went in, or scaled alike, as all are.
    rest, factor = found.structure.rest_gain, found.scaling
    if all(influence.linear) and factor is not None and rest is not None and len(rest):
        if expected is None:
            alike = float(rest.median()) or 1.0
        else:
            alike = factor / expected.extension.attention_scaling
        allowed = torch.tensor([1.0, factor, alike], dtype=torch.float64)
        off, index = (rest - allowed[:, None]).abs().amin(0).max(dim=0)
        if off > max(1e-3, found.structure.noise):
            how = f"comes out multiplied by {rest[index]:.4g}"
            yield "rest-changed", dict(a=int(found.structure.rest[index]), how=how)


def _pair(q: Measured, k: Measured) -> Iterator[Said]:
    """What must be alike in q and k."""
    (planes, source), (others, sources) = (
        (each.structure.planes, each.structure.source) for each in (q, k)
    )
    common = (planes[:, None] == others).all(-1)  # [n_q, n_k]
    alone = torch.cat((q.theta[~common.any(1)], k.theta[~common.any(0)])).abs()
    # One may have slow planes more, which the other's roundings hide.
    if (alone * q.turns.positions[-1] > 0.5).any():
        yield "layouts-differ", dict(one=q.paired, other=k.paired)
    elif source is not None and sources is not None and not source.equal(sources):
        yield "layouts-differ", dict(one="permuted on the way", other="otherwise")
    one, other = q.theta[common.any(1)], k.theta[common.any(0)]
    slack = 2 * spectrum.rounding(one.abs()) + 8 * max(q.noise / q.last, k.noise / k.last)
    if ((one - other).abs() > slack).any():
        if ((one + other).abs() <= slack).all():
            yield "directions-differ", {}
        worst = int(((one - other).abs() - slack).argmax())
        rates = dict(one=abs(float(one[worst])), other=abs(float(other[worst])))
        yield "spectra-differ", dict(plane=worst, **rates)
    if None not in (q.offset, k.offset) and q.offset != k.offset:
        yield "query-key-offset", dict(one=q.offset, other=k.offset)


def _positions(found: Measured, which: int, probe: Probe) -> Iterator[Said]:
    """Whether angles are multiples of the position."""
    m, size = found.turns.positions, found.turns.positions[:, None] * found.theta.abs()
    wrong = (found.off.abs() > found.allowed).any(1)
    if not wrong.any():
        return
    first, multiples = int(wrong.nonzero()[0, 0]), found.last > 1
    # A position, a frequency and a product, each rounded to bfloat16, come to 3 of 2^-9.
    told = size * 2.0**-7 < 1
    if multiples and ((found.off.abs() <= found.allowed + 2.0**-7 * size) | ~told).all():
        off = float((found.off.abs() * told).max())
        how = f"is turned by rounded angles, from position {int(m[first])} on, off by {off:.2g}"
        yield "low-precision-angles", dict(how=how)
    low, high = int(m[first - 1]), int(m[first])
    while high - low > 1 and multiples:
        middle = (low + high) // 2
        low, high = (low, middle) if _is_wrong(middle, which, found, probe) else (middle, high)
    phases = found.turns.alpha.angle()
    beyond = phases[first:]
    if len(beyond) > 1 and wrapped(beyond - beyond[-1]).abs().max() < 8 * found.noise:
        yield "clamped", dict(begin=high)
    for lowest in (0, -high) if multiples else ():  # a type without a sign, and one with it
        taken = (m - lowest) % (high - lowest) + lowest
        if (wrapped(phases - taken[:, None] * found.theta).abs() <= found.allowed).all():
            yield "wraps", dict(begin=high, lowest=lowest)
    yield "position-map", dict(begin=high)


def _is_wrong(position: int, which: int, found: Measured, probe: Probe) -> bool:
    """Whether some angle at one position is not that of the position."""
    ids = [0, position, *[0] * (len(SHORT) - 3), int(found.turns.positions[-1])]
    y, (a, b) = probe(short_text(probe), ids)[which][0], found.structure.planes.T
    z = torch.complex(y[:, :2, a], y[:, :2, b])  # [H, 2, n]
    off = wrapped((z[:, 1] * z[:, 0].conj()).sum(0).angle() - position * found.theta)
    slack = 8 * found.noise * (1 + position / found.last) + 2.0**-20 * position
    return bool((off.abs() > slack).any())


def _spectrum(found: Measured, made: Tensor | None, follows: bool) -> Iterator[Said]:
    """Whether the frequencies are those expected, or else of a known kind."""
    (theta, slack), known = found.spectrum, found.known
    slack = slack + spectrum.rounding(theta)
    sharp = slack < 2.0**-12 * theta  # by chance, one in sixteen is near a number of 8 bits
    for dtype in (torch.bfloat16, torch.float16):
        near = (theta - theta.to(dtype).double()).abs() <= slack
        if (known is None or known[1] is None) and sharp.sum() > 3 and near[sharp].all():
            yield "low-precision-angles", dict(how=f"has frequencies rounded to {plain(dtype)}")
    if made is not None and len(made) == len(theta):
        off, worst = ((made - theta).abs() - slack - spectrum.rounding(made)).max(dim=0)
        kind = f", as of base {known[0]:.6g} and {known[1]}" if known else ""
        other = f"not {made[worst]:.6g}{kind}"
        if off > 0:
            yield "frequencies", dict(plane=int(worst), one=float(theta[worst]), other=other)
        return
    # One kept plane of four or fewer leaves too much open to tell a change from a fault.
    few = len(theta) <= 4 and theta[0] <= 1 + slack[0] and bool((theta.diff() <= 0).all())
    strange = (known is None and not few) or not found.direction
    if strange and not follows and found.layout != "other":
        other = "and all are neither a ladder from at most 1 nor a known change of one"
        yield "frequencies", dict(plane=0, one=float(theta[0]), other=other)


def plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtypes(probe: Probe, far: int) -> Iterator[Said]:
    """The same vectors in float32 and bfloat16: their angles must stay."""
    x = short_text(probe)
    ids = torch.tensor([min(m, far) for m in (3, 11, 263, 1021, 4093, 16381, far)])
    wide = probe(x, ids)
    for dtype in (torch.float32, torch.bfloat16):
        eps = torch.finfo(dtype).eps
        try:
            given = probe(x, ids, dtype) if eps >= probe.eps else wide
        except Refusal:
            continue
        for name, y, z in zip(NAMES, wide, given, strict=True):
            size, off = (each.abs().amax(dim=(0, 1, 3)) for each in (y, z - y))
            wrong = off > (16 * eps + 2.0**-20 * ids) * size
            held = torch.finfo(dtype)  # a decay may leave it
            wrong &= (held.tiny < size) & (size < held.max)
            if wrong.any():
                where = f"off by {float(off.max()):.2g} from position {int(ids[wrong][0])} on"
                how = f"given as {plain(dtype)} is {where}: positions or frequencies are so rounded"
                yield "low-precision-angles", dict(name=name, how=how)


def _scores(probe: Probe, far: int, tempered: bool) -> Iterator[Said]:
    """Scores before and after all positions move: what all this is about."""
    x, by, scores, sizes = probe.vectors(len(SHORT), seed=3), min(777, far - max(SHORT) - 1), [], []
    for shift in (0, by):
        q, k = (each[0, 0, :-1] for each in probe(x, [*(m + shift for m in SHORT[:-1]), far]))
        row = (q @ k.T).norm(dim=1, keepdim=True) if tempered else 1.0
        scores.append(q @ k.T / row)
        sizes.append(q.norm(dim=-1)[:, None] * k.norm(dim=-1) / row)
    off = float(((scores[1] - scores[0]).abs() / torch.maximum(*sizes)).max())
    if off > max(1e-3, 8 * probe.eps):
        yield "not-relative", dict(off=off, by=by)


def notes(q: Measured, k: Measured) -> Iterator[Said]:
    """What is unusual and right."""
    if q.direction == k.direction == -1:
        yield "direction", {}
    if q.offset is not None and q.offset == k.offset and q.offset:
        yield "first-position", dict(one=q.offset)
    yield from factors(q, k)
    if q.follows and k.follows:
        growth = (q.turns.radius[-1].log() / q.turns.positions[-1]).flatten()
        yield "decay", dict(off=float(growth[growth.abs().argmax()]))


def wanted(expected: Any, length: int) -> Tensor:
    """The expected frequencies for a call that reaches so far."""
    return inverse_frequencies(
        expected.dim, expected.base, extension=expected.extension, seq_len=length, device="cpu"
    )
