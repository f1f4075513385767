"""Call an unknown rotation, and find which inputs affect which results.

`Probe` passes copies of its inputs. Every dtype represents its vectors exactly. Most vectors have
entries ±1 and thus the same length, so a norm before the rotation scales all of them by the same
factor. Each comparison changes one id, one vector, or one row. A token's result must depend only on
its own vector and position; otherwise there are no angles to fit.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rope.checks import FLOATING
from rope.diagnose.codes import Finding, finding, listed

SHORT = [3, 11, 5, 14, 8, 1, 15]  # small and unordered; no other axis has 7 entries
OTHER = 13  # the position that replaces one in SHORT
PLACES = 2050  # tokens in the call that compares equal tokens at different places
NAMES = ("query", "key")
Pair = Sequence[Tensor]  # q and k
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class CallError(Exception):
    """Signal that the function under examination raised an exception."""


@dataclass
class Probe:
    """Call the function under examination, and record what its calls show.

    rotate, expected, cache, device: as in `diagnose`. heads: `(H, H_kv)`. dtype: the usual dtype of
    q and k. changed: the names of the inputs that rotate overwrote. returned: the dtype of the
    results for each dtype of q and k. first: the results at SHORT. far: the farthest position that
    can be probed. notes: findings on positions and batches that can't be probed. missed: what else
    could not be examined. length_change: the largest change that a longer text causes at the same
    positions, relative to the largest result. keys_change: True if a longer text changes keys.
    linear: for q and k, True if doubling the vectors doubles the results. gains: factors `[D]` on
    the results that undo the gains of a norm after the rotation.
    """

    rotate: Callable[..., Any]
    head_dim: int
    expected: Any
    cache: bool
    device: torch.device | str | None
    heads: tuple[int, int]
    dtype: torch.dtype
    changed: set[str] = field(default_factory=set)
    returned: dict[torch.dtype, torch.dtype] = field(default_factory=dict)
    first: Pair = ()
    far: int = max(SHORT)
    notes: list[Finding] = field(default_factory=list)
    length_change: float = 0.0
    keys_change: bool = False
    linear: tuple[bool, ...] = (True, True)
    missed: list[str] = field(default_factory=list)
    gains: Sequence[Tensor | float] = (1.0, 1.0)

    def vectors(self, tokens: int, seed: int = 0, signs: bool = True) -> Pair:
        """Return random q `[1, H, S, D]` and k `[1, H_kv, S, D]`, all ±1 if signs, else normal."""
        noise = torch.Generator().manual_seed(seed)
        shapes = [(1, heads, tokens, self.head_dim) for heads in self.heads]
        q, k = (torch.randn(shape, generator=noise, dtype=torch.float64) for shape in shapes)
        return (q.sign(), k.sign()) if signs else ((32 * q).round() / 32, (32 * k).round() / 32)

    def __call__(self, x: Pair, position_ids: Any, dtype: torch.dtype | None = None) -> Pair:
        """Rotate x at position_ids `[S]` or `[B, S]`; return float64 results on the CPU.

        Raises CallError if rotate fails, and ValueError unless it returns a pair with x's shapes.
        """
        dtype = dtype or self.dtype
        ids = torch.atleast_2d(torch.as_tensor(position_ids, dtype=torch.int64))
        arguments = {"q": x[0].to(dtype), "k": x[1].to(dtype), "position_ids": ids}
        try:
            copies = [value.to(self.device, copy=True) for value in arguments.values()]
            with torch.no_grad():
                result = self.rotate(*copies)
            for (name, value), copy in zip(arguments.items(), copies, strict=True):
                self.changed |= set() if torch.equal(value, copy.cpu()) else {name}
        except Exception as error:
            message = " ".join(str(error).split())[:200]
            raise CallError(f"{type(error).__name__}: {message}") from error
        pair = result if isinstance(result, (tuple, list)) else [result]
        valid = [y for y in pair if isinstance(y, Tensor) and y.dtype in FLOATING and not y.is_meta]
        if len(valid) != len(pair) or [y.shape for y in valid] != [y.shape for y in x]:
            kinds = [f"{y.dtype} {list(y.shape)}" if torch.is_tensor(y) else repr(y) for y in pair]
            raise ValueError(
                f"rotate returned {' and '.join(kinds)}; it must return a pair of floating-point "
                f"tensors, q {list(x[0].shape)} and k {list(x[1].shape)}, not on the meta device; "
                "wrap it in a function that does"
            )
        self.returned[dtype] = pair[0].dtype if pair[0].dtype != dtype else pair[1].dtype
        y, z = (y.detach().to("cpu", torch.float64, copy=True) for y in pair)
        return y * self.gains[0], z * self.gains[1]

    @property
    def eps(self) -> float:
        """Return the machine epsilon of the dtype that rotate returns."""
        return float(torch.finfo(self.returned.get(self.dtype, self.dtype)).eps)

    def compare_lengths(self, short: Pair, long: Pair) -> bool:
        """Record how a longer text changes results; return True if it changes only their sizes."""
        scaled = True
        for y, z in zip(short, long, strict=True):
            unit = z / z.abs().amax(2, True) / z.abs().amax(2, True)  # squares could overflow
            factor = ((y * unit).sum(2, True) / (z * unit).sum(2, True)).nan_to_num(1.0)
            near = max(8 * self.eps, 2.0**-14) * y.abs().amax(-1, keepdim=True)
            scaled &= bool((factor > 0).all() and ((y - factor * z).abs() <= near).all())
            share = float(unlike(self, y, z).max() / z.abs().max())
            self.length_change = max(self.length_change, share)
        self.keys_change |= share > 0  # the loop ends with the key's share
        return scaled


def unlike(probe: Probe, left: Tensor, right: Tensor, along: int = -1) -> Tensor:
    """Return |left - right|, or 0 where a few roundings can explain the difference.

    A rounding is relative to the largest entry along one axis. along: this axis, either -1
    (coordinates) or 2 (tokens). Intermediate rounding to float32 is also allowed for.
    """
    size = torch.maximum(left.abs(), right.abs()).amax(along, keepdim=True)
    off = (left - right).abs()
    return off * (off > max(2 * probe.eps, 2.0**-20) * size)


def difference(
    probe: Probe, results: Pair, again: Pair, code: str, variant: str = "", **facts: object
) -> Finding | None:
    """Return a finding on the first tensor that differs between two calls, or None."""
    for name, y, z in zip(NAMES, results, again, strict=True):
        if (off := unlike(probe, z, y)).any():
            return finding(code, variant, name=name, off=float(off.max()), **facts)
    return None


def short_text(probe: Probe, rows: int = 1) -> Pair:
    """Return q and k with the same vector at all tokens, so that tokens differ only in position."""
    q, k = (x.expand(rows, -1, len(SHORT), -1).clone() for x in probe.vectors(1))
    for x in (q, k):
        x[..., 0] = -x[..., 1]  # a norm that subtracts the mean must not leave zeros
    return q, k


def _farthest(probe: Probe, most: int) -> None:
    """Set `probe.far` to the farthest usable position below `most`, and note what limits it."""
    x, small = probe.vectors(len(SHORT)), [y.abs().amax((1, 2)) for y in probe.first]
    decayed = {}  # maps a position to True if sizes there differ from `small` over 1,000-fold

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
        # If xPos is centered on the text, results at the text's ends are too large or small to fit.
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
    probe.far = low if isinstance(beyond, Finding) else most - 1
    probe.notes += [beyond] if isinstance(beyond, Finding) else []


def first_mixture(probe: Probe, max_position: int) -> Finding | None:
    """Compare calls, record what the comparisons show, and return the first fault, or None."""
    x = short_text(probe)
    probe.first, again = probe(x, SHORT), probe(x, SHORT)
    if not all(y.isfinite().all() for y in probe.first):
        return finding("not-finite", begin=min(SHORT))
    if fault := _zeros(again) or difference(probe, probe.first, again, "stateful", "again"):
        return fault
    _farthest(probe, max_position)
    # Put the farthest position into every call, because the spectrum may depend on the length.
    ids = [*SHORT[:-1], probe.far]
    base, twice = probe(x, ids), probe((2 * x[0], 2 * x[1]), ids)
    probe.compare_lengths(*([y[:, :, :-1] for y in pair] for pair in (probe.first, base)))
    probe.linear = tuple(
        not unlike(probe, z, 2 * y).any() for y, z in zip(base, twice, strict=True)
    )
    return (
        _vectors(probe, x, ids, base)
        or _positions(probe, x, ids, base)
        or _places(probe)
        or _rows(probe, ids, base)
        or _strides(probe, x, ids, base)
    )


def _vectors(probe: Probe, x: Pair, ids: list[int], base: Pair) -> Finding | None:
    """Return a fault if changing the vector of a token or a head also changes other results."""
    for which, name in enumerate(NAMES):
        token, head = torch.zeros(2, *base[which].shape[:3]).bool()
        token[:, :, 4] = True
        for i in range(len(ids)):  # change other heads at each token
            head[:, i :: len(ids), i] = True
        # Reversed vectors keep their mean and size, in case a norm spans all heads. Ignore small
        # changes in other heads: they come from quantizing all heads with one scale.
        large, turned = 3 * probe.vectors(1, seed=1)[which].expand_as(x[which]), x[which].flip(-1)
        cases = ("tokens", token, large, 0.0), ("heads", head, turned, 0.25)
        for variant, own, new, least in cases:
            changed = [*x]
            changed[which] = torch.where(own[..., None], new, x[which])
            for other, y, z in zip(NAMES, base, probe(changed, ids), strict=True):
                off = unlike(probe, z, y) * (~own[..., None] if other == name else 1)
                off *= off > least * y.abs().amax(-1, keepdim=True)
                for _, at, i, _ in off.nonzero()[:1].tolist():
                    heads = listed("head", own[0, :, i].nonzero())
                    facts = dict(heads=heads, at=at, off=float(off.max()))
                    return finding("tokens-mixed", variant, name=name, other=other, **facts)
    return None


def _zeros(pair: Pair) -> Finding | None:
    """Return a fault if all numbers of a head are zero at some token."""
    for name, y in zip(NAMES, pair, strict=True):
        _, heads, tokens = (y == 0).all(-1).nonzero().T
        if len(heads):
            facts = dict(heads=listed("head", heads.unique()), begin=int(tokens.min()))
            return finding("positions-ignored", "zero", name=name, **facts)
    return None


def _positions(probe: Probe, x: Pair, ids: list[int], base: Pair) -> Finding | None:
    """Return a fault unless a token's position id affects all heads of this token and no other."""
    moved: list[list[Tensor]] = [[], []]  # a bool [H, S] for each of two tokens, for q and for k
    for token in (0, 2):
        result = probe(x, [OTHER if i == token else m for i, m in enumerate(ids)])
        for rows, y, z in zip(moved, base, result, strict=True):
            rows.append(unlike(probe, z, y)[0].any(-1))
            # After a decay, perhaps only the slow planes are large enough to show the change.
            near = unlike(probe, z[:, :, :-1], y[:, :, :-1], along=2)
            rows[-1][:, token] |= near[0, :, token].any(-1)
    states = [_state(probe, x, ids, base[which], which, moved[which]) for which in (0, 1)]
    if "axis" in states:
        return finding("wrong-axis", name=NAMES[states.index("axis")])
    for name, state, other, rows in zip(NAMES, states, states[::-1], moved, strict=True):
        if state == "some" or (state, other) == ("still", "right"):
            share = int((rows[0][:, 0] | rows[1][:, 2]).sum())
            return finding(f"{name}-unrotated", share=share, heads=len(rows[0]))
    for name, state in zip(NAMES, states, strict=True):
        if state != "right":
            return finding("positions-ignored", state, name=name)
    return None


