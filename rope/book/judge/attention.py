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
from rope.book.judge.rotations import BASE, LAYOUTS, WIDTH

# Step 7: attention with grouped heads, a causal mask and a cache.
HEADS, KEY_HEADS, EMBED = 4, 2, 24


@dataclass(frozen=True)
class Text:
    """Tokens at given positions, of which each call of the layer gets some."""

    position_ids: tuple[tuple[int, ...], ...]
    calls: tuple[int, ...]

    def __repr__(self) -> str:
        rows = " and ".join(map(str, map(list, self.position_ids)))
        return f"x of positions {rows}, {' + '.join(map(str, self.calls))} tokens a call"


def _texts(draw: Random) -> list[tuple[Any, ...]]:
    ids = (0, 1, 2, 3, 4), (2, 3, 7, 8, 11)
    calls = (1,), (5,), (4, 1), (1, 1, 1, 1, 1), (2, 3)
    one = [(Text((ids[0][: sum(each)],), each),) for each in calls]
    return [*one, (Text((ids[1],), (5,)),), (Text((ids[1],), (2, 3)),), (Text(ids, (3, 1, 1)),)]


def _played(layer: Function) -> Function:
    """What a layer gives for a whole text, call by call."""

    def played(text: Text) -> Tensor:
        ids, noise = torch.tensor(text.position_ids), torch.Generator().manual_seed(7)
        x = torch.randn(*ids.shape, EMBED, generator=noise)
        widths = dict(q=HEADS, k=KEY_HEADS, v=KEY_HEADS)
        w = {
            name: torch.randn(heads * WIDTH, EMBED, generator=noise) / 3
            for name, heads in widths.items()
        }
        w["o"] = torch.randn(EMBED, HEADS * WIDTH, generator=noise) / 8
        parts, cache = [], None
        for here, at in zip(x.split(text.calls, 1), ids.split(text.calls, 1), strict=True):
            result = layer(here, w, WIDTH, at, cache)
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise Unusable("layer must return two things, y and the cache")
            part, cache = result
            parts.append(part)
        return torch.cat(parts, dim=1)

    return played


def _layer(flaw: str = "", interleaved: bool = False) -> Function:
    """The layer of step 7, or one with a flaw."""

    def split(y: Tensor) -> Tensor:
        if flaw == "unsplit":
            return y.reshape(y.shape[0], -1, y.shape[1], WIDTH)
        return y.unflatten(-1, (-1, WIDTH)).transpose(1, 2)

    def turned(x: Tensor, at: Tensor) -> Tensor:
        return rope.RotaryEmbedding(WIDTH, base=BASE, interleaved=interleaved).rotate(x, at)

    def layer(x: Tensor, w: dict[str, Tensor], head_dim: int, ids: Tensor, cache: Any) -> Any:
        q, k, v = (split(linear(x, w[name])) for name in "qkv")
        if flaw == "counted":
            ids = torch.arange(x.shape[1]).expand_as(ids)
        elif flaw == "cached count":
            ids = (torch.arange(x.shape[1]) + (cache[0].shape[2] if cache else 0)).expand_as(ids)
        q = q if flaw == "key alone" else turned(q, ids)
        kept = flaw in ("again", "bare")  # the cache holds keys as they are before this call turns
        k = k if kept or flaw == "query alone" else turned(k, ids)
        v = turned(v, ids) if flaw == "values" else v
        new, at = ids, ids
        if cache and flaw != "forgotten":
            k, v = (torch.cat(pair, dim=2) for pair in zip(cache[:2], (k, v), strict=True))
            at = torch.cat((cache[2], new), dim=1)
        cache = k, v, at
        if flaw == "again":
            k = turned(k, at)
            cache = k, v, at
        elif flaw == "bare":
            ours = torch.arange(k.shape[2]) >= k.shape[2] - x.shape[1]
            k = torch.where(ours[:, None], turned(k, at), k)
        groups = HEADS // KEY_HEADS
        if flaw == "tiled":
            k, v = k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1)
        else:
            k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        scale = {"unscaled": 1.0, "by D": 1 / WIDTH, "by E": EMBED**-0.5}.get(flaw, WIDTH**-0.5)
        scores = q @ k.mT * scale
        first = {"top left": 0, "strict": k.shape[2] - x.shape[1] - 1}
        seen = torch.ones(scores.shape[-2:]).tril(first.get(flaw, k.shape[2] - x.shape[1])).bool()
        if flaw != "unmasked":
            scores = scores.masked_fill(~seen, 0.0 if flaw == "zeros" else -torch.inf)
        weights = scores.softmax(dim=-2 if flaw == "queries" else -1)
        if flaw == "after softmax":
            weights = (q @ k.mT * scale).softmax(dim=-1) * seen
        y = weights @ v
        y = y if flaw == "unjoined" else y.transpose(1, 2)
        return linear(y.reshape(*x.shape[:2], -1), w["o"]), cache

    return layer


