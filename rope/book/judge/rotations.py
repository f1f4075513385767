"""Steps 4 to 6: tables, a head, a batch.

Chapters "From maths to PyTorch", "Two layouts", "Rotary attention". Shapes: B batch, H heads,
S sequence, D head dimension. What is a whole rotation is diagnosed by `rope.diagnose`.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor

import rope
from rope import layouts
from rope.book.judge import in_python
from rope.book.judge.answers import Fault, Function, Part, Unusable, numbers, shape
from rope.diagnose import diagnose

BASE, WIDTH = 10000.0, 16
WIDE = "cos and sin are D/2 wide: one number a plane, and not one a coordinate"
LAYOUTS = {", in halves": False, ", in neighbours": True}
Pair = tuple[Tensor, Tensor]


def _fault(rotation: Function, name: str = "") -> Fault | None:
    """The first fault that `rope.diagnose` finds in a rotation of either layout; name: of what."""
    for interleaved in LAYOUTS.values():
        expected = rope.RotaryEmbedding(WIDTH, base=BASE, interleaved=interleaved)
        try:
            report = diagnose(rotation, WIDTH, expected=expected, num_kv_heads=1)
        except ValueError as error:
            raised = str(error).partition("; ")[0].replace("rotate raised Unusable: ", "")
            return Fault(f"on other inputs {raised}")
        meant = ("direction", "first-position")  # which other models may have otherwise
        faults = [one for one in report.findings if one.severity == "fault" or one.code in meant]
        if not faults:
            return None
        if faults[0].code != "layout":
            break
    cause = faults[0].sentence.replace(" and Default()", "")
    if not faults[0].remedy.startswith(("nothing", "use base")) and not (name and "ids" in cause):
        cause = f"{cause}; {faults[0].remedy}"
    for old in ("the query", "k, q") if name else ():
        cause = cause.replace(old, name)
    return Fault(cause, chapter=faults[0].section)


def _rotation(head: Function, tables: Function) -> Function:
    """A rotation of a batch, row by row: by tables, and by what turns one sequence by them."""

    def turned(x: Tensor, position_ids: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        rows = zip(x, position_ids, strict=True)
        both = lambda ids: (table.to(dtype) for table in tables(ids, x.shape[-1], BASE))
        return torch.cat([head(row[None], *both(ids)) for row, ids in rows])

    return lambda q, k, position_ids: (turned(q, position_ids), turned(k, position_ids))


def tensor(result: Any, dtype: torch.dtype | None = None) -> Tensor:
    """A result as a tensor; a list has the dtype that is given."""
    try:
        if isinstance(result, (list, tuple)) and all(map(torch.is_tensor, result)) and result:
            return torch.stack([*result])
        return torch.as_tensor(result, dtype=dtype if isinstance(result, list) else None)
    except (RuntimeError, TypeError, ValueError):  # numbers of other packages, rows in a list
        return torch.tensor(numbers(result), dtype=dtype or torch.float64).view(shape(result))


def two(result: Any, asked: str) -> list[Any]:
    """The two parts of a result."""
    many = hasattr(result, "__iter__") and getattr(result, "ndim", 3) > 2
    parts = [*result] if many else [tensor(result)]
    if len(parts) != 2:
        raise Unusable(f"two {asked}")
    return parts


# Step 4: cos and sin of every position and plane.
def _tables_by(angles: Function) -> Function:
    """cos and sin `[S, D/2]` of the angles that a formula of step 3 gives for each position."""

    def tables(position_ids: Tensor, head_dim: int, base: float) -> Pair:
        rows = [angles(m, head_dim, base) for m in position_ids.tolist()]
        angle = torch.tensor(rows, dtype=torch.float64)
        return angle.cos(), angle.sin()

    return tables


tables = _tables_by(in_python.angles)


def _table_inputs(draw: Random) -> list[tuple[Any, ...]]:
    ids = lambda *positions: torch.tensor(positions)
    far = ids(*(draw.randrange(2**20) for _ in range(6)), 2**20)
    return [
        (ids(0, 1), 4, 100.0),
        (ids(3, 1), 4, 100.0),
        (ids(*(draw.randrange(64) for _ in range(9))), 8, draw.uniform(100, 1000)),
        (ids(5, 131_071), 64, BASE),
        (far, 64, 500_000.0),
    ]


def _pair(answer: Function) -> Function:
    """Tables `[S, D/2]` of an answer that gives them so, or each number twice, or complex ones."""

    def given(position_ids: Tensor, head_dim: int, base: float) -> tuple[Tensor, ...]:
        result = answer(position_ids, head_dim, base)
        if "complex" in str(getattr(result, "dtype", "")):
            result = (result.real, result.imag)
        parts = two(result, "tables are asked for, cos and sin")
        both = torch.stack([tensor(part) for part in parts])
        if both.shape[-1] == head_dim:
            for twice in both.unflatten(-1, (2, -1)).mT, both.unflatten(-1, (-1, 2)):
                if torch.allclose(twice[..., 0], twice[..., 1], 0, 0, equal_nan=True):
                    both = twice[..., 0]
                    break
        size, asked = list(both.shape[1:]), [len(position_ids), head_dim // 2]
        if size != asked:
            raise Unusable(f"cos and sin have shape {size}; it must be [S, D/2], here {asked}")
        return both.unbind()

    return given


FAR = Fault(
    "near position 0 the tables are right, and far out they are not: make frequencies and angles "
    "in float64, round cos and sin alone, and let no table end",
    chapter="How exact must it be?",
)
STEP_4 = Part(
    "tables",
    "From maths to PyTorch",
    _table_inputs,
    {"": tables},
    {
        "cos and sin stand in each other's place": lambda *given: tables(*given)[::-1],
        "those are the angles; their cosines and sines are asked for": lambda ids, *given: tuple(
            torch.tensor([in_python.angles(m, *given) for m in ids.tolist()]) for _ in "cs"
        ),
        "the sine has the other sign": lambda ids, *given: tables(-ids, *given),
        "position_ids are not read, and the rows count from 0": (
            lambda ids, *given: tables(torch.arange(len(ids)), *given)
        ),
        "of position_ids the first alone is read, and the rows count on from it": (
            lambda ids, *given: tables(ids[0] + torch.arange(len(ids)), *given)
        ),
    }
    | {cause: _tables_by(angles) for cause, angles in in_python.ANGLES.items()},
    view=torch.stack,
    diagnose=lambda answer: _fault(_rotation(rope.rotary_embedding, _pair(answer)), "the table"),
    far=FAR,
    calls=_pair,
    roundings=128,
    near=3,
)


# Step 5: one head, in the layout that the reader likes; step 6: a batch, by its ids.
def _noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


def _head_inputs(draw: Random) -> list[tuple[Any, ...]]:
    one = [table.float() for table in tables(torch.tensor([1]), 4, 100.0)]
    given: list[tuple[Any, ...]] = [(row[None, None, None], *one) for row in torch.eye(4)]
    for b, h, s, d in ((1, 2, 3, 8), (2, 3, 5, 16), (3, 1, 20, 64)):
        ids = torch.tensor([draw.randrange(99) for _ in range(s)])
        given.append((_noise(b, h, s, d), *(table.float() for table in tables(ids, d, BASE))))
    return given


def _batch_inputs(draw: Random) -> list[tuple[Any, ...]]:
    x = torch.tensor([[[[1.0, 0.0, 0.0, 0.0]]]])
    given: list[tuple[Any, ...]] = [(x, x, torch.tensor([[1]]))]
    for b, h, s, d in ((1, 2, 3, 8), (3, 4, 5, 16), (2, 6, 20, 64)):
        ids = torch.tensor([[draw.randrange(1, 99) for _ in range(s)] for _ in range(b)])
        given.append((_noise(b, h, s, d), _noise(b, (h + 1) // 2, s, d), ids))
    return given


def like(name: str, x: Tensor, result: Any, exact: bool = True) -> Tensor:
    """What came back for x, as a tensor; it must have kept its shape, and its dtype if exact."""
    y = tensor(result, x.dtype)
    y = y if torch.is_tensor(result) else y.to(x.dtype)  # of other packages, not all have it
    if exact and torch.is_tensor(result) and y.dtype != x.dtype:
        raise Unusable(f"given {x.dtype}, {name} comes back as {y.dtype}: cast it at the end")
    if y.shape != x.shape:
        raise Unusable(f"{name} has shape {list(x.shape)}, and comes back with {list(y.shape)}")
    return y


def _head(answer: Function, exact: bool = True) -> Function:
    return lambda x, cos, sin: like("x", x, answer(x, cos, sin), exact)


def _both(answer: Function, exact: bool = True) -> Function:
    def given(q: Tensor, k: Tensor, position_ids: Tensor) -> Pair:
        result = two(answer(q, k, position_ids), "tensors are asked for, the rotated q and k")
        return like("q", q, result[0], exact), like("k", k, result[1], exact)

    return given


def _pairwise(formula: Function, interleaved: bool) -> Function:
    """A formula of step 1 for every pair of a head."""

    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = (layouts.interleaved_to_half(x) if interleaved else x).chunk(2, dim=-1)
        given = (t.flatten().tolist() for t in (a, b, torch.atan2(sin, cos).expand_as(a)))
        pairs = torch.tensor([formula(*one) for one in zip(*given, strict=True)]).T
        half = torch.cat([line.view_as(a) for line in pairs], dim=-1)
        return layouts.half_to_interleaved(half) if interleaved else half

    return turned


HALVES, NEIGHBOURS = (
    partial(rope.rotary_embedding, interleaved=layout) for layout in LAYOUTS.values()
)
TURNED = in_python.PAIR | in_python.LINES
TURNED["the pair is turned twice"] = lambda x, y, angle: in_python.rotate(x, y, 2 * angle)
OF_A_HEAD: dict[str, Function] = {
    f"{said[2:]}, {cause}": _pairwise(formula, layout)
    for cause, formula in TURNED.items()
    for said, layout in LAYOUTS.items()
} | {
    "neighbours go in and halves come out: stack the results and flatten them": (
        lambda *given: layouts.interleaved_to_half(NEIGHBOURS(*given))
    ),
    "halves go in and neighbours come out: join the results with cat": (
        lambda *given: layouts.half_to_interleaved(HALVES(*given))
    ),
}
STEP_5 = Part(
    "rotate_head",
    "Two layouts",
    _head_inputs,
    dict(zip(LAYOUTS, (HALVES, NEIGHBOURS), strict=True)),
    OF_A_HEAD,
    diagnose=lambda answer: _fault(_rotation(_head(answer, False), tables), "x"),
    sizes={3: WIDE},
    calls=_head,
)
STEP_6 = Part(
    "rotate_batch",
    "Rotary attention",
    _batch_inputs,
    {
        said: lambda q, k, position_ids, layout=layout: rope.RotaryEmbedding(
            q.shape[-1], base=BASE, interleaved=layout
        )(q, k, position_ids)
        for said, layout in LAYOUTS.items()
    },
    {cause: _rotation(formula, tables) for cause, formula in OF_A_HEAD.items()},
    diagnose=lambda answer: _fault(_both(answer, False)),
    calls=_both,
    roundings=128,  # float32 makes angles exact enough here, and not in step 4
    sizes={1: "the tables need an axis of length 1 for the heads, [B, 1, S, D/2]", 3: WIDE},
)

PARTS = {4: (STEP_4,), 5: (STEP_5,), 6: (STEP_6,)}
