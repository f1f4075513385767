"""Define steps 4 to 9: tables, one head, a batch, a layer, packed rows, and a checkpoint.

Shapes: B batch, H heads, S sequence, D head dimension, E width of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from random import Random
from reprlib import repr as shortened
from typing import Any

import torch
from torch import Tensor

from rope.book.judge.answers import EPS, WRITES, Arguments, Part, Unusable, dtypes, numbers, shape
from rope.book.judge.patches import Function
from rope.book.judge.right import tables

BASE = 10000.0


def two(result: Any, what: str) -> list[Any]:
    """Return the two parts of a result. Raise Unusable unless it has exactly two parts."""
    parts = [*result] if hasattr(result, "__iter__") and getattr(result, "ndim", 3) > 2 else []
    if len(parts) != 2:
        numbers(result)  # raises if nothing is returned yet
        raise Unusable(f"it must return two things: {what}")
    return parts


def like(name: str, x: Tensor, y: Any) -> Any:
    """Return the result y unchanged. Raise Unusable unless it has the shape and dtype of x."""
    numbers(y)
    if torch.is_tensor(y) and y.dtype != x.dtype:
        before, after = dtypes([x, y])
        raise Unusable(f"given {before}, {name} comes back as {after}: cast the result at the end")
    if shape(y) != list(x.shape):
        raise Unusable(f"{name} must have shape {list(x.shape)}, but it has shape {shape(y)}")
    return y


def noise(*size: int, dtype: torch.dtype = torch.float32, seed: int = 5) -> Tensor:
    """Return normally distributed random numbers that depend only on the size and the seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)


def gradients(call: Function, **leaves: Tensor) -> Callable[[Function, Function], str]:
    """Return a check that an answer has the same gradients as the correct function.

    call: passes the leaves to its first argument, a function, and returns a list of the results.
    The check accepts answers that return lists or arrays, because these have no gradients.
    """

    def of(function: Function) -> list[Any]:
        given = [leaf.clone().requires_grad_() for leaf in leaves.values()]
        total = torch.zeros((), requires_grad=True) * 1.0  # so that grad() always finds a graph
        for y in call(function, *given):
            total = total + (y.double() * noise(*y.shape)).sum()
        return [*torch.autograd.grad(total, given, allow_unused=True)]

    def check(answer: Function, right: Function) -> str:
        try:
            mine = of(answer)
        except Exception:
            return ""
        for name, one, other in zip(leaves, mine, of(right), strict=True):
            if one is None or (one - other).abs().max() > 0.01 * other.abs().max():
                return f"gradients stop before {name}: don't use detach(), .data or no_grad()"
        return ""

    return check


# Step 4: cos and sin for each position and plane.
def _table_inputs(draw: Random) -> list[Arguments]:
    ids = lambda *positions: torch.tensor(positions)
    spread = ids(*(draw.randrange(2 ** (bits - 1), 2**bits) for bits in range(7, 21)))
    return [
        (ids(0, 1), 4, 100.0),
        (ids(3, 1), 4, 100.0),
        (ids(*(draw.randrange(64) for _ in range(9))), 8, draw.uniform(100, 1000)),
        (spread, 64, BASE),
        (ids(5, 131_071), 64, BASE),
        (ids(*(draw.randrange(2**20) for _ in range(6)), 2**20), 64, 500_000.0),
    ]


