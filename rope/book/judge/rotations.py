"""Steps 4 to 6: tables, a head, a batch.

Chapters "From maths to PyTorch", "Two layouts", "Rotary attention". Shapes: B batch, H heads,
S sequence, D head dimension. What is a whole rotation is diagnosed by `rope.diagnose`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor

import rope
from rope import reference
from rope.book.judge.answers import Fault, Function, Part
from rope.diagnose import diagnose

BASE, WIDTH = 10000.0, 16
Pair = tuple[Tensor, Tensor]


# Step 4: cos and sin of every position and plane.
def tables(position_ids: Tensor, head_dim: int, base: float) -> Pair:
    """cos and sin `[S, D/2]` of position_ids `[S]`, from angles in float64."""
    angle = torch.from_numpy(
        reference.angles(position_ids.numpy(), reference.inverse_frequencies(head_dim, base))
    )
    return angle.cos(), angle.sin()


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


def _table_view(result: Any) -> Any:
    """cos and sin as one tensor; a complex table is both."""
    if torch.is_tensor(result) and result.is_complex():
        result = (result.real, result.imag)
    return torch.stack([torch.as_tensor(table, dtype=torch.float64) for table in result])


def _each(change: Callable[[Tensor], Tensor]) -> Function:
    """The right tables, both changed alike."""
    return lambda *given: tuple(change(table) for table in tables(*given))


def _one_a_plane(both: Tensor) -> Tensor:
    """Tables `[2, S, D/2]` of those that hold each number twice, in either order."""
    twice = both.unflatten(-1, (-1, 2))
    if both.shape[-1] == WIDTH // 2:
        return both
    return twice[..., 0] if torch.equal(twice[..., 0], twice[..., 1]) else both[..., : WIDTH // 2]


def _rotation_by(answer: Function) -> Function:
    """A rotation that looks its cosines up in the tables of an answer."""

    def turned(x: Tensor, position_ids: Tensor) -> Tensor:
        rows = [_one_a_plane(_table_view(answer(ids, WIDTH, BASE))) for ids in position_ids]
        cos, sin = torch.stack(rows, dim=1)[:, :, None]  # each [B, 1, S, D/2]
        return rope.rotary_embedding(x, cos, sin)

    return lambda q, k, position_ids: (turned(q, position_ids), turned(k, position_ids))


def _fault(rotation: Function, **options: Any) -> Fault | None:
    """The first fault that `rope.diagnose` finds in a rotation of either layout."""
    for interleaved in (False, True):
        expected = rope.RotaryEmbedding(WIDTH, base=BASE, interleaved=interleaved)
        try:
            report = diagnose(rotation, WIDTH, expected=expected, **options)
        except ValueError as error:
            return Fault(str(error))
        meant = ("direction", "first-position")  # which other models may have otherwise
        faults = [one for one in report.findings if one.severity == "fault" or one.code in meant]
        if not faults:
            return None
        first = faults[0]
        if first.code != "layout":
            break
    remedy = "" if first.remedy.startswith("nothing") else f"; {first.remedy}"
    return Fault(first.sentence + remedy, chapter=first.section)


def _table_fault(answer: Function) -> Fault | None:
    """What a diagnosis finds in the tables, or that they are right for small positions alone."""
    if found := _fault(_rotation_by(answer)):
        return found
    near, far = torch.arange(32), torch.arange(2**20 - 32, 2**20)
    off = [
        (
            _one_a_plane(_table_view(answer(ids, WIDTH, BASE)))
            - torch.stack(tables(ids, WIDTH, BASE))
        )
        for ids in (near, far)
    ]
    if off[0].abs().max() > 1e-5 or off[1].abs().max() < 1e-5:
        return None
    return Fault(
        "near position 0 the tables are right, and far out they are not: make frequencies and "
        "angles in float64, and round cos and sin alone",
        chapter="How exact must it be?",
    )


STEP_4 = Part(
    "tables",
    "From maths to PyTorch",
    _table_inputs,
    {
        "": tables,
        ", each number twice, for halves": _each(lambda table: torch.cat((table, table), dim=-1)),
        ", each number twice, for neighbours": _each(lambda t: t.repeat_interleave(2, dim=-1)),
    },
    {
        "cos and sin stand in each other's place": lambda *given: tables(*given)[::-1],
        "the sine has the other sign": lambda ids, *given: tables(-ids, *given),
        "position_ids are not read, and the rows count from 0": (
            lambda ids, *given: tables(torch.arange(len(ids)), *given)
        ),
        "rows are planes and columns positions; it must be [S, D/2]": _each(lambda table: table.T),
    },
    view=_table_view,
    diagnose=_table_fault,
    roundings=128,
)


# Step 5: one head, in the layout that the reader likes; step 6: a batch, by its ids.
def _noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


def _head_inputs(draw: Random) -> list[tuple[Any, ...]]:
    one = [table.float() for table in tables(torch.tensor([1]), 4, 100.0)]
    given: list[tuple[Any, ...]] = [(row[None, None, None], *one) for row in torch.eye(4)]
    for b, h, s, d in ((1, 1, 3, 8), (2, 3, 5, 16)):
        ids = torch.tensor([draw.randrange(99) for _ in range(s)])
        given.append((_noise(b, h, s, d), *(table.float() for table in tables(ids, d, BASE))))
    return given


def _batch_inputs(draw: Random) -> list[tuple[Any, ...]]:
    x = torch.tensor([[[[1.0, 0.0, 0.0, 0.0]]]])
    given: list[tuple[Any, ...]] = [(x, x, torch.tensor([[1]]))]
    for b, h, s, d in ((1, 2, 3, 8), (3, 4, 5, 16)):
        ids = torch.tensor([[draw.randrange(1, 99) for _ in range(s)] for _ in range(b)])
        given.append((_noise(b, h, s, d), _noise(b, (h + 1) // 2, s, d), ids))
    return given


def _rows(answer: Function) -> Function:
    """A rotation of a batch by a function of one sequence's tables, row by row."""

    def turned(x: Tensor, position_ids: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        both = [[t.to(dtype) for t in tables(ids, x.shape[-1], BASE)] for ids in position_ids]
        return torch.cat([answer(row[None], *both[n]) for n, row in enumerate(x)])

    return lambda q, k, position_ids: (turned(q, position_ids), turned(k, position_ids))


def _batch(interleaved: bool) -> Function:
    def rotated(q: Tensor, k: Tensor, position_ids: Tensor) -> Pair:
        rotary = rope.RotaryEmbedding(q.shape[-1], base=BASE, interleaved=interleaved)
        return rotary(q, k, position_ids)

    return rotated


LAYOUTS = {", in halves": False, ", in neighbours": True}
STEP_5 = Part(
    "rotate_head",
    "Two layouts",
    _head_inputs,
    {
        said: lambda *given, layout=layout: rope.rotary_embedding(*given, interleaved=layout)
        for said, layout in LAYOUTS.items()
    },
    {},
    diagnose=lambda answer: _fault(_rows(answer)),
)
STEP_6 = Part(
    "rotate_batch",
    "Rotary attention",
    _batch_inputs,
    {said: _batch(layout) for said, layout in LAYOUTS.items()},
    {},
    diagnose=_fault,
)

PARTS = {4: (STEP_4,), 5: (STEP_5,), 6: (STEP_6,)}
