"""From measurements to causes, in an order in which a cause comes before its consequences.

Shapes: n planes, P positions, R rotated width.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rope.diagnose import spectrum
from rope.diagnose.influence import NAMES, SHORT, Influence, Said, short_text, unlike
from rope.diagnose.measure import FREQUENCIES, Measured
from rope.diagnose.planes import Structure, Turns, wrapped
from rope.diagnose.probe import Probe, Refusal
from rope.frequencies import inverse_frequencies


def of_structure(found: list[Structure], turns: list[Turns], eps: float) -> Iterator[Said]:
    """Whether planes are turned at all."""
    for name, each, turn in zip(NAMES, found, turns, strict=True):
        # Roundings to bfloat16 on the way come to 2^-8; a mean or size that depends on m to more.
        mixed = each.dense > max(each.noise, 1e-3) and not len(each.tangled)
        if mixed or each.misfit > max(0.01, 4 * eps):
            yield "norm-after", {"name": name, "off": max(each.dense, each.misfit)}
        if len(each.tangled):
            a, b = each.tangled[:2].tolist()
            yield "pairing", {"name": name, "a": a, "b": b, "off": each.dense}
        if len(each.planes):
            bent = turn.beta.abs() / torch.hypot(turn.alpha.abs(), turn.beta.abs())
            # A gain after it makes (cos, −g sin; sin / g, cos): determinant 1, diagonal equal.
            area = turn.alpha.abs().square() - turn.beta.abs().square() - 1
            ellipse = torch.maximum(turn.beta.real.abs(), area.abs()).max() < 0.1 * bent.max()
            a, b = each.planes[int(bent.amax(0).argmax())].tolist()
            if bent.max() > max(64 * turn.misfit, 1e-5):
                measured = {"name": name, "a": a, "b": b, "off": float(bent.max())}
                yield "norm-after" if ellipse else "pairing", measured
        if len(each.lone):
            how = "changes with the position"
            yield "rest-changed", {"a": int(each.lone[0]), "name": name, "how": how}
    if not all(len(each.planes) for each in found):
        yield "positions-ignored", {"name": "rotation", "how": "is of no plane that can be seen"}


def in_order(
    probe: Probe, influence: Influence, q: Measured, k: Measured, expected: Any, made: Tensor | None
) -> Iterator[Said]:
    """What is wrong with two rotations; made: the frequencies expected."""
    both, linear = tuple(zip(NAMES, (q, k), strict=True)), all(influence.linear)
    yield from _pair(q, k)
    for name, each in both:
        yield from _positions(name, each, probe)
    for name, each in both:
        if not each.growth.any() and each.radial >= max(1e-5, 8 * probe.eps):
            yield "low-precision-tables", {"name": name, "off": each.radial}
    yield from _dtypes(probe, influence.far)
    assert influence.first is not None
    again = probe(short_text(probe), SHORT)  # the first call once more, after longer ones
    for name, y, z in zip(NAMES, influence.first, again, strict=True):
        if (off := unlike(probe, z, y)).any():
            yield "stateful", {"name": name, "off": float(off.max())}
    if expected is not None and influence.moved and not expected.extension.length_dependent:
        yield "length-dependent", {"off": influence.moved}
    for name, each in both if expected is not None else ():
        layout = "interleaved" if expected.interleaved else "half"
        if each.width != expected.dim:
            yield "width", {"name": name, "one": each.width, "other": expected.dim}
        elif each.layout != layout and expected.dim > 2:
            yield "layout", {"name": name, "one": each.paired, "other": layout}
    for name, each in both:
        yield from _spectrum(name, each, made, influence.moved > 0)
    for name, each in both if linear else ():
        yield from _rest(name, each)
    if expected is not None and linear and q.scaling is not None and k.scaling is not None:
        right = expected.extension.attention_scaling
        # Scores see the product; a query may carry the attention's 1/sqrt(D) besides.
        product = q.scaling * k.scaling / right**2
        if min(abs(product - 1), abs(product * probe.head_dim**0.5 - 1)) > 1e-3:
            yield "attention-scaling", {"one": q.scaling, "other": k.scaling, "right": right}
    yield from _scores(probe, influence.far)


def _pair(q: Measured, k: Measured) -> Iterator[Said]:
    """What must be alike in q and k."""
    (planes, source), (others, other) = (
        ({*map(tuple, each.structure.planes.tolist())}, each.structure.source) for each in (q, k)
    )
    # One may have slower planes, which the other's dtype did not show.
    nested = (planes <= others or others <= planes) and q.paired == k.paired
    if not nested:
        yield "layouts-differ", {"one": q.paired, "other": k.paired}
    elif source is not None and other is not None and not source.equal(other):
        yield "layouts-differ", {"one": "permuted on the way", "other": "otherwise"}
    elif len(q.theta) == len(k.theta):
        one, other = q.theta, k.theta
        slack = 2 * FREQUENCIES * one.abs() + 8 * max(q.noise / q.last, k.noise / k.last)
        worst = int(((one - other).abs() - slack).argmax())
        if (one - other).abs()[worst] > slack[worst]:
            if ((one + other).abs() <= slack).all():
                yield "directions-differ", {}
            numbers = {"one": abs(float(one[worst])), "other": abs(float(other[worst]))}
            yield "spectra-differ", {"plane": worst, **numbers}
    if None not in (q.offset, k.offset) and q.offset != k.offset:
        yield "query-key-offset", {"one": q.offset, "other": k.offset}


def _positions(name: str, found: Measured, probe: Probe) -> Iterator[Said]:
    """Whether angles are multiples of the position."""
    m, size = found.turns.positions, found.turns.positions[:, None] * found.theta.abs()
    wrong = (found.off.abs() > found.allowed).any(1)
    if not wrong.any():
        return
    first = int(wrong.nonzero()[0, 0])
    # A position, a frequency and a product, each rounded to bfloat16, come to 3 of 2^-9.
    told = size * 2.0**-7 < 1
    if found.last > 1 and ((found.off.abs() <= found.allowed + 2.0**-7 * size) | ~told).all():
        off = float((found.off.abs() * told).max())
        where = f"from position {int(m[first])} on"
        what = "positions, frequencies or their products are"
        yield "low-precision-angles", {"name": name, "where": where, "off": off, "what": what}
        return
    low, high = int(m[first - 1]), int(m[first])
    while high - low > 1 and found.last > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _is_wrong(middle, name, found, probe) else (middle, high)
    beyond = found.turns.alpha[first:]
    phases = found.turns.alpha.angle() - (m % high)[:, None] * found.theta
    if len(beyond) > 1 and (beyond - beyond[-1]).abs().max() < 8 * found.noise:
        yield "clamped", {"name": name, "begin": high}
    elif found.last > 1 and (wrapped(phases).abs() <= found.allowed).all():
        yield "wraps", {"name": name, "begin": high}
    else:
        yield "position-map", {"name": name, "begin": high}


def _is_wrong(position: int, name: str, found: Measured, probe: Probe) -> bool:
    """Whether some angle at one position is not that of the position."""
    ids = [0, position, *[0] * (len(SHORT) - 3), int(found.turns.positions[-1])]
    y, (a, b) = probe(short_text(probe), ids)[NAMES.index(name)][0], found.structure.planes.T
    z = torch.complex(y[:, :2, a], y[:, :2, b])  # [H, 2, n]
    off = wrapped((z[:, 1] * z[:, 0].conj()).sum(0).angle() - position * found.theta)
    slack = 8 * found.noise * (1 + position / found.last) + 2.0**-20 * position
    return bool((off.abs() > slack).any())


def _spectrum(name: str, found: Measured, made: Tensor | None, follows: bool) -> Iterator[Said]:
    """Whether the frequencies are those expected, or else of a known kind."""
    theta, slack = found.spectrum
    known = spectrum.name(theta, slack)
    for dtype in (torch.bfloat16, torch.float16):
        rounded = (theta - theta.to(dtype).double()).abs()
        # Measured well enough to tell, all planes have numbers of that dtype.
        if known is None and len(theta) > 3 and (slack + rounded < 2.0**-13 * theta).all():
            what = f"to {str(dtype).removeprefix('torch.')}, the frequencies are"
            off = float(rounded.max())
            yield (
                "low-precision-angles",
                {"name": name, "where": "at all positions", "what": what, "off": off},
            )
            return
    if made is not None and len(made) == len(theta):
        off = (made - theta).abs() - slack - FREQUENCIES * made
        worst = int(off.argmax())
        if off[worst] > 0:
            kind = f", as of base {known[0]:.6g} and {known[1]}" if known else ""
            other = f"not {made[worst]:.6g}{kind}"
            yield (
                "frequencies",
                {"name": name, "plane": worst, "one": float(theta[worst]), "other": other},
            )
        return
    # One kept plane of four or fewer leaves too much open to tell a change from a fault.
    few = len(theta) <= 4 and theta[0] <= 1 + slack[0] and bool((theta.diff() <= 0).all())
    if (
        not follows
        and found.layout != "other"
        and ((known is None and not few) or not found.direction)
    ):
        other = "and they are neither a ladder from at most 1 nor a known change of one"
        yield "frequencies", {"name": name, "plane": 0, "one": float(theta[0]), "other": other}


def _rest(name: str, found: Measured) -> Iterator[Said]:
    """Coordinates beyond the planes at position 0: those that went in, or scaled alike."""
    rest, factor = found.structure.rest_gain, found.scaling
    if factor is not None and rest is not None and len(rest):
        off = torch.minimum((rest - 1).abs(), (rest - factor).abs())
        if off.max() > max(1e-3, found.structure.noise):
            a = int(found.structure.rest[off.argmax()])
            how = f"comes out multiplied by {rest[off.argmax()]:.4g}"
            yield "rest-changed", {"name": name, "a": a, "how": how}


def _dtypes(probe: Probe, far: int) -> Iterator[Said]:
    """The same vectors in float32 and bfloat16: their dtype must return, and their angles stay."""
    x = short_text(probe)
    ids = torch.tensor([min(m, far) for m in (3, 11, 263, 1021, 4093, 16381, far)])
    wide = probe(x, ids)
    for dtype in (torch.float32, torch.bfloat16):
        try:
            given = probe(x, ids, dtype) if torch.finfo(dtype).eps >= probe.eps else wide
        except Refusal:
            continue
        kind, back = (
            str(each).removeprefix("torch.") for each in (dtype, probe.returned.get(dtype, dtype))
        )
        for name, y, z in zip(NAMES, wide, given, strict=True):
            off = (z - y).abs().amax(dim=(0, 1, 3))
            eps = torch.finfo(dtype).eps
            wrong = off > (16 * eps + 2.0**-20 * ids) * y.abs().max()
            if wrong.any():
                where = f"given {kind}, from position {int(ids[wrong][0])} on"
                numbers = {
                    "where": where,
                    "off": float(off.max()),
                    "what": "positions or frequencies take that dtype,",
                }
                yield "low-precision-angles", {"name": name, **numbers}
        if back != kind:
            yield "dtype-changed", {"one": kind, "other": back}


def _scores(probe: Probe, far: int) -> Iterator[Said]:
    """Scores before and after all positions move: what all this is about."""
    x, by, scores, sizes = probe.vectors(len(SHORT), seed=3), min(777, far - max(SHORT) - 1), [], []
    for shift in (0, by):
        q, k = (each[0, 0, :-1] for each in probe(x, [*(m + shift for m in SHORT[:-1]), far]))
        scores.append(q @ k.T)
        sizes.append(q.norm(dim=-1)[:, None] * k.norm(dim=-1))
    off = float(((scores[1] - scores[0]).abs() / torch.maximum(*sizes)).max())
    if off > max(1e-3, 8 * probe.eps):
        yield "not-relative", {"off": off, "by": by}


def notes(q: Measured, k: Measured) -> Iterator[Said]:
    """What is unusual and right."""
    if q.direction == k.direction == -1:
        yield "direction", {}
    if q.offset is not None and q.offset == k.offset and q.offset:
        yield "first-position", {"one": q.offset}
    if q.growth.any() or k.growth.any():
        yield "decay", {"off": float(q.growth[q.growth.abs().argmax()])}


def wanted(expected: Any, length: int) -> Tensor:
    """The expected frequencies for a call that reaches so far."""
    return inverse_frequencies(
        expected.dim, expected.base, extension=expected.extension, seq_len=length, device="cpu"
    )
