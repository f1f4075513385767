"""What depends on what: change one id, one vector or one row, and see which results move.

A rotation is a function of each token's own vector and position. That must hold before angles are
worth a look, so here nothing is fitted: results are compared with results.

Shapes: H heads, S sequence, D head dimension.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rope.diagnose.probe import Pair, Probe, Refusal
from rope.diagnose.report import Finding, finding

SHORT = [3, 11, 5, 14, 8, 1, 15]  # small, in no order, and as many as no other axis
OTHER = 13  # what one of them is changed to
NAMES = ("query", "key")


@dataclass
class Influence:
    """fault: the first, if any; far: the farthest position taken; nan_from: where NaN begins.

    refused: notes on what was not taken; moved: how far results at the same positions are apart
    in a short text and a longer one, and kept: what that does to keys of the shorter one, as the
    sentence and its number; cache: whether such keys are used; linear: of q and k, whether doubled
    vectors give doubled results; first: results of the first call.
    """

    far: int
    fault: Finding | None = None
    nan_from: int | None = None
    refused: list[Finding] = field(default_factory=list)
    moved: float = 0.0
    kept: tuple[str, float] | None = None
    cache: bool = False
    linear: tuple[bool, ...] = (True, True)
    first: Pair | None = None

    def moves(self, probe: Probe, short: Pair, long: Pair) -> bool:
        """Compare the same tokens in a short text and a longer one: is only their size another?"""
        apart = [unlike(probe, y, z) for y, z in zip(short, long, strict=True)]
        sized = True
        for y, z in zip(short, long, strict=True):
            unit = z / z.abs().amax(2, True) / z.abs().amax(2, True)  # squares might leave float64
            factor = ((y * unit).sum(2, True) / (z * unit).sum(2, True)).nan_to_num(1.0)
            near = max(8 * probe.eps, 2.0**-14) * y.abs().amax(-1, keepdim=True)
            sized &= bool((factor > 0).all() and ((y - factor * z).abs() <= near).all())
        if apart[1].any():  # factor is the key's
            (q, k), stale = (x[0, 0] for x in long), short[1][0, 0]
            off = float(((stale - k) @ q.T).abs().max() / (q.norm(dim=-1) * k.norm(dim=-1)).max())
            by = float(torch.maximum(factor, 1 / factor).max())
            self.kept = ("sized", by) if sized else ("kept", off)
        shares = [float(gap.max() / z.abs().max()) for gap, z in zip(apart, long, strict=True)]
        self.moved = max(self.moved, *shares)
        return sized

    def length_dependence(self) -> Finding:
        """The finding for what moved."""
        variant, kept = self.kept or ("moved", None)
        return finding("length-dependent", variant, off=self.moved, kept=kept)


def unlike(probe: Probe, left: Tensor, right: Tensor, along: int = -1) -> Tensor:
    """|left − right|, and 0 where a few roundings, of float32 on the way too, may explain it.

    along: the axis whose largest entry is rounded, a token's coordinates or a coordinate's tokens.
    """
    size = torch.maximum(left.abs(), right.abs()).amax(along, keepdim=True)
    off = (left - right).abs()
    return off * (off > max(2 * probe.eps, 2.0**-20) * size)


def differing(probe: Probe, first: Pair, again: Pair, when: str) -> Finding | None:
    """Whether the same arguments give other results, called "again" at once or "later"."""
    for name, y, z in zip(NAMES, first, again, strict=True):
        if (off := unlike(probe, z, y)).any():
            return finding("stateful", when, name=name, off=float(off.max()))
    return None


def short_text(probe: Probe, rows: int = 1) -> Pair:
    """One vector a head, the same at all tokens: positions alone can tell the tokens apart."""
    q, k = (x.expand(rows, -1, len(SHORT), -1).clone() for x in probe.vectors(1))
    for x in (q, k):
        x[..., 0] = -x[..., 1]  # a norm that subtracts the mean must leave something
    return q, k


def farthest(probe: Probe, first: Pair, most: int) -> Influence:
    """The last position that is taken, and what stands in the way beyond it; first: at SHORT."""
    x, small = probe.vectors(len(SHORT)), [y.abs().amax((1, 2)) for y in first]
    decayed = {}  # by position, whether coordinates are 1000 times as large or small there

    def obstacle(position: int) -> Finding | str:
        """A note, the word for sizes that are no numbers, or an empty one where all is well."""
        try:
            result = probe(x, [*SHORT[:4], position, position, position])
        except Refusal as error:
            return finding("reach", "refused", position=position, error=error)
        if not all(y.isfinite().all() for y in result):
            return "infinite"
        there = [z[:, :, 4:].abs().amax((1, 2)) / y for y, z in zip(small, result, strict=True)]
        powers = torch.cat(there).nan_to_num(1.0).log2().abs().max()
        if powers.isinf():
            return "0"
        decayed[position] = bool(powers > 10)
        # xPos's factors, centred on a text, are by its ends too large and too small to be fitted.
        others = [z[:, :, :4].abs().max() / y.max() for y, z in zip(small, result, strict=True)]
        return finding("reach", "others", position=position) if max(others) > 1000 else ""

    low, high = max(SHORT), most - 1
    beyond = obstacle(high)
    while beyond and high - low > 1:
        middle = (low + high) // 2
        if nearer := obstacle(middle):
            high, beyond = middle, nearer
        else:
            low = middle
    if isinstance(beyond, str) and decayed.get(low):
        # Half as far, since near 0 a dtype's numbers have fewer bits.
        low, beyond = low // 2, finding("reach", "sizes", position=high, sizes=beyond)
    if isinstance(beyond, Finding):
        return Influence(low, refused=[beyond])
    return Influence(low, nan_from=high) if beyond == "infinite" else Influence(most - 1)


def influences(probe: Probe, max_position: int, cache: bool) -> Influence:
    """The comparisons, up to the first that fails."""
    x = short_text(probe)
    first, again = probe(x, SHORT), probe(x, SHORT)
    if not all(y.isfinite().all() for y in first):
        return Influence(max(SHORT), finding("not-finite", begin=min(SHORT)))
    if fault := differing(probe, first, again, "again"):
        return Influence(max(SHORT), fault)
    influence = farthest(probe, first, max_position)
    influence.first, influence.cache = first, cache
    # The farthest stands in every call, since a spectrum may follow the length.
    ids = [*SHORT[:-1], influence.far]
    base = probe(x, ids)
    short, long = ((y[:, :, :-1], z[:, :, :-1]) for y, z in (first, base))
    influence.moves(probe, short, long)
    twice = probe((2 * x[0], 2 * x[1]), ids)
    influence.linear = tuple(
        not unlike(probe, z, 2 * y).any() for y, z in zip(base, twice, strict=True)
    )
    influence.fault = (
        _tokens(probe, x, ids, base)
        or _positions(probe, x, ids, base)
        or _rows(probe, ids, influence)
    )
    return influence


def _tokens(probe: Probe, x: Pair, ids: list[int], base: Pair) -> Finding | None:
    """Another vector at one token, which neither other tokens nor the other tensor may notice."""
    token, vectors = 4, probe.vectors(1, seed=1)
    for which, name in enumerate(NAMES):
        q, k = changed = x[0].clone(), x[1].clone()
        changed[which][:, :, token] = 3 * vectors[which][:, :, 0]  # of another size, too
        for other, y, z in zip(NAMES, base, probe((q, k), ids), strict=True):
            off = unlike(probe, z, y)
            if other == name:
                off[:, :, token] = 0
            if off.any():
                return finding("tokens-mixed", name=name, other=other, off=float(off.max()))
    return None


def _positions(probe: Probe, x: Pair, ids: list[int], base: Pair) -> Finding | None:
    """Another id at one token, which that token alone must notice, in all heads, in q and in k."""
    moved: list[list[Tensor]] = [[], []]  # for q and k, for two tokens: bool [H, S]
    for token in (0, 2):
        result = probe(x, [OTHER if i == token else m for i, m in enumerate(ids)])
        for rows, y, z in zip(moved, base, result, strict=True):
            rows.append(unlike(probe, z, y)[0].any(-1))
            # A decay may leave slow planes alone to be seen beside the largest coordinate.
            near = unlike(probe, z[:, :, :-1], y[:, :, :-1], along=2)
            rows[-1][:, token] |= near[0, :, token].any(-1)
    states = [_state(probe, x, ids, base, which, moved[which]) for which in (0, 1)]
    for name, state in zip(NAMES, states, strict=True):
        if state == "axis":
            return finding("wrong-axis", name=name)
    for which, name in enumerate(NAMES):
        alone_still = states[which] == "still" and states[1 - which] == "right"
        if states[which] == "some" or alone_still:
            share = int((moved[which][0][:, 0] | moved[which][1][:, 2]).sum())
            return finding(f"{name}-unrotated", share=share, heads=probe.heads[which])
    for name, state in zip(NAMES, states, strict=True):
        if state != "right":
            return finding("positions-ignored", state, name=name)
    return None


def _state(
    probe: Probe, x: Pair, ids: list[int], base: Pair, which: int, moved: list[Tensor]
) -> str:
    """How q or k follows the ids of tokens 0 and 2; moved: for each, bool `[H, S]`."""
    heads, y = probe.heads[which], base[which]
    own = [rows[:, token] for token, rows in zip((0, 2), moved, strict=True)]
    if heads == len(ids) and moved[1][2].all() and not own[1].all():
        return "axis"  # the id of token 2 turns head 2
    alone = all(rows.sum() == column.sum() for column, rows in zip(own, moved, strict=True))
    if alone and all(column.any() for column in own):
        return "right" if (own[0] | own[1]).all() else "some"
    if any(rows.any() for rows in moved):
        return "others"
    if unlike(probe, y, y[:, :, :1]).any():
        return "counted"
    if unlike(probe, probe(x, ids[::-1])[which], y).any():
        return "others"
    # Alike at all tokens. If turned by heads, more entries change than those that are changed.
    q, k = flipped = x[0].clone(), x[1].clone()
    flipped[which].copy_(x[which].flip(-1))
    touched = unlike(probe, probe((q, k), ids)[which], y) > 0
    more = touched.sum(-1) > (flipped[which] != x[which]).sum(-1)
    return "axis" if heads > 1 and more.any() else "still"


def _rows(probe: Probe, ids: list[int], influence: Influence) -> Finding | None:
    """Three rows of other positions, whole and of one token, against each row by itself."""
    rows = [ids, [*reversed(ids[:-1]), ids[-1]], [*([OTHER] * 3), *ids[3:]]]
    for length in (len(ids), 1):
        q, k = (x[:, :, -length:] for x in short_text(probe, 3))
        last = [row[-length:] for row in rows]
        try:
            if length == 1 and (fault := _lone(probe, ids, influence)):
                return fault
            alone = [probe((q[:1], k[:1]), row) for row in last]
            together = probe((q, k), last)
        except Refusal as error:
            influence.refused.append(finding("refused", length=length, error=error))
            return None
        for row in range(3):
            for name, y, z in zip(NAMES, alone[row], together, strict=True):
                if (off := unlike(probe, z[row : row + 1], y)).any():
                    return finding("batch-mixed", name=name, row=row, off=float(off.max()))
    return None


def _lone(probe: Probe, ids: list[int], influence: Influence) -> Finding | None:
    """The last token in a call of its own, as in decoding, against the same in a longer one."""
    alone, among = [], []
    for q, k in zip(*(x.split(1, dim=2) for x in probe.vectors(4)), strict=True):
        alone.append(probe((q, k), ids[-1:]))
        y, z = probe((q.repeat(1, 1, len(ids), 1), k.repeat(1, 1, len(ids), 1)), ids)
        among.append((y[:, :, -1:], z[:, :, -1:]))
    (q, k), (y, z) = (
        [torch.cat(calls, 2) for calls in zip(*pairs, strict=True)] for pairs in (alone, among)
    )
    if influence.moves(probe, (q, k), (y, z)):
        return None
    return finding("positions-ignored", "lone", name=NAMES[int(not unlike(probe, q, y).any())])
