"""Find which inputs change which results: vary one id, one vector, or one row, and compare.

The result for a token must depend only on that token's own vector and position. Unless that holds,
fitting angles makes no sense, so this module fits nothing.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rope.diagnose.probe import CallError, Pair, Probe
from rope.diagnose.report import Finding, finding

SHORT = [3, 11, 5, 14, 8, 1, 15]  # small, unordered; no other axis has 7 entries
OTHER = 13  # the position that replaces one in SHORT
PLACES = 2050  # tokens in a call that compares tokens that differ only in their place
NAMES = ("query", "key")


@dataclass
class Influence:
    """Hold what the comparisons showed.

    first: the results at SHORT. far: the farthest position that can be probed. fault: the first
    fault, or None. notes: findings on positions and batches that can't be probed. length_change:
    the largest change that a longer text causes at the same positions, relative to the largest
    result. keys_change: True if a longer text changes keys. linear: for q and for k, True if
    doubled vectors give doubled results. tokens: the length of the longest call in which places
    were compared. axis: the axis that the ids move, or None for all of them.
    """

    first: Pair
    far: int = max(SHORT)
    fault: Finding | None = None
    notes: list[Finding] = field(default_factory=list)
    length_change: float = 0.0
    keys_change: bool = False
    linear: tuple[bool, ...] = (True, True)
    tokens: int = len(SHORT)
    axis: int | None = None

    def compare_lengths(self, probe: Probe, short: Pair, long: Pair) -> bool:
        """Record how a longer text changes results; return True if it changes only their sizes."""
        scaled = True
        for y, z in zip(short, long, strict=True):
            unit = z / z.abs().amax(2, True) / z.abs().amax(2, True)  # squares could overflow
            factor = ((y * unit).sum(2, True) / (z * unit).sum(2, True)).nan_to_num(1.0)
            near = max(8 * probe.eps, 2.0**-14) * y.abs().amax(-1, keepdim=True)
            scaled &= bool((factor > 0).all() and ((y - factor * z).abs() <= near).all())
            share = float(unlike(probe, y, z).max() / z.abs().max())
            self.length_change = max(self.length_change, share)
        self.keys_change |= share > 0  # share is now the key's
        return scaled


def unlike(probe: Probe, left: Tensor, right: Tensor, along: int = -1) -> Tensor:
    """Return |left - right|, with 0 where a few roundings can explain the difference.

    along: the axis along which the largest entry sets the size of a rounding: -1 (coordinates) or
    2 (tokens). The rule also allows for intermediate rounding to float32.
    """
    size = torch.maximum(left.abs(), right.abs()).amax(along, keepdim=True)
    off = (left - right).abs()
    return off * (off > max(2 * probe.eps, 2.0**-20) * size)


def changed_since(probe: Probe, first: Pair, again: Pair, variant: str) -> Finding | None:
    """Return a finding if a repeated call gave different results. variant: "again" or "later"."""
    for name, y, z in zip(NAMES, first, again, strict=True):
        if (off := unlike(probe, z, y)).any():
            return finding("stateful", variant, name=name, off=float(off.max()))
    return None


def short_text(probe: Probe, rows: int = 1) -> Pair:
    """Return q and k with the same vector at all tokens, so that only positions can differ."""
    q, k = (x.expand(rows, -1, len(SHORT), -1).clone() for x in probe.vectors(1))
    for x in (q, k):
        x[..., 0] = -x[..., 1]  # a norm that subtracts the mean must not leave zeros
    return q, k


def _farthest(probe: Probe, first: Pair, most: int) -> Influence:
    """Find the farthest position below `most` that can be probed. first: the results at SHORT."""
    x, small = probe.vectors(len(SHORT)), [y.abs().amax((1, 2)) for y in first]
    decayed = {}  # by position: whether sizes differ there by a factor of over 1,000

    def obstacle(position: int) -> Finding | str:
        """Return what prevents probing: a note, "infinite", or "0"; return "" if nothing does."""
        try:
            result = probe(x, [*SHORT[:4], position, position, position])
        except CallError as error:
            return finding("reach", "raised", position=position, error=error)
        if not all(y.isfinite().all() for y in result):
            return "infinite"
        there = [z[:, :, 4:].abs().amax((1, 2)) / y for y, z in zip(small, result, strict=True)]
        powers = torch.cat(there).nan_to_num(1.0).log2().abs().max()
        if powers.isinf():
            return "0"
        decayed[position] = bool(powers > 10)
        # With xPos centered on the text, the ends are too large and too small to be fitted.
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
        # Probe only half as far, because numbers near 0 have fewer bits.
        low, beyond = low // 2, finding("reach", "sizes", position=high, sizes=beyond)
    elif beyond == "infinite":
        beyond = finding("not-finite", begin=high)
    if isinstance(beyond, Finding):
        return Influence(first, low, notes=[beyond])
    return Influence(first, most - 1)


def measure_influence(probe: Probe, max_position: int) -> Influence:
    """Make the comparisons in turn, and return what they showed up to the first fault."""
    x = short_text(probe)
    first, again = probe(x, SHORT), probe(x, SHORT)
    if not all(y.isfinite().all() for y in first):
        return Influence(first, fault=finding("not-finite", begin=min(SHORT)))
    if fault := changed_since(probe, first, again, "again"):
        return Influence(first, fault=fault)
    influence = _farthest(probe, first, max_position)
    # Put the farthest position into every call, because the spectrum may depend on the length.
    ids = [*SHORT[:-1], influence.far]
    base = probe(x, ids)
    short, long = ((y[:, :, :-1], z[:, :, :-1]) for y, z in (first, base))
    influence.compare_lengths(probe, short, long)
    twice = probe((2 * x[0], 2 * x[1]), ids)
    influence.linear = tuple(
        not unlike(probe, z, 2 * y).any() for y, z in zip(base, twice, strict=True)
    )
    influence.fault = (
        _tokens(probe, x, ids, base)
        or _positions(probe, x, ids, base)
        or _places(probe, influence)
        or _rows(probe, ids, base, influence)
    )
    return influence


def _tokens(probe: Probe, x: Pair, ids: list[int], base: Pair) -> Finding | None:
    """Return a fault if changing one token's vector changes other tokens or the other tensor."""
    token, vectors = 4, probe.vectors(1, seed=1)
    for which, name in enumerate(NAMES):
        q, k = changed = x[0].clone(), x[1].clone()
        changed[which][:, :, token] = 3 * vectors[which][:, :, 0]  # also change its size
        for other, y, z in zip(NAMES, base, probe((q, k), ids), strict=True):
            off = unlike(probe, z, y)
            if other == name:
                off[:, :, token] = 0
            if off.any():
                return finding("tokens-mixed", name=name, other=other, off=float(off.max()))
    return None


