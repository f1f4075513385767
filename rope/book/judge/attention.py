"""Steps 7 and 8: a layer with grouped heads, mask and cache; padded and packed rows.

Chapter "Rotary attention". Shapes: B batch, H heads, S sequence, D head dimension, E width of the
model. The layer has its flaws as switches: each is a mistake that the judge knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

import rope
from rope.book.judge.answers import Function, Part, Unusable
from rope.book.judge.rotations import BASE, LAYOUTS, WIDTH, like, tensor, two

# Step 7: attention with grouped heads, a causal mask and a cache.
HEADS, KEY_HEADS, EMBED = 6, 2, 24


@dataclass(frozen=True)
class Text:
    """Tokens at given positions, of which each call of the layer gets some."""

    position_ids: tuple[tuple[int, ...], ...]
    calls: tuple[int, ...]

    def __repr__(self) -> str:
        rows = " and ".join(map(str, map(list, self.position_ids)))
        return f"x at positions {rows}, in calls of {' + '.join(map(str, self.calls))}"


def _texts(draw: Random) -> list[tuple[Any, ...]]:
    ids = (0, 1, 2, 3, 4), (2, 3, 7, 8, 11)
    calls = (1,), (5,), (4, 1), (1, 1, 1, 1, 1), (2, 3)
    one = [(Text((ids[0][: sum(each)],), each),) for each in calls]
    far = tuple(tuple(sorted(draw.sample(range(60), 20))) for _ in "ab")
    rows = (
        ((ids[1],), (5,)),
        ((ids[1],), (2, 3)),
        (ids, (3, 1, 1)),
        (far, (12, 1, 7)),
    )
    return [*one, *((Text(*row),) for row in rows)]


def _played(layer: Function) -> Function:
    """What a layer gives for a whole text, call by call."""

    def played(text: Text) -> Tensor:
        ids, noise = torch.tensor(text.position_ids), torch.Generator().manual_seed(7)
        x = torch.randn(*ids.shape, EMBED, generator=noise)
        widths = {"q": HEADS * WIDTH, "k": KEY_HEADS * WIDTH, "v": KEY_HEADS * WIDTH}
        w = {name: torch.randn(n, EMBED, generator=noise) / 3 for name, n in widths.items()}
        w["o"] = torch.randn(EMBED, HEADS * WIDTH, generator=noise) / 8
        parts, cache = [], None
        for here, at in zip(x.split(text.calls, 1), ids.split(text.calls, 1), strict=True):
            result = layer(here.clone(), w, WIDTH, at, cache)
            y, cache = two(result, "things are asked for, y and the cache")
            parts.append(like("y", here, y, exact=False))
        return torch.cat(parts, dim=1)

    return played


def _layer(flaw: str = "", interleaved: bool = False) -> Function:
    """The layer of step 7, or one with a flaw."""
    known: dict[int, Tensor] = {}

    def split(y: Tensor) -> Tensor:
        heads = y.unflatten(-1, (-1, WIDTH)).transpose(1, 2)
        return y.reshape(heads.shape) if flaw == "unsplit" else heads

    def turned(x: Tensor, at: Tensor) -> Tensor:
        return rope.RotaryEmbedding(WIDTH, base=BASE, interleaved=interleaved).rotate(x, at)

    def layer(x: Tensor, w: dict[str, Tensor], head_dim: int, ids: Tensor, cache: Any) -> Any:
        q, k, v = (split(linear(x, w[name])) for name in "qkv")
        none = k[:, :, :0], v[:, :, :0], ids[:, :0]
        past = cache if cache and flaw != "forgotten" else none
        here, before = torch.arange(x.shape[1]).expand_as(ids), past[0].shape[2]
        other = {"counted": here, "cached count": here + before, "first row": ids[:1]}
        other["stale"] = known.setdefault(x.shape[1], ids[:1])
        ids = other.get(flaw, ids).expand_as(ids)
        q = q if flaw == "unturned" else turned(q, here if flaw == "queries counted" else ids)
        bare, k = torch.cat((past[0], k), dim=2), torch.cat((past[0], turned(k, ids)), dim=2)
        v = torch.cat((past[1], turned(v, ids) if flaw == "values" else v), dim=2)
        at = torch.cat((past[2], ids), dim=1)
        k = turned(bare, at) if flaw == "again" else k
        cache = bare if flaw in ("bare", "keys as they are", "unturned") else k, v, at
        k = bare if flaw in ("late", "keys as they are", "unturned") else k
        if flaw == "new first":
            k, v = (torch.cat((y[:, :, before:], y[:, :, :before]), dim=2) for y in (k, v))
        heads = torch.arange(HEADS)
        heads = heads % KEY_HEADS if flaw == "tiled" else heads // (HEADS // KEY_HEADS)
        k, v = k[:, heads], v[:, heads]
        first = {"top left": 0, "strict": before - 1}
        seen = torch.ones(x.shape[1], k.shape[2]).tril(first.get(flaw, before)).bool()
        if flaw == "by place":
            seen = torch.arange(k.shape[2]) <= ids[:, None, :, None]
        if flaw == "upper":
            seen = torch.ones(x.shape[1], k.shape[2]).triu(before).bool()
        seen ^= flaw == "inverted"
        seen |= flaw == "unmasked" or (flaw == "cache unmasked" and before > 0)
        masked = lambda y: y.masked_fill(~seen, 0.0 if flaw in ("zeros", "after") else -torch.inf)
        late = flaw in ("after", "after, −∞")
        scores = q @ k.mT * SCALES.get(flaw, WIDTH**-0.5)
        scores = scores + seen if flaw == "added" else scores if late else masked(scores)
        weights = scores.softmax(dim=-2 if flaw == "queries" else -1)
        weights = masked(weights) if late else weights
        y = weights @ v * (WIDTH**-0.5 if flaw == "scaled late" else 1)
        y = y if flaw == "unjoined" else y.transpose(1, 2)
        return linear(y.reshape(*x.shape[:2], -1), w["o"]), cache

    return layer


SCALES = {"unscaled": 1.0, "scaled late": 1.0, "by D": 1 / WIDTH, "by E": EMBED**-0.5}
FLAWS = {
    "unmasked": "tokens see later ones: the causal mask is missing",
    "cache unmasked": "with a cache tokens see later ones: the mask is missing there",
    "strict": "a token does not see itself, and the first one sees nothing",
    "by place": "the mask compares places in the row with position_ids: count places alone",
    "added": "a mask of floats is added to the scores, and hides nothing: make it bool",
    "upper": "the mask keeps what triu keeps, later tokens; it must be what tril keeps",
    "inverted": "the mask is True where a key must not be seen; it must be True where it may",
    "new first": "the new keys come before those of the cache, and must come behind them",
    "top left": "with a cache a token sees the oldest keys alone: the mask is aligned at its top "
    "left, and must be at its bottom right",
    "zeros": "masked scores are 0, which softmax gives a weight: make them −∞",
    "after": "the mask comes after the softmax, so weights no longer sum to 1: put it before",
    "after, −∞": "the mask comes after the softmax, where −∞ is a weight: put it before",
    "queries": "softmax runs over the queries; it must run over the keys",
    "unscaled": "scores are not divided by √D",
    "scaled late": "weights are divided by √D after the softmax; scores must be, before it",
    "by D": "scores are divided by D, or twice by √D, which is too much: divide once by √D",
    "by E": "scores are divided by the root of the model's width, not of the head's",
    "tiled": "heads are grouped by repeat; neighbours share a key head: use repeat_interleave",
    "unsplit": "[B, S, H·D] is reshaped to [B, H, S, D] without a transpose",
    "unjoined": "[B, H, S, D] is reshaped to [B, S, H·D] without a transpose",
    "values": "values are turned, too; they must not be",
    "unturned": "nothing is turned: rotate queries and keys before the scores",
    "keys as they are": "keys are not turned",
    "late": "attention gets the keys of a call before they are turned",
    "bare": "keys go into the cache before they are turned, and come out unturned",
    "again": "keys from the cache are turned again in each call",
    "counted": "position_ids are not read: each call counts from 0",
    "cached count": "position_ids are not read: tokens are counted on from the cache",
    "queries counted": "queries are turned as if each call began at position 0; keys are right",
    "stale": "tables are kept by the length of a call: its positions differ, and need their own",
    "first row": "all rows get the positions of the first",
    "forgotten": "keys and values of earlier calls are not used",
}
STEP_7 = Part(
    "layer",
    "Rotary attention",
    _texts,
    {said: _layer(interleaved=layout) for said, layout in LAYOUTS.items()},
    {
        sentence: tuple(_layer(flaw, layout) for layout in LAYOUTS.values())
        for flaw, sentence in FLAWS.items()
    },
    view=torch.nan_to_num,  # of a token that sees nothing some functions make NaN, others 0
    calls=_played,
    roundings=64,
    near=1,  # of several mistakes the one that the first wrong call shows
    sizes={
        1: "query heads share key heads (repeat k and v, or pass enable_gqa=True), and a mask "
        "needs an axis of length 1 for the heads"
    },
)


# Step 8: where tokens stand, and what they may see.
def position_ids(documents: Tensor) -> Tensor:
    """The place of each token in its own document; `[B, S]`, of document numbers, 0 for padding."""
    alike = documents[:, :, None] == documents[:, None, :]
    return alike.tril(-1).sum(dim=-1) * (documents > 0)


def may_see(documents: Tensor) -> Tensor:
    """Whether query s sees key t; bool `[B, S, S]`."""
    alike = documents[:, :, None] == documents[:, None, :]
    return alike.tril() & (documents > 0)[:, None, :]


def _rows_of_documents(draw: Random) -> list[tuple[Any, ...]]:
    rows: list[list[list[int]]] = [
        [[1, 1]], [[0, 1]], [[1, 2]], [[0, 1, 1]], [[1, 1, 2, 2, 2]],
        [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], [[1, 1, 1, 2, 3], [1, 2, 2, 2, 2]],
        [[0, 1, 1, 2, 2], [0, 0, 0, 1, 2]],
    ]  # fmt: skip
    ends = [(draw.randrange(4), draw.randrange(5, 9), draw.randrange(9, 12)) for _ in range(3)]
    rows.append([[sum(end <= s for end in row) for s in range(12)] for row in ends])
    return [(torch.tensor(row),) for row in rows]


def _of_tokens(answer: Function) -> Function:
    """Positions; those of padding count as 0, or as −1 where they are negative."""

    def positions(documents: Tensor) -> Tensor:
        ids = tensor(answer(documents))
        fits = ids.shape == documents.shape
        return torch.where(documents > 0, ids, ids.clamp(-1, 0)) if fits else ids

    return positions


def _of_queries(answer: Function) -> Function:
    """A mask as bool `[B, S, S]`, of bool or of what is added to scores; False for padding."""

    def mask(documents: Tensor) -> Tensor:
        seen = tensor(answer(documents))
        seen = seen[:, 0] if seen.ndim == 4 and seen.shape[1] == 1 else seen
        if seen.shape != (*documents.shape, documents.shape[1]):
            return seen
        if seen.is_floating_point() and seen.max() > 0:
            raise Unusable("a mask of floats is added to scores: make it bool, or 0 and −∞")
        seen = seen > (-1e3 if seen.is_floating_point() else 0)
        return seen & (documents > 0)[:, :, None]

    return mask


COUNTS: dict[str, Callable[[Tensor], Tensor]] = {
    "": position_ids,
    "all rows count on: padding and documents are not read": (
        lambda d: torch.arange(d.shape[1]).expand_as(d)
    ),
    "positions run on over the documents of a row; each must start at 0": (
        lambda d: (d > 0).cumsum(dim=1) - 1
    ),
    "each document of a row starts one later than the one before; all must start at 0": (
        lambda d: position_ids(d) + d - 1
    ),
    "all rows get the positions of the first": lambda d: position_ids(d)[:1].expand_as(d),
}
STARTS = {
    "": (0, 0),
    "positions start at 1; no score changes, but the last has no row in a full table": (1, 0),
    "padding has a negative position: an index reads the last row, a kernel other memory": (
        (0, -1)
    ),
}


def _counted(count: Callable[[Tensor], Tensor], start: int, padding: int) -> Function:
    return lambda d: torch.where(d > 0, count(d) + start, padding)


# Of documents a of queries, b of keys, and what is causal.
SIGHTS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "later tokens are seen: the mask is not causal": lambda a, b, low: a == b,
    "a document sees the ones before it, and padding": lambda a, b, low: low & (a == a),
    "a document sees the ones before it": lambda a, b, low: low & (b > 0),
    "a token does not see itself": lambda a, b, low: (a == b) & low & ~low.T,
    "queries and keys have changed places": lambda a, b, low: (a == b) & low.T,
    "tokens see later ones alone, not even themselves": lambda a, b, low: (a == b) & ~low,
    "True stands where a key must not be seen: turn it round": lambda a, b, low: (a != b) | ~low,
    "nothing is masked": lambda a, b, low: (a == a) & (b == b),
    "only padding is masked": lambda a, b, low: (b > 0) & (a == a),
}


def _sight(rule: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Function:
    low = lambda d: torch.ones(d.shape[1], d.shape[1]).tril().bool()
    return lambda d: rule(d[:, :, None], d[:, None, :], low(d))


STEP_8 = (
    Part(
        "position_ids",
        "Rotary attention: padding",
        _rows_of_documents,
        {"": position_ids},
        {
            "; ".join(filter(None, (what, start))): _counted(count, *start_and_padding)
            for what, count in COUNTS.items()
            for start, start_and_padding in STARTS.items()
            if what or start
        },
        calls=_of_tokens,
    ),
    Part(
        "may_see",
        "Rotary attention: padding",
        _rows_of_documents,
        {"": may_see},
        {cause: _sight(rule) for cause, rule in SIGHTS.items()},
        calls=_of_queries,
    ),
)

PARTS = {7: (STEP_7,), 8: STEP_8}