def _tables(answer: Function, position_ids: Tensor, head_dim: int, base: float) -> list[Any]:
    """Return the cos and sin tables from an answer; a complex table is read as cos + i·sin."""
    result = answer(position_ids, head_dim, base)
    if "complex" in " ".join(dtypes(result)):
        result = (result.real, result.imag)
    both = two(result, "the tables cos and sin")
    if coarse := EPS.keys() & dtypes(both):
        raise Unusable(f"the tables are {coarse.pop()}; they must be float32 or better")
    want = [len(position_ids), head_dim // 2]
    if wrong := [shape(table) for table in both if shape(table) != want]:
        raise Unusable(f"a table has shape {wrong[0]}; it must be [S, D/2], here {want}")
    return both


FAR = "right near position 0 but not far out: use float64 for frequencies and angles"
STEP_4 = Part(
    4, "tables", "From math to PyTorch", _table_inputs, call=_tables,
    roundings=128, near=3, far=f"the tables are {FAR}",
)  # fmt: skip


# Step 5: rotate one head, in either layout.
def _head_inputs(draw: Random) -> list[Arguments]:
    one = tables(torch.tensor([1]), 4, 100.0)
    inputs: list[Arguments] = [(row[None, None, None], *one) for row in torch.eye(4)]
    sizes = (1, 3, 3, 8), (2, 5, 4, 16), (2, 5, 4, 16), (3, 1, 20, 64), (2, 3, 4, 2), (1, 2, 1, 128)
    for seed, (b, h, s, d) in enumerate(sizes):
        ids = torch.tensor([draw.randrange(99) for _ in range(s)])
        inputs.append((noise(b, h, s, d, seed=seed), *tables(ids, d, BASE)))
    for dtype in (torch.float16, torch.float64):
        inputs.append((noise(2, 3, 4, 16, dtype=dtype), *tables(torch.arange(1, 5), 16, BASE)))
    return inputs


STEP_5 = Part(
    5, "rotate_head", "Two layouts", _head_inputs, ways=(5,),
    call=lambda answer, x, cos, sin: like("x", x, answer(x, cos, sin)),
    check=gradients(
        lambda function, x: [function(x, *tables(torch.arange(3), 8, BASE))], x=noise(1, 2, 3, 8)
    ),
)  # fmt: skip


# Step 6: rotate a batch by its position ids.
def _batch_inputs(draw: Random) -> list[Arguments]:
    def positions(b: int, s: int, first: int, last: int) -> Tensor:
        return torch.tensor([[draw.randrange(first, last) for _ in range(s)] for _ in range(b)])

    x = torch.tensor([[[[1.0, 0.0, 0.0, 0.0]]]])
    inputs: list[Arguments] = [(x, x, torch.tensor([[1]]))]
    sizes = (
        (3, 3, 3, 3, 8), (3, 3, 3, 3, 8), (1, 2, 1, 3, 8), (3, 4, 2, 5, 16),
        (2, 6, 3, 20, 64), (3, 4, 4, 1, 16), (2, 4, 4, 6, 2), (1, 2, 2, 4, 128),
    )  # fmt: skip
    for seed, (b, h, kv, s, d) in enumerate(sizes):
        q, k = noise(b, h, s, d, seed=seed), noise(b, kv, s, d, seed=100 + seed)
        inputs.append((q, k, positions(b, s, 1, 99)))
    for dtype, first in ((torch.float64, 1), (torch.float16, 3000)):
        q, k = noise(2, 3, 4, 16, dtype=dtype), noise(2, 3, 4, 16, dtype=dtype, seed=6)
        inputs.append((q, k, positions(2, 4, first, first + 99)))
    inputs.append((noise(2, 2, 4, 64), noise(2, 1, 4, 64), positions(2, 4, 2**16, 2**17)))
    return inputs


def _batch(answer: Function, q: Tensor, k: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    one, other = two(answer(q, k, position_ids), "the rotated q and k")
    return like("q", q, one), like("k", k, other)


STEP_6 = Part(
    6, "rotate_batch", "Rotary attention", _batch_inputs, ways=(5,), earlier=(5, 4), call=_batch,
    roundings=64, near=11, far=f"the rotation is {FAR}",
    check=gradients(
        lambda function, q, k: [*function(q, k, torch.arange(1, 7).view(2, 3))],
        q=noise(2, 4, 3, 8), k=noise(2, 2, 3, 8, seed=6),
    ),
)  # fmt: skip


# Step 7: attention with grouped heads, a causal mask, and a cache.
@dataclass(frozen=True)
class Text:
    """Hold a test of a layer: positions, tokens per call, sizes, and the number of sequences."""

    position_ids: tuple[tuple[int, ...], ...]
    calls: tuple[int, ...]
    H: int = 6
    H_kv: int = 2
    D: int = 16
    E: int = 24
    dtype: torch.dtype = torch.float32
    sequences: int = 1

    def __repr__(self) -> str:
        rows = " and ".join(shortened([*row]) for row in self.position_ids)
        text = f"x at positions {rows}, in calls of {' + '.join(map(str, self.calls))}"
        others = [one for one in fields(self)[2:] if getattr(self, one.name) != one.default]
        return ", ".join([text, *(f"{one.name} {getattr(self, one.name)}" for one in others)])


def _texts(draw: Random) -> list[Arguments]:
    some = lambda count, most: tuple(sorted(draw.sample(range(most), count)))
    near, gaps = (0, 1, 2, 3, 4), (2, 3, 7, 8, 11)
    calls = (1,), (5,), (4, 1), (1, 1, 1, 1, 1), (2, 3)
    texts = [
        *(Text((near[: sum(each)],), each) for each in calls),
        *(Text((gaps,), each) for each in ((5,), (2, 3))),
        Text((near, gaps), (3, 1, 1)),
        Text((some(20, 60), some(20, 60)), (12, 1, 7)),
        Text((some(6, 60), some(6, 60)), (3, 1, 1, 1), sequences=2),
        Text((some(5, 60), some(5, 60), some(5, 60)), (3, 2), H=4, H_kv=4, D=8, E=32),
        Text((some(5, 60),), (4, 1), H=3, H_kv=1, D=32, E=20),
        Text((some(4, 60),), (2, 2), dtype=torch.float64),
        Text((some(40, 400), some(40, 400)), (30, 10), H=4, E=12),
        Text((some(6, 5000),), (5, 1), H=8, D=8, E=16),
    ]
    return [(text,) for text in texts]


def _weights(text: Text) -> dict[str, Tensor]:
    queries, keys = (text.H * text.D, text.E), (text.H_kv * text.D, text.E)
    sizes = dict(q=queries, k=keys, v=keys, o=queries[::-1])
    return {
        name: noise(*size, dtype=text.dtype, seed=ord(name)) / 4 for name, size in sizes.items()
    }


def _play(layer: Function, text: Text) -> list[Any]:
    """Call a layer on a text and return its outputs. Raise Unusable if an argument was changed."""
    ids, w = torch.tensor(text.position_ids), _weights(text)
    names = ["x", "position_ids", *(f'w["{name}"]' for name in w)]
    caches: list[Any] = [None] * text.sequences
    results = []
    for call, at in enumerate(ids.split(text.calls, 1)):
        for n in range(text.sequences):
            given = noise(*at.shape, text.E, dtype=text.dtype, seed=2 * call + n), at, *w.values()
            own = [one.clone() for one in given]
            weights = dict(zip(w, own[2:], strict=True))
            y, caches[n] = two(layer(own[0], weights, text.D, own[1], caches[n]), "y and the cache")
            for name, before, after in zip(names, given, own, strict=True):
                if not torch.equal(before, after):
                    raise Unusable(WRITES.format(name))
            results.append(like("y", given[0], y))
    return results


LEARNED = Text(((1, 3, 4), (0, 2, 5)), (3,))


def _learned(function: Function, x: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> Any:
    ids = torch.tensor(LEARNED.position_ids)
    return [next(iter(function(x, dict(q=q, k=k, v=v, o=o), LEARNED.D, ids, None)))]


STEP_7 = Part(
    7, "layer", "Rotary attention", _texts, ways=(5,),
    earlier=(5, 6, 4), call=_play,
    # For a token that sees no keys, some attention functions return NaN, others 0.
    view=lambda results: [0.0 if x != x else x for x in numbers(results)],
    roundings=64,
    near=1,  # among several mistakes, name the one that explains the first wrong text
    far="the layer is right for the first texts but not for the one below. If that text "
    "has several tokens in one call, check the mask and the rotation; if several calls, the cache; "
    "if other sizes, numbers fixed in the code; if large positions, the rounding of the angles",
    check=gradients(_learned, x=noise(2, 3, LEARNED.E), **_weights(LEARNED)),
)  # fmt: skip


# Step 8: compute positions and masks for padded and packed rows.
def _rows_of_documents(draw: Random) -> list[Arguments]:
    rows: list[list[list[int]]] = [
        [[1, 1]], [[0, 1]], [[1, 2]], [[0, 1, 1]], [[1, 1, 2, 2, 2]],
        [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], [[0, 1, 1, 2, 2], [0, 0, 0, 1, 2]],
    ]  # fmt: skip
    ends = [(draw.randrange(4), draw.randrange(5, 9), draw.randrange(9, 12)) for _ in range(3)]
    rows.append([[sum(end <= s for end in row) for s in range(12)] for row in ends])
    return [(torch.tensor(row),) for row in rows]


def _tensor(result: Any) -> Tensor:
    numbers(result)
    plain = [one.tolist() if hasattr(one, "tolist") else one for one in result]
    return torch.as_tensor(result if hasattr(result, "dtype") else plain)


def _token_positions(answer: Function, documents: Tensor) -> Tensor:
    """Return an answer's positions. In padding, clamp them to the range from -1 to 0."""
    padding = documents == 0
    ids = _tensor(answer(documents))
    return torch.where(padding, ids.clamp(-1, 0), ids) if ids.shape == padding.shape else ids


def _attention_mask(answer: Function, documents: Tensor) -> Tensor:
    """Return an answer's mask as bool `[B, S, S]`, with the rows of padding set to False."""
    real = documents > 0
    mask = _tensor(answer(documents))
    mask = mask[:, 0] if mask.ndim == 4 and mask.shape[1] == 1 else mask
    if mask.is_floating_point() and mask.max() > 0:
        raise Unusable("a mask of floats is added to the scores: make it bool, or use 0 and −∞")
    mask = mask > (-1e3 if mask.is_floating_point() else 0)
    return mask & real[:, :, None] if mask.ndim == 3 else mask


PADDING = "Rotary attention: padding"
STEP_8 = (
    Part(8, "position_ids", PADDING, _rows_of_documents, call=_token_positions),
    Part(8, "may_see", PADDING, _rows_of_documents, call=_attention_mask),
)


# Step 9: convert a checkpoint to the other layout, and extend the context with YaRN.
def _rows(draw: Random) -> list[Arguments]:
    counted = [(torch.arange(float(rows))[:, None], 4) for rows in (4, 8)]
    width = 2 * draw.randrange(3, 9)
    drawn = [(8, 5, 8), (48, 5, 16), (48, 5, 16), (2 * width, 3, width)]
    return [*counted, *((noise(*size, seed=n), d) for n, (*size, d) in enumerate(drawn))]


def _longer(draw: Random) -> list[Arguments]:
    drawn = (2 * draw.randrange(16, 64), draw.uniform(1e4, 1e6), draw.uniform(2, 40), 3000)
    return [(32, BASE, 8.0, 2048), (128, BASE, 4.0, 4096), (64, 500_000.0, 40.0, 8192), drawn]


def _logarithms(result: Any) -> Any:
    """Return the logarithms of YaRN's frequencies, and its factor. Errors are then relative."""
    if not isinstance(result, (tuple, list)) or len(result) != 2 or shape(result[1]):
        raise Unusable("it must return two things: the frequencies, and the factor for cos and sin")
    return [math.log(f) if 0 < f < math.inf else f for f in numbers(result[0])], result[1]


CONVERT = Part(
    9, "convert", "Two layouts", _rows,
    check=gradients(lambda function, weight: [function(weight, 4)], weight=noise(8, 3)),
)  # fmt: skip
YARN = Part(
    9, "yarn", "Longer than the training text", _longer, view=_logarithms, ways=(9,),
)  # fmt: skip

PARTS = {4: (STEP_4,), 5: (STEP_5,), 6: (STEP_6,), 7: (STEP_7,), 8: STEP_8, 9: (CONVERT, YARN)}
