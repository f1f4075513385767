"""What depends on what: change one id, one vector or one row, and see which results move.

A rotation is a function of each token's own vector and position. That must hold before angles are
worth a look, so here nothing is fitted: results are compared with results.

Shapes: H heads, S sequence, D head dimension.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rope.diagnose.probe import Pair, Probe, Refusal

SHORT = [3, 11, 5, 14, 8, 1, 15]  # small, in no order, and as many as no other axis
OTHER = 13  # what one of them is changed to
NAMES = ("query", "key")
Said = tuple[str, dict[str, Any]]  # a code and its numbers


@dataclass
class Influence:
    """said: the fault, if any; far: the farthest position taken; nan_from: where NaN begins.

    refused: notes on what was not taken; moved: how far results at the same positions are apart
    in a short text and a longer one, and cached: what that does to keys that are kept, if cache;
    linear: of q and k, whether doubled vectors give doubled results; first: results of the first
    call.
    """

    far: int
    said: Said | None = None
    nan_from: int | None = None
    refused: list[Said] = field(default_factory=list)
    moved: float = 0.0
    cached: str = ""
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
            (q, k), kept = (each[0, 0] for each in long), short[1][0, 0]
            off = float(((kept - k) @ q.T).abs().max() / (q.norm(dim=-1) * k.norm(dim=-1)).max())
            by = float(torch.maximum(factor, 1 / factor).max())
            how = f"multiplied by up to {by:.3g}" if sized else f"off by {off:.2g} of |q| |k|"
            self.cached = f"; with a cache, scores of keys from the shorter one are {how}"
        for each, z in zip(apart, long, strict=True):
            self.moved = max(self.moved, float(each.max() / z.abs().max()))
        return sized


def unlike(probe: Probe, left: Tensor, right: Tensor) -> Tensor:
    """|left − right|, and 0 where a few roundings, of float32 on the way too, may explain it."""
    size = torch.maximum(left.abs(), right.abs()).amax(-1, keepdim=True)
    off = (left - right).abs()
    return off * (off > max(2 * probe.eps, 2.0**-20) * size)


def differing(probe: Probe, first: Pair, again: Pair, when: str) -> Said | None:
    """Whether the same arguments give other results."""
    for name, y, z in zip(NAMES, first, again, strict=True):
        if (off := unlike(probe, z, y)).any():
            return "stateful", {"name": name, "off": float(off.max()), "when": when}
    return None


def short_text(probe: Probe, rows: int = 1) -> Pair:
    """One vector a head, the same at all tokens: positions alone can tell the tokens apart."""
    q, k = (each.expand(rows, -1, len(SHORT), -1).clone() for each in probe.vectors(1))
    for each in (q, k):
        each[..., 0] = -each[..., 1]  # a norm that subtracts the mean must leave something
    return q, k


def farthest(probe: Probe, first: Pair, most: int) -> Influence:
    """The last position that is taken, and what stands in the way beyond it; first: at SHORT."""
    x, small = probe.vectors(len(SHORT)), [each.abs().amax((1, 2)) for each in first]
    decayed = {}  # by position, whether coordinates are 1000 times as large or small there

    def refused(position: int) -> str:
        try:
            result = probe(x, [*SHORT[:4], position, position, position])
        except Refusal as error:
            return f"position {position} was refused ({error})"
        if not all(each.isfinite().all() for each in result):
            return "infinite"
        there = [z[:, :, 4:].abs().amax((1, 2)) / y for y, z in zip(small, result, strict=True)]
        powers = torch.cat(there).nan_to_num(1.0).log2().abs().max()
        if powers.isinf():
            return "0"
        decayed[position] = bool(powers > 10)
        # xPos's factors, centred on a text, are by its ends too large and too small to be fitted.
        others = [z[:, :, :4].abs().max() / y.max() for y, z in zip(small, result, strict=True)]
        return f"position {position} makes others 1000 times as large" if max(others) > 1000 else ""

    low, high = max(SHORT), most - 1
    why = refused(high)
    while why and high - low > 1:
        middle = (low + high) // 2
        low, high, why = (low, middle, said) if (said := refused(middle)) else (middle, high, why)
    if why in ("infinite", "0") and decayed.get(low):
        # Half as far, since near 0 a dtype's numbers have fewer bits.
        low, why = low // 2, f"sizes follow the position, and at {high} are {why}"
    if why == "infinite":
        return Influence(low, nan_from=high)
    if why == "0":
        return Influence(most - 1)
    return Influence(low, refused=[("reach", {"why": why})]) if why else Influence(high)


def influences(probe: Probe, max_position: int, cache: bool) -> Influence:
    """The comparisons, up to the first that fails."""
    x = short_text(probe)
    first, again = probe(x, SHORT), probe(x, SHORT)
    if not all(each.isfinite().all() for each in first):
        return Influence(max(SHORT), ("not-finite", {"begin": min(SHORT)}))
    if said := differing(probe, first, again, "called once more"):
        return Influence(max(SHORT), said)
    found = farthest(probe, first, max_position)
    found.first, found.cache = first, cache
    ids = [*SHORT[:-1], found.far]  # the farthest in every call: a spectrum may follow the length
    base = probe(x, ids)
    short, long = ((y[:, :, :-1], z[:, :, :-1]) for y, z in (first, base))
    found.moves(probe, short, long)
    twice = probe((2 * x[0], 2 * x[1]), ids)
    found.linear = tuple(
        not unlike(probe, z, 2 * y).any() for y, z in zip(base, twice, strict=True)
    )
    found.said = (
        _tokens(probe, x, ids, base) or _positions(probe, x, ids, base) or _rows(probe, ids, found)
    )
    return found


def _tokens(probe: Probe, x: Pair, ids: list[int], base: Pair) -> Said | None:
    """Another vector at one token, which neither other tokens nor the other tensor may notice."""
    token, vectors = 4, probe.vectors(1, seed=1)
    for which, name in enumerate(NAMES):
        changed = [each.clone() for each in x]
        changed[which][:, :, token] = 3 * vectors[which][:, :, 0]  # of another size, too
        for other, y, z in zip(NAMES, base, probe((changed[0], changed[1]), ids), strict=True):
            off = unlike(probe, z, y)
            if other == name:
                off[:, :, token] = 0
            if off.any():
                return "tokens-mixed", {"name": name, "other": other, "off": float(off.max())}
    return None


def _positions(probe: Probe, x: Pair, ids: list[int], base: Pair) -> Said | None:
    """Another id at one token, which that token alone must notice, in all heads, in q and in k."""
    moved: list[list[Tensor]] = [[], []]  # for q and k, for two tokens: bool [H, S]
    for token in (0, 2):
        result = probe(x, [OTHER if i == token else each for i, each in enumerate(ids)])
        for rows, y, z in zip(moved, base, result, strict=True):
            rows.append(unlike(probe, z, y)[0].any(-1))
    states = [_state(probe, x, ids, base, which, moved[which]) for which in (0, 1)]
    for name, state in zip(NAMES, states, strict=True):
        if state == "axis":
            return "wrong-axis", {"name": name}
    for which, name in enumerate(NAMES):
        one_still = states[which] == "still" and states[1 - which] != "still"
        if states[which] == "some" or (one_still and states[1 - which] == "right"):
            share = int((moved[which][0][:, 0] | moved[which][1][:, 2]).sum())
            return f"{name}-unrotated", {"share": share, "heads": probe.heads[which]}
    for name, state in zip(NAMES, states, strict=True):
        if state != "right":
            return "positions-ignored", {"name": name, "how": _HOW[state]}
    return None


_HOW = {
    "still": "is alike at all positions",
    "lone": "is turned otherwise in a call of one token than in a longer one",
    "counted": "is turned by its place in the call, and its id is not read",
    "others": "changes where the id has not changed: one id is taken for others",
}


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
    changed = [each.clone() for each in x]
    changed[which] = changed[which].flip(-1)
    touched = unlike(probe, probe((changed[0], changed[1]), ids)[which], y) > 0
    more = touched.sum(-1) > (changed[which] != x[which]).sum(-1)
    return "axis" if heads > 1 and more.any() else "still"


def _rows(probe: Probe, ids: list[int], found: Influence) -> Said | None:
    """Three rows of other positions, whole and of one token, against each row by itself."""
    rows = [ids, [*reversed(ids[:-1]), ids[-1]], [*([OTHER] * 3), *ids[3:]]]
    for length in (len(ids), 1):
        q, k = (each[:, :, -length:] for each in short_text(probe, 3))
        given = [each[-length:] for each in rows]
        try:
            if length == 1 and (said := _lone(probe, ids, found)):
                return said
            alone = [probe((q[:1], k[:1]), each) for each in given]
            together = probe((q, k), given)
        except Refusal as error:
            why = f"a batch of 3 rows of {length} was refused ({error})"
            found.refused.append(("refused", {"why": why}))
            return None
        for row in range(3):
            for name, y, z in zip(NAMES, alone[row], together, strict=True):
                if (off := unlike(probe, z[row : row + 1], y)).any():
                    return "batch-mixed", {"name": name, "row": row, "off": float(off.max())}
    return None


def _lone(probe: Probe, ids: list[int], found: Influence) -> Said | None:
    """The last token in a call of its own, as in decoding, against the same in a longer one."""
    alone, among = [], []
    for x in zip(*(each.split(1, dim=2) for each in probe.vectors(4)), strict=True):
        alone.append(probe(x, ids[-1:]))
        many = probe((x[0].repeat(1, 1, len(ids), 1), x[1].repeat(1, 1, len(ids), 1)), ids)
        among.append((many[0][:, :, -1:], many[1][:, :, -1:]))
    short, long = (
        [torch.cat(each, 2) for each in zip(*pairs, strict=True)] for pairs in (alone, among)
    )
    if found.moves(probe, (short[0], short[1]), (long[0], long[1])):
        return None
    which = int(not unlike(probe, short[0], long[0]).any())
    return "positions-ignored", {"name": NAMES[which], "how": _HOW["lone"]}