FLAWS = {
    "unmasked": "tokens see later ones: the causal mask is missing",
    "strict": "a token does not see itself, and the first one sees nothing",
    "top left": "with a cache a token sees the oldest keys alone: the mask is aligned at its top "
    "left, and must be at its bottom right",
    "zeros": "masked scores are 0, which softmax gives a weight: make them −∞",
    "after softmax": "the mask comes after the softmax, so weights no longer sum to 1",
    "queries": "softmax runs over the queries; it must run over the keys",
    "unscaled": "scores are not divided by √D",
    "by D": "scores are divided by D, not by √D",
    "by E": "scores are divided by the root of the model's width, not of the head's",
    "tiled": "heads are grouped by repeat; neighbours share a key head: use repeat_interleave",
    "unsplit": "[B, S, H·D] is reshaped to [B, H, S, D] without a transpose",
    "unjoined": "[B, H, S, D] is reshaped to [B, S, H·D] without a transpose",
    "values": "values are turned, too; they must not be",
    "query alone": "keys are not turned",
    "key alone": "queries are not turned",
    "counted": "position_ids are not read: each call counts from 0",
    "cached count": "position_ids are not read: tokens are counted on from the cache",
    "again": "keys from the cache are turned again in each call",
    "bare": "keys go into the cache before they are turned, and come out unturned",
    "forgotten": "keys and values of earlier calls are not used",
}
STEP_7 = Part(
    "layer",
    "Rotary attention",
    _texts,
    {said: _layer(interleaved=layout) for said, layout in LAYOUTS.items()},
    {
        sentence + (said if layout else ""): _layer(flaw, layout)
        for said, layout in LAYOUTS.items()
        for flaw, sentence in FLAWS.items()
    },
    calls=_played,
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
        [[1, 1, 1]], [[0, 1, 1]], [[1, 1, 2, 2, 2]], [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]],
        [[1, 1, 1, 2, 3], [1, 2, 2, 2, 2]], [[0, 1, 1, 2, 2], [0, 0, 0, 1, 2]],
    ]  # fmt: skip
    return [(torch.tensor(row),) for row in rows]


def _of_tokens(answer: Function) -> Function:
    """Positions; those of padding count as 0, unless they are negative."""

    def positions(documents: Tensor) -> Tensor:
        ids = torch.as_tensor(answer(documents))
        return (
            torch.where((documents == 0) & (ids > 0), 0, ids)
            if ids.shape == documents.shape
            else ids
        )

    return positions


def _of_queries(answer: Function) -> Function:
    """A mask as bool `[B, S, S]`, of bool or of what is added to scores; False for padding."""

    def mask(documents: Tensor) -> Tensor:
        seen = torch.as_tensor(answer(documents))
        seen = seen > -1e4 if seen.is_floating_point() and seen.min() < 0 else seen.bool()
        seen = seen[:, 0] if seen.ndim == 4 and seen.shape[1] == 1 else seen
        fits = seen.shape == (*documents.shape, documents.shape[1])
        return seen & (documents > 0)[:, :, None] if fits else seen

    return mask


def _sight(rule: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Function:
    """A mask of documents a of queries, b of keys, and of what is causal."""
    return lambda d: rule(
        d[:, :, None], d[:, None, :], torch.ones(d.shape[1], d.shape[1]).tril().bool()
    )


STEP_8 = (
    Part(
        "position_ids",
        "Rotary attention: padding",
        _rows_of_documents,
        {"": position_ids},
        {
            "all rows count 0, 1, 2, …: padding and documents are not read": (
                lambda d: torch.arange(d.shape[1]).expand_as(d)
            ),
            "positions start at 1; no score changes, but the last has no row in a full table": (
                lambda d: (position_ids(d) + 1) * (d > 0)
            ),
            "padding has position −1: an index reads the last row, and a kernel what is no table": (
                lambda d: torch.where(d > 0, position_ids(d), -1)
            ),
            "positions run on over the documents of a row; each must start at 0": (
                lambda d: ((d > 0).cumsum(dim=1) - 1).clamp(min=0)
            ),
            "positions run on over the documents of a row, and start at 1": (
                lambda d: (d > 0).cumsum(dim=1) * (d > 0)
            ),
            "positions run on over the documents of a row, and padding has −1": (
                lambda d: (d > 0).cumsum(dim=1) - 1
            ),
            "all rows get the positions of the first": lambda d: position_ids(d)[:1].expand_as(d),
            "padding is counted: set it aside before counting": (
                lambda d: torch.arange(d.shape[1]).expand_as(d) * (d > 0)
            ),
            "those are the numbers of the documents": lambda d: d,
            "a position counts from the end of its document": lambda d: (
                (d[:, :, None] == d[:, None, :]).triu(1).sum(dim=-1) * (d > 0)
            ),
        },
        calls=_of_tokens,
    ),
    Part(
        "may_see",
        "Rotary attention: padding",
        _rows_of_documents,
        {"": may_see},
        {
            "later tokens are seen: the mask is not causal": _sight(lambda a, b, low: a == b),
            "a document sees the ones before it, and padding": _sight(
                lambda a, b, low: low & (a == a)
            ),
            "a document sees the ones before it": _sight(
                lambda a, b, low: low & (b > 0) & (a == a)
            ),
            "a token does not see itself": _sight(lambda a, b, low: (a == b) & low & ~low.T),
            "queries and keys have changed places: tokens see later ones alone": (
                _sight(lambda a, b, low: (a == b) & low.T)
            ),
            "True must stand where a query sees a key, and stands where it does not": (
                _sight(lambda a, b, low: ~((a == b) & low))
            ),
            "nothing is masked": _sight(lambda a, b, low: (a == a) & (b == b)),
            "only padding is masked": _sight(lambda a, b, low: (b > 0) & (a == a)),
            "all rows get the mask of the first": lambda d: may_see(d)[:1].expand(len(d), -1, -1),
        },
        calls=_of_queries,
    ),
)

PARTS = {7: (STEP_7,), 8: STEP_8}
