"""What depends on what: change one id, one vector or one row, and see which results move.

A rotation is a function of each token's own vector and its own position. Before the angles are
worth looking at, that must hold, so here nothing is fitted: results are compared with results.

Shapes: H heads, S sequence, D head dimension.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rope.diagnose.probe import Pair, Probe, Refusal

SHORT = [3, 11, 5, 14, 8, 1, 15]  # small, apart, in no order: a length unlike H, H_kv and the batch
OTHER = 13  # what one of them is changed to
NAMES = ("query", "key")


@dataclass
class Influence:
    """code, sentence: the fault, or None. far: the farthest position taken.

    nan_from: from where results are not finite; refused: sentences of what was not taken.
    moved: by how much results at the short text's positions change beside `far`.
    linear: for q and k, whether doubled vectors give doubled results (no norm).
    """

    code: str | None = None
    sentence: str = ""
    far: int = 0
    nan_from: int | None = None
    refused: list[str] = field(default_factory=list)
    moved: float = 0.0
    linear: tuple[bool, bool] = (True, True)
    first: Pair | None = None


def same(probe: Probe, left: Tensor, right: Tensor) -> Tensor:
    """Entries equal but for a few roundings, of what came back or of float32 on the way."""
    size = torch.maximum(left.abs(), right.abs()).amax(-1, keepdim=True)
    return (left - right).abs() <= max(8 * probe.eps, 2.0**-20) * size


def short_text(probe: Probe) -> Pair:
    """One vector a head, the same at all tokens: only positions can tell the tokens apart."""
    q, k = probe.vectors(1)
    return q.expand(-1, -1, len(SHORT), -1), k.expand(-1, -1, len(SHORT), -1)


def farthest(probe: Probe, x: Pair, most: int) -> Influence:
    """The last position that is taken, and what stands in the way beyond it."""

    def taken(position: int) -> str:
        try:
            result = probe(x, [*SHORT[:-1], position])
        except Refusal as error:
            return f"position {position} was refused ({error})"
        return "" if all(each.isfinite().all() for each in result) else "nan"

    low, high = max(SHORT), most - 1
    why = taken(high)
    if not why:
        return Influence(far=high)
    while high - low > 1:
        middle = (low + high) // 2
        said = taken(middle)
        low, high, why = (low, middle, said) if said else (middle, high, why)
    if why == "nan":
        return Influence(far=low, nan_from=high)
    return Influence(far=low, refused=[why])


def influences(probe: Probe, max_position: int) -> Influence:
    """The first comparison that fails, or an Influence without a code."""
    x = short_text(probe)
    first = probe(x, SHORT)
    if not all(each.isfinite().all() for each in first):
        return Influence("not-finite", "results at small positions are NaN or infinite", max(SHORT))
    found = farthest(probe, x, max_position)
    found.first = first
    ids = [*SHORT[:-1], found.far]  # the farthest in every call: a spectrum may follow the length
    base = probe(x, ids)
    for y, z in zip(base, first, strict=True):
        if not same(probe, z, y)[:, :, :-1].all():
            off = (z - y)[:, :, :-1].abs().max() / z.abs().max()
            found.moved = max(found.moved, float(off))
    double = probe((2 * x[0], 2 * x[1]), ids)
    linear = [bool(same(probe, z, 2 * y).all()) for y, z in zip(base, double, strict=True)]
    found.linear = linear[0], linear[1]
    found.code, found.sentence = (
        _of_tokens(probe, x, ids, base) or _of_positions(probe, x, ids, base) or (None, "")
    )
    if found.code is None:
        found.code, found.sentence = _of_rows(probe, x, ids, base, found) or (None, "")
    return found


def _of_tokens(probe: Probe, x: Pair, ids: list[int], base: Pair) -> tuple[str, str] | None:
    """Another vector at one token, which neither other tokens nor the other tensor may notice."""
    other, token = probe.vectors(1, seed=1), 4
    for which, name in enumerate(NAMES):
        changed = [each.clone() for each in x]
        changed[which][:, :, token] = 3 * other[which][:, :, 0]  # of another size, too
        for noticing, y, z in zip(NAMES, base, probe((changed[0], changed[1]), ids), strict=True):
            off = (z - y).abs() * ~same(probe, z, y)
            if noticing == name:
                off[:, :, token] = 0
            if off.any():
                return "tokens-mixed", (
                    f"another {name} at one token changes the {noticing}"
                    f"{' of others' * (noticing == name)} by up to {float(off.max()):.2g}"
                )
    return None


def _of_positions(probe: Probe, x: Pair, ids: list[int], base: Pair) -> tuple[str, str] | None:
    """Another id at one token, which that token alone must notice, in all heads, in q and in k."""
    moved: list[list[Tensor]] = [[], []]  # for q and k, for two tokens: bool [H, S]
    for token in (0, 2):
        changed = [*ids]
        changed[token] = OTHER
        for which, (y, z) in enumerate(zip(base, probe(x, changed), strict=True)):
            moved[which].append(~same(probe, z, y)[0].all(-1))
    states = [_state(probe, x, ids, base, moved[which], which) for which in (0, 1)]
    if states == ["right", "right"]:
        return None
    for which, name in enumerate(NAMES):
        if states[which] == "axis":
            return (
                "wrong-axis",
                f"the {name}'s heads are turned by angles of their own: a head's "
                "number, or the id of the token of that number, stands for the position",
            )
    for which, name in enumerate(NAMES):
        if states[which] == "still" and states[1 - which] == "right":
            return f"{name}-unrotated", f"the {name} is the same at every position"
        if states[which] == "some":
            share = int(moved[which][0][:, 0].sum()), probe.heads[which]
            return f"{name}-unrotated", f"{share[0]} of {share[1]} {name} heads are rotated"
    if states == ["still", "still"]:
        return "positions-ignored", "all tokens of a call are turned alike, or not at all"
    which = next(i for i in (0, 1) if states[i] not in ("right", "still"))
    why = {
        "counted": "is turned by the token's place in the call, and its id is not read",
        "others": "changes at tokens whose id has not changed: ids are counted from one of them",
    }[states[which]]
    return "positions-ignored", f"the {NAMES[which]} {why}"


def _state(
    probe: Probe, x: Pair, ids: list[int], base: Pair, moved: list[Tensor], which: int
) -> str:
    """How one of q and k follows the ids of tokens 0 and 2."""
    heads, y = probe.heads[which], base[which]
    if heads == len(ids) and any(
        rows[token].all() and not rows[:, token].all()
        for token, rows in zip((0, 2), moved, strict=True)
    ):
        return "axis"
    alone = [rows.sum() == rows[:, token].sum() for token, rows in zip((0, 2), moved, strict=True)]
    if all(alone) and all(rows[:, token].all() for token, rows in zip((0, 2), moved, strict=True)):
        return "right"
    if any(rows.any() for rows in moved):
        return "some" if all(alone) and all(rows.any() for rows in moved) else "others"
    if not same(probe, y, y[:, :, :1]).all():
        return "counted"
    # Not turned along the tokens: by one id for all, or by heads. Two
    # entries exchanged then move others than themselves.
    if not same(probe, probe(x, ids[::-1])[which], y).all():
        return "others"
    exchanged = [each.clone() for each in x]
    vector = exchanged[which][0, :, 0]
    order = torch.arange(probe.head_dim).repeat(heads, 1)
    for head in range(heads):
        up, down = int(vector[head].argmax()), int(vector[head].argmin())
        order[head, [up, down]] = order[head, [down, up]]
    exchanged[which] = x[which].gather(-1, order[None, :, None].expand_as(x[which]))
    z = probe((exchanged[0], exchanged[1]), ids)[which]
    touched = (~same(probe, z, y))[0, :, 0].sum(-1)
    return "axis" if heads > 1 and (touched > 2).any() else "still"


def _of_rows(
    probe: Probe, x: Pair, ids: list[int], base: Pair, found: Influence
) -> tuple[str, str] | None:
    """Three rows of other positions, against each row by itself."""
    rows = [ids, [*reversed(ids[:-1]), ids[-1]], [*([OTHER] * 3), *ids[3:]]]
    three = tuple(each.expand(3, -1, -1, -1) for each in x)
    try:
        together = probe((three[0], three[1]), rows)
    except Refusal as error:
        found.refused.append(f"a batch of 3 rows was refused ({error})")
        return None
    for row, alone in enumerate((base, *(probe(x, each) for each in rows[1:]))):
        for name, y, z in zip(NAMES, alone, together, strict=True):
            if not same(probe, z[row : row + 1], y).all():
                off = float((z[row] - y[0]).abs().max())
                return "batch-mixed", (
                    f"the {name} of row {row} in a batch of 3 differs by {off:.2g} from the same "
                    "row by itself"
                )
    return None
