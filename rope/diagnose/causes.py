"""From measurements to causes, in an order in which a cause comes before its consequences.

Each rule looks at what those before it have left and names one fault. What is independent of the
angles (an input written to, a dtype changed) is told beside it.

Shapes: n planes, P positions, R rotated width.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rope.diagnose import spectrum
from rope.diagnose.influence import NAMES, SHORT, Influence, same, short_text
from rope.diagnose.measure import FREQUENCIES, Measured, scaling
from rope.diagnose.planes import Structure, Turns, wrapped
from rope.diagnose.probe import Probe, Refusal
from rope.diagnose.report import Finding, finding
from rope.frequencies import inverse_frequencies

Said = tuple[str, str]  # a code and its sentence


def in_order(
    probe: Probe, influence: Influence, q: Measured, k: Measured, expected: Any, made: Tensor | None
) -> Iterator[Said]:
    """The faults of two rotations, causes first; made: the frequencies expected."""
    both, linear = tuple(zip(NAMES, (q, k), strict=True)), all(influence.linear)
    yield from of_pair(q, k)
    yield from filter(None, (of_positions(name, each, probe) for name, each in both))
    yield from filter(None, (of_tables(name, each) for name, each in both))
    yield from of_dtypes(probe, influence.far)
    yield from filter(None, [of_state(probe, influence)])
    if expected is not None:
        if influence.moved and not expected.extension.length_dependent:
            yield "length-dependent", follows(influence)
        yield from of_width(q, k, expected)
    follow = influence.moved > 0
    yield from filter(None, (of_spectrum(name, each, made, follow) for name, each in both))
    if expected is not None and linear:
        yield from of_scaling(q, k, expected)
    yield from filter(None, (of_rest(name, each, linear) for name, each in both))
    yield from filter(None, [of_scores(probe, influence.far)])


def of_structure(found: list[Structure], turns: list[Turns], eps: float) -> Said | None:
    """Whether planes are rotated at all: pairing, norm-after, rest-changed."""
    for name, each, turn in zip(NAMES, found, turns, strict=True):
        # Roundings on the way to bfloat16 come to 2^-8; a mean or a size of a rotated vector to more.
        mixed = each.dense > max(each.noise, 1e-3) and not len(each.tangled)
        if mixed or each.misfit > max(0.01, 4 * eps):
            return "norm-after", (
                f"the {name} is no rotation of what it is at position 0: other coordinates add "
                f"{max(each.dense, each.misfit):.2g}, as a norm after the rotation makes them"
            )
        if len(each.tangled):
            return "pairing", (
                f"in the {name}, coordinate {int(each.tangled[0])} is mixed with one whose own "
                "partner is another"
            )
        if not len(each.planes):
            continue
        bent = turn.beta.abs() / (turn.alpha.abs().square() + turn.beta.abs().square()).sqrt()
        beta = bent.amax()
        if beta > max(64 * turn.misfit, 1e-5):
            # A gain after it makes (cos, −g sin; sin / g, cos): determinant 1, diagonal equal.
            unlike = turn.beta.real.abs().amax()
            area = (turn.alpha.abs().square() - turn.beta.abs().square() - 1).abs().amax()
            if max(unlike, area) < 0.1 * beta:
                return "norm-after", (
                    f"the planes of the {name} are turned along ellipses, by up to {beta:.2g}: "
                    "a gain after the rotation is not the same for both coordinates"
                )
            plane = each.planes[int(bent.amax(0).argmax())].tolist()
            return "pairing", (
                f"coordinates {plane[0]} and {plane[1]} of the {name} are no plane: what is no "
                f"rotation in them is {beta:.2g} of their length"
            )
        if len(each.lone):
            return "rest-changed", (
                f"coordinate {int(each.lone[0])} of the {name} has no partner and changes with "
                "the position"
            )
    return None


def of_pair(q: Measured, k: Measured) -> Iterator[Said]:
    """What must be alike in q and k."""
    sources = [each.structure.source for each in (q, k)]
    planes = [each.structure.planes for each in (q, k)]
    moved = sources[0] is not None and sources[1] is not None and not sources[0].equal(sources[1])
    if not planes[0].equal(planes[1]) and not _nested(q, k):
        yield "layouts-differ", f"the query is paired {_layout(q)} and the key {_layout(k)}"
        return
    if moved:
        yield "layouts-differ", "query and key are permuted differently on the way"
        return
    common = (planes[0][:, None] == planes[1]).all(-1)  # [n_q, n_k]
    one, other = q.theta[common.any(1)], k.theta[common.any(0)]
    slack = 2 * FREQUENCIES * one.abs() + 8 * max(q.noise / q.last, k.noise / k.last)
    if ((one - other).abs() > slack).any():
        if ((one + other).abs() <= slack).all():
            yield "directions-differ", "query and key are turned in opposite directions"
            return
        worst = int(((one - other).abs() - slack).argmax())
        yield (
            "spectra-differ",
            (
                f"plane {worst} turns by {abs(one[worst]):.6g} a position in the query and "
                f"{abs(other[worst]):.6g} in the key"
            ),
        )
        return
    if q.offset is not None and k.offset is not None and q.offset != k.offset:
        yield (
            "query-key-offset",
            (f"the query is turned by its position {q.offset:+g} and the key by {k.offset:+g}"),
        )


def _nested(q: Measured, k: Measured) -> bool:
    """Whether one has the other's planes and slower ones, which that one's dtype did not show."""
    one, other = ({*map(tuple, each.structure.planes.tolist())} for each in (q, k))
    return (one < other or other < one) and q.layout == k.layout and q.width == k.width


def _layout(found: Measured) -> str:
    return f"{found.layout} over {found.width} coordinates"


def of_positions(name: str, found: Measured, probe: Probe) -> Said | None:
    """Whether angles are multiples of the position: clamped, wraps, rounded, or another map."""
    wrong = found.wrong
    if not wrong.any():
        return None
    m, alpha, side = found.turns.positions, found.turns.alpha, NAMES.index(name)
    first = int(wrong.nonzero()[0, 0])
    share = found.off.abs() / (m[:, None] * found.theta.abs()).clamp(min=1e-9)
    told = (m[:, None] * found.theta.abs() * 2.0**-7 < 1) & (m[:, None] > 0)
    # The roundings of a position, a frequency and a product to bfloat16, 2^-9 each.
    rounding = (found.off.abs() <= found.allowed + 2.0**-7 * m[:, None] * found.theta.abs()) | ~told
    if rounding.all() and found.last > 1:
        worst = float(share[wrong].where(told[wrong], 0).max())
        return "low-precision-angles", (
            f"angles of the {name} are off by up to {worst:.2g} of their size, the first at "
            f"position {int(m[first])}: positions, frequencies or their products are rounded"
        )
    if found.last == 1 or not found.theta.any():
        return "position-map", f"the {name}'s angles are no multiples of the position even at 2"
    begin = _bisect(found, probe, side, int(m[first - 1]), int(m[first]))
    beyond = alpha[first:]
    if len(beyond) > 1 and (beyond - beyond[-1]).abs().max() < 8 * found.noise:
        return "clamped", f"from position {begin} on the {name} is turned no further"
    far = int(m[-1])
    again = [each for each in (begin, begin + 1, begin + 3, begin + 5) if each < far]
    x = short_text(probe)
    ids = [*again, *SHORT[: 6 - len(again)], far]
    wraps = probe(x, ids)[side]
    ids = [*(each - begin for each in again), *SHORT[: 6 - len(again)], far]
    back = probe(x, ids)[side]
    if len(again) > 1 and (wraps - back).abs().max() <= 8 * found.noise * back.abs().max():
        return "wraps", f"position {begin} of the {name} is turned as position 0, and so on"
    return "position-map", (
        f"from position {begin} on the {name}'s angles are no multiples of the position, and off "
        f"by up to {float(found.off.abs().max()):.2g} radian"
    )


def _bisect(found: Measured, probe: Probe, side: int, low: int, high: int) -> int:
    """The first wrong position between one that is right and one that is wrong."""
    a, b = found.structure.planes.T
    x, far = short_text(probe), int(found.turns.positions[-1])
    while high - low > 1:
        count = min(5, high - low - 1)
        tried = [low + (high - low) * (i + 1) // (count + 1) for i in range(count)]
        ids = [0, *tried, *([0] * (5 - count)), far]
        y = probe(x, ids)[side][0]
        z = torch.complex(y[..., a], y[..., b])  # [H, 7, n]
        angle = (z * z[:, :1].conj()).sum(0).angle()[1 : 1 + count]
        m = torch.tensor(tried, dtype=torch.float64)[:, None]
        allowed = 8 * found.noise + (4 * found.noise / found.last + 2.0**-20) * m
        bad = (wrapped(angle - m * found.theta).abs() > allowed).any(1).tolist()
        first = bad.index(True) if True in bad else count
        low, high = ([low, *tried][first], [*tried, high][first])
    return high


def of_tables(name: str, found: Measured) -> Said | None:
    """cos and sin rounded: an error of the length that does not grow."""
    if found.growth.any() or found.radial < max(1e-5, 8 * found.eps):
        return None
    return "low-precision-tables", (
        f"cos and sin of the {name} are off by {found.radial:.2g}, alike near and far: they, or "
        "the products with them, are rounded"
    )


def of_spectrum(name: str, found: Measured, made: Tensor | None, follows: bool) -> Said | None:
    """Whether the frequencies are those expected, or else of a known kind."""
    theta, slack = found.spectrum
    for dtype in (torch.bfloat16, torch.float16):
        rounded = theta.to(dtype).double()
        exact = (slack + (theta - rounded).abs()) < 2.0**-13 * theta  # measured well enough to tell
        ladder = spectrum.name(theta, slack)
        if exact.all() and ladder is None and (theta > 0).all() and len(theta) > 3:
            return "low-precision-angles", (
                f"all frequencies of the {name} are {str(dtype).removeprefix('torch.')} numbers: "
                "inv_freq was rounded"
            )
    if made is not None:
        off = (made - theta).abs() - slack - FREQUENCIES * made
        if (off <= 0).all():
            return None
        worst = int(off.argmax())
        kind = spectrum.name(theta, slack)
        is_ = f"; they are those of base {kind[0]:.6g} and {kind[1]}" if kind else ""
        return "frequencies", (
            f"plane {worst} of the {name} turns by {theta[worst]:.6g} a position, "
            f"not {made[worst]:.6g}{is_}"
        )
    if follows or (found.layout == "other" and found.direction):
        return None
    if spectrum.name(theta, slack) is None or not found.direction:
        return "frequencies", (
            f"the frequencies of the {name}, {', '.join(f'{each:.4g}' for each in theta[:4])}, ..., "
            "are neither a ladder from at most 1 nor a known change of one"
        )
    return None


def wanted(expected: Any, length: int) -> Tensor:
    """The expected frequencies for a call that reaches so far."""
    return inverse_frequencies(
        expected.dim, expected.base, extension=expected.extension, seq_len=length, device="cpu"
    )


def of_width(q: Measured, k: Measured, expected: Any) -> Iterator[Said]:
    """Width and layout, against an expectation."""
    for name, found in zip(NAMES, (q, k), strict=True):
        if found.width != expected.dim:
            yield (
                "width",
                f"{found.width} coordinates of the {name} are rotated, not {expected.dim}",
            )
            return
        layout = "interleaved" if expected.interleaved else "half"
        if found.layout != layout and expected.dim > 2:
            yield "layout", f"the {name} is paired {_layout(found)}, not {layout}"
            return


def of_scaling(q: Measured, k: Measured, expected: Any) -> Iterator[Said]:
    """The factor on cos and sin, against an expectation."""
    factors = scaling(q.structure), scaling(k.structure)
    if None not in factors:
        # Their product is what scores see; a query may carry the attention's 1/sqrt(D) besides.
        product, right = factors[0] * factors[1], expected.extension.attention_scaling**2
        plain = abs(product / right * q.structure.source.numel() ** 0.5 - 1) < 1e-3
        if abs(product / right - 1) > 1e-3 and not plain:
            yield (
                "attention-scaling",
                (
                    f"cos and sin are multiplied by {factors[0]:.6g} in the query and {factors[1]:.6g} "
                    f"in the key, not by {expected.extension.attention_scaling:.6g}"
                ),
            )


def of_rest(name: str, found: Measured, linear: bool) -> Said | None:
    """Coordinates beyond the planes, at position 0: those that went in, or scaled alike."""
    factor, rest = scaling(found.structure), found.structure.rest_gain
    if not linear or factor is None or rest is None or not len(rest):
        return None
    off = torch.minimum((rest - 1).abs(), (rest - factor).abs())
    if off.max() < max(1e-3, found.structure.noise):
        return None
    worst = int(off.argmax())
    return "rest-changed", (
        f"coordinate {int(found.structure.rest[worst])} of the {name}, which is not rotated, comes "
        f"out multiplied by {rest[worst]:.4g}"
    )


def of_dtypes(probe: Probe, far: int) -> Iterator[Said]:
    """The same vectors in float32 and bfloat16: their dtype must return, and their angles stay."""
    x = short_text(probe)
    ids = [min(m, far) for m in (3, 11, 263, 1021, 4093, 16381)] + [far]
    wide = probe(x, ids)
    for dtype in (torch.float32, torch.bfloat16):
        if torch.finfo(dtype).eps < probe.eps:
            continue
        try:
            given = probe(x, ids, dtype)
        except Refusal:
            continue
        kind, back = (str(each).removeprefix("torch.") for each in (dtype, probe.returned[dtype]))
        for name, y, z in zip(NAMES, wide, given, strict=True):
            eps = max(torch.finfo(dtype).eps, torch.finfo(probe.returned[dtype]).eps)
            allowed = (16 * eps + 2.0**-20 * torch.tensor(ids)) * y.abs().max()
            off = (z - y).abs().amax(dim=(0, 1, 3))
            if not (off <= allowed).all():
                first = ids[int((~(off <= allowed)).nonzero()[0, 0])]
                yield (
                    "low-precision-angles",
                    (
                        f"given {kind}, the {name} is off by {float(off.max()):.2g}, the first at "
                        f"position {first}: positions or frequencies take the dtype of the vectors"
                    ),
                )
                return
        if back != kind:
            yield "dtype-changed", f"given {kind}, it returns {back}"
            return


def of_state(probe: Probe, influence: Influence) -> Said | None:
    """The first call once more, after all the longer ones."""
    assert influence.first is not None
    again = probe(short_text(probe), SHORT)
    for name, y, z in zip(NAMES, influence.first, again, strict=True):
        if not same(probe, z, y).all():
            off = float((z - y).abs().max())
            return "stateful", f"after longer calls the first {name} comes out {off:.2g} apart"
    return None


def of_scores(probe: Probe, far: int) -> Said | None:
    """Scores before and after all positions move: what all this is about."""
    x, by = probe.vectors(len(SHORT), seed=3), min(777, far - max(SHORT) - 1)
    scores, sizes = [], []
    for shift in (0, by):
        q, k = probe(x, [*(m + shift for m in SHORT[:-1]), far])
        q, k = q[0, 0, :-1], k[0, 0, :-1]
        sizes.append(q.norm(dim=-1)[:, None] * k.norm(dim=-1))
        scores.append(q @ k.T)
    off = float(((scores[1] - scores[0]).abs() / torch.maximum(*sizes)).max())
    if off <= max(1e-3, 8 * probe.eps):
        return None
    return "not-relative", f"scores move by {off:.2g} of their size when positions shift by {by}"


def follows(influence: Influence) -> str:
    """What a note and a fault say alike."""
    return (
        f"beside a longer text the same positions come out {influence.moved:.2g} of their size "
        "apart: the spectrum follows the length"
    )


def notes(q: Measured, k: Measured) -> Iterator[Finding]:
    """What is unusual and right."""
    if q.direction == k.direction == -1:
        yield finding("direction", "query and key are both turned clockwise")
    if q.offset is not None and q.offset == k.offset and q.offset:
        yield finding("first-position", f"position 0 is turned as position {q.offset:g}")
    if q.growth.any() or k.growth.any():
        rate = float(q.growth[q.growth.abs().argmax()])
        yield finding("decay", f"queries grow by up to {rate:.2g} a position and keys shrink")