def _places(probe: Probe) -> Finding | None:
    """Return a fault if the results for equal tokens depend on their place in a long call."""
    q, k = (x.expand(-1, -1, PLACES, -1) for x in probe.vectors(1, signs=False))
    few = probe((q[:, :, : len(SHORT)], k[:, :, : len(SHORT)]), [OTHER] * len(SHORT))
    try:
        result = probe((q, k), [OTHER] * PLACES)
    except CallError:
        probe.missed.append(f"places beyond token {len(SHORT)} of a call")
        return None
    if fault := _zeros(result):
        return fault
    for name, y, z in zip(NAMES, result, few, strict=True):
        off = (y[:, :, 0].norm(dim=-1) / z[:, :, 0].norm(dim=-1) - 1).abs().max()
        if off > 0.01 + probe.eps:
            return finding("not-a-rotation", "long", name=name, off=off, tokens=PLACES)
        off = unlike(probe, y, y[:, :, :1]).amax((0, 1, 3))
        if off.any():
            begin = int(off.nonzero()[0, 0])
            return finding("positions-ignored", "place", name=name, begin=begin)
    return None


def _state(
    probe: Probe, x: Pair, ids: list[int], y: Tensor, which: int, moved: list[Tensor]
) -> str:
    """Name how q or k depends on two tokens' ids. moved `[H, S]`: the results each id changes."""
    own = [moved[0][:, 0], moved[1][:, 2]]
    if len(own[0]) == len(ids) and moved[1][2].all() and not own[1].all():
        return "axis"  # the id of token 2 rotates head 2
    ends = [int(rows.any(0).nonzero().max()) if rows.any() else -1 for rows in moved]
    if own[0].any() and own[1].any() and moved[0].sum() + moved[1].sum() == sum(map(sum, own)):
        return "right" if (own[0] | own[1]).all() else "some"
    if max(ends) >= 0:
        return "next" if own[0].any() and own[1].any() and ends == [1, 3] else "others"
    if unlike(probe, y, y[:, :, :1]).any():
        return "counted"
    if unlike(probe, probe(x, ids[::-1])[which], y).any():
        return "others"
    # No result depends on an id. If heads are rotated by index, more results change than inputs.
    flipped = x[0].clone(), x[1].clone()
    flipped[which].copy_(x[which].flip(-1))
    touched = unlike(probe, probe(flipped, ids)[which], y) > 0
    more = touched.sum(-1) > (flipped[which] != x[which]).sum(-1)
    return "axis" if len(own[0]) > 1 and more.any() else "still"


