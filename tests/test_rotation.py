"""Test the rotation functions: numbers, dtypes, shapes of tables, storage, and empty tensors.

`test_rotation_properties` tests the laws of rotations for random shapes and strides, and
`test_kernels` tests the kernels.
"""

import itertools
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    DTYPES,
    check_raises,
    even,
    normal,
    positions,
    quick,
    seeds,
    sizes,
    tables,
    tolerance,
)

from rope import (
    RotaryEmbedding,
    reference,
    rotary_embedding,
    rotary_embedding_qk,
)
from rope.extensions import DynamicNTK

layouts = pytest.mark.parametrize("interleaved", [False, True])


@pytest.mark.parametrize("dtype", DTYPES)
@layouts
@quick
@given(sizes, sizes, even, st.integers(0, 5), seeds, st.lists(positions, max_size=4))
def test_equal_to_the_reference(dtype, interleaved, batch, heads, dim, spare, seed, where):
    """Compare with the float64 reference: float32 or wider arithmetic, then one rounding."""
    x = normal((batch, heads, len(where), dim + spare), seed, dtype)
    ids = torch.tensor(where, dtype=torch.long)
    out = rotary_embedding(x, *tables(5001, dim), ids, interleaved=interleaved)
    assert out.dtype == dtype
    assert out.shape == x.shape
    expected = reference.rotate_matrix(
        x[..., :dim].double().numpy(),
        where,
        reference.inverse_frequencies(dim),
        interleaved=interleaved,
    )
    allowed = tolerance(dtype, scale=8, operations=2) + 5000 * tolerance(torch.float64, scale=8)
    torch.testing.assert_close(
        out[..., :dim].double(), torch.from_numpy(expected), rtol=0, atol=allowed
    )
    assert torch.equal(out[..., dim:], x[..., dim:])


@layouts
@pytest.mark.parametrize("inverse", [False, True])
def test_queries_and_keys_are_each_rotated_as_by_itself(interleaved, inverse, subtests):
    """Check q and k with different heads and dtypes, every shape of tables, and in place."""
    flags = {"interleaved": interleaved, "inverse": inverse}
    forms = {
        "rows": tables(5, 6, torch.float32),
        "ids": (*tables(9, 6, torch.float32), torch.tensor([8, 0, 3, 3, 1])),
        "of each": (*tables(9, 6, torch.float32), torch.arange(10).view(2, 5) % 9),
        "four axes": [t.expand(2, 1, 5, 3) for t in tables(5, 6, torch.float32)],
    }
    for (form, rows), dtype in itertools.product(forms.items(), DTYPES):
        q, k = normal((2, 4, 5, 8), 0, torch.float32), normal((2, 2, 5, 8), 1, dtype)
        with subtests.test(form=form, dtype=dtype):
            single = [rotary_embedding(x, *rows, **flags) for x in (q, k)]
            assert all(map(torch.equal, rotary_embedding_qk(q, k, *rows, **flags), single))
            assert rotary_embedding_qk(q, k, *rows, **flags, inplace=True)[0] is q
            assert torch.equal(q, single[0]) and torch.equal(k, single[1])


@layouts
def test_tables_line_up_with_axes_of_their_own(interleaved):
    """Check position ids of each integer dtype, and tables that vary per sequence and head."""
    x, (cos, sin) = normal((2, 3, 4, 8), 0), tables(10, 8)
    ids = torch.tensor([[0, 1, 2, 3], [6, 2, 2, 9]])
    out = rotary_embedding(x, cos, sin, ids, interleaved=interleaved)
    for row, where in zip(range(2), ids, strict=True):
        one = x[row : row + 1]
        for form in ((cos, sin, where), (cos[where], sin[where])):
            assert torch.equal(rotary_embedding(one, *form, interleaved=interleaved)[0], out[row])
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        same = rotary_embedding(x, cos, sin, ids.to(dtype), interleaved=interleaved)
        assert torch.equal(out, same)
    angle = normal((2, 3, 4, 3), 1)
    for shape in ((2, 3, 4), (2, 1, 4), (1, 3, 4), (1, 1, 4), (2, 3, 1)):
        part = angle[: shape[0], : shape[1], : shape[2]]
        out = rotary_embedding(x, part.cos(), part.sin(), interleaved=interleaved)
        for b, h in itertools.product(range(2), range(3)):
            rows = part.expand(2, 3, 4, 3)[b, h]
            single = x[b : b + 1, h : h + 1]
            single = rotary_embedding(single, rows.cos(), rows.sin(), interleaved=interleaved)
            assert torch.equal(single[0, 0], out[b, h])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_result_is_rounded_once(dtype):
    """Check that wide tables widen the arithmetic and narrow tables leave it in float32."""
    x = normal((1, 2, 64, 8), 0, dtype)
    for stored, wide in (
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (dtype, torch.float32),
    ):
        cos, sin = tables(64, 8, stored)
        expected = rotary_embedding(x.to(wide), cos.to(wide), sin.to(wide))
        assert torch.equal(rotary_embedding(x, cos, sin), expected.to(dtype))


@pytest.mark.parametrize("shared", [(2, 1, 3, 6), (1, 2, 3, 6), (2, 2, 1, 6), (1, 1, 1, 1)])
def test_memory_that_overlaps_is_not_rotated_in_place(shared):
    x = normal(shared, 0).expand(2, 2, 3, 6)
    before = x.clone()
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            in_place = partial(rotary_embedding, x, *tables(3, 4), inplace=True)
            check_raises(in_place, ValueError, f"x {list(x.shape)} x.contiguous()")
    assert torch.equal(x, before)


def test_axes_of_one_element_do_not_overlap():
    x = normal((1, 1, 3, 6), 0)
    expected = rotary_embedding(x, *tables(3, 4))
    for storage in (x.clone().expand(1, 1, 3, 6), x.clone().as_strided(x.shape, (0, 0, 6, 1))):
        assert torch.equal(rotary_embedding(storage, *tables(3, 4), inplace=True), expected)


@layouts
@pytest.mark.parametrize("extension", [None, DynamicNTK(4.0, 8)], ids=str)
def test_empty_axes(extension, interleaved):
    """Check axes of size 0 for batch, heads and sequence, also with gradients and in place."""
    rotary = RotaryEmbedding(8, 4, extension=extension, interleaved=interleaved)
    for shape in set(itertools.product((0, 2), (0, 3), (0, 4))) - {(2, 3, 4)}:
        x = torch.zeros(*shape, 10, requires_grad=True)
        each, all_ = (torch.zeros(size, dtype=torch.long) for size in (shape[::2], shape[2:]))
        for where in ({}, {"offset": 9}, {"position_ids": each}, {"position_ids": all_}):
            q, k = rotary(x, x[:, :1], **where)
            assert (q.shape, k.shape) == (x.shape, x[:, :1].shape)
            q.sum().backward()
            assert x.grad.shape == x.shape
            copies = [x.detach().clone() for _ in range(2)]
            for out, y in zip(rotary(*copies, **where, inplace=True), copies, strict=True):
                assert out is y
            assert rotary.rotate(x.detach().double(), **where).shape == x.shape