def _positions(probe: Probe, x: Pair, ids: list[int], base: Pair) -> Finding | None:
    """Return a fault unless changing a token's id changes all of its heads, and no other token."""
    moved: list[list[Tensor]] = [[], []]  # for q and k, for two tokens: bool [H, S]
    for token in (0, 2):
        result = probe(x, [OTHER if i == token else m for i, m in enumerate(ids)])
        for rows, y, z in zip(moved, base, result, strict=True):
            rows.append(unlike(probe, z, y)[0].any(-1))
            # After a decay, only slow planes may be left to show the change.
            near = unlike(probe, z[:, :, :-1], y[:, :, :-1], along=2)
            rows[-1][:, token] |= near[0, :, token].any(-1)
    states = [_state(probe, x, ids, base, which, moved[which]) for which in (0, 1)]
    for name, state in zip(NAMES, states, strict=True):
        if state == "axis":
            return finding("wrong-axis", name=name)
    for which, name in enumerate(NAMES):
        only_this = states[which] == "still" and states[1 - which] == "right"
        if states[which] == "some" or only_this:
            share = int((moved[which][0][:, 0] | moved[which][1][:, 2]).sum())
            return finding(f"{name}-unrotated", share=share, heads=probe.heads[which])
    for name, state in zip(NAMES, states, strict=True):
        if state != "right":
            return finding("positions-ignored", state, name=name)
    return None


def _places(probe: Probe, influence: Influence) -> Finding | None:
    """Return a fault if equal vectors at equal positions differ by their place in a long call."""
    q, k = (x[:, :, :1].expand(-1, -1, PLACES, -1) for x in short_text(probe))
    try:
        result = probe((q, k), [OTHER] * PLACES)
    except CallError:
        return None
    influence.tokens = PLACES
    for name, y in zip(NAMES, result, strict=True):
        off = unlike(probe, y, y[:, :, :1]).amax((0, 1, 3))
        if off.any():
            begin = int(off.nonzero()[0, 0])
            return finding("positions-ignored", "place", name=name, begin=begin)
    return None


def _state(
    probe: Probe, x: Pair, ids: list[int], base: Pair, which: int, moved: list[Tensor]
) -> str:
    """Name how q or k follows the ids of tokens 0 and 2. moved: what each id changed, `[H, S]`."""
    heads, y = probe.heads[which], base[which]
    own = [rows[:, token] for token, rows in zip((0, 2), moved, strict=True)]
    if heads == len(ids) and moved[1][2].all() and not own[1].all():
        return "axis"  # the id of token 2 rotates head 2
    only_own = all(rows.sum() == column.sum() for column, rows in zip(own, moved, strict=True))
    if only_own and all(column.any() for column in own):
        return "right" if (own[0] | own[1]).all() else "some"
    if any(rows.any() for rows in moved):
        return "others"
    if unlike(probe, y, y[:, :, :1]).any():
        return "counted"
    if unlike(probe, probe(x, ids[::-1])[which], y).any():
        return "others"
    # All tokens are alike. If heads are rotated by index, more results change than inputs did.
    q, k = flipped = x[0].clone(), x[1].clone()
    flipped[which].copy_(x[which].flip(-1))
    touched = unlike(probe, probe((q, k), ids)[which], y) > 0
    more = touched.sum(-1) > (flipped[which] != x[which]).sum(-1)
    return "axis" if heads > 1 and more.any() else "still"


def _rows(probe: Probe, ids: list[int], base: Pair, influence: Influence) -> Finding | None:
    """Return a fault if a batch of three rows gives other results than its rows one by one, or if a
    one-token call, as in decoding, rotates unlike longer calls.
    """
    rows = [ids, [*reversed(ids[:-1]), ids[-1]], [*([OTHER] * 3), *ids[3:]]]
    for length in (len(ids), 1):
        q, k = (x[:, :, -length:] for x in short_text(probe, 3))
        last = [row[-length:] for row in rows]
        try:
            single = [probe((q[:1], k[:1]), row) for row in last]
            together = probe((q, k), last)
        except CallError as error:
            influence.notes.append(finding("batch-rejected", length=length, error=error))
            return None
        (q, k), (y, z) = single[0], (x[:, :, -length:] for x in base)
        if not influence.compare_lengths(probe, (q, k), (y, z)):
            name = NAMES[int(not unlike(probe, q, y).any())]
            return finding("positions-ignored", "lone", name=name)
        for row in range(3):
            for name, y, z in zip(NAMES, single[row], together, strict=True):
                if (off := unlike(probe, z[row : row + 1], y)).any():
                    return finding("batch-mixed", name=name, row=row, off=float(off.max()))
    return None