def _rows(probe: Probe, ids: list[int], base: Pair) -> Finding | None:
    """Return a fault if a row or a token gives a different result alone than in a larger call."""
    rows = [ids, [*reversed(ids[:-1]), ids[-1]], [*([OTHER] * 3), *ids[3:]]]
    for length in (len(ids), 1):
        q, k = (x[:, :, -length:] for x in short_text(probe, 3))
        last = [row[-length:] for row in rows]
        try:
            single = [probe((q[:1], k[:1]), row) for row in last]
            together = probe((q, k), last)
        except CallError as error:
            probe.notes.append(finding("batch-rejected", length=length, error=error))
            return None
        (q, k), (y, z) = single[0], (x[:, :, -length:] for x in base)
        if not probe.compare_lengths((q, k), (y, z)):
            name = NAMES[int(not unlike(probe, q, y).any())]
            return finding("positions-ignored", "lone", name=name)
        for row in range(3):
            y, z = (part[row : row + 1] for part in together)
            if fault := difference(probe, single[row], (y, z), "batch-mixed", row=row):
                return fault
    return None


def _strides(probe: Probe, x: Pair, ids: list[int], base: Pair) -> Finding | None:
    """Return a fault if the results depend on the strides of q and k."""
    views = [y.transpose(1, 2).contiguous().transpose(1, 2) for y in x]
    try:
        return difference(probe, base, probe(views, ids), "strides-ignored")
    except CallError:
        probe.missed.append("q and k that are not contiguous")
        return None
