import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES, even, layouts, normal, positions, quick, seeds, sizes, tolerance

from rope import inverse_frequencies, reference, rotary_embedding, rotary_tables


def tables(positions, dim, dtype=torch.float64):
    return rotary_tables(positions, inverse_frequencies(dim), dtype=dtype)


def test_numbers_by_hand():
    cos, sin = rotary_tables(torch.tensor([1]), inverse_frequencies(4, base=100.0))
    expected = torch.tensor([-0.30116868, 0.89517075, 1.3817732, 1.0948375])
    torch.testing.assert_close(
        rotary_embedding(torch.ones(1, 1, 1, 4), cos, sin)[0, 0, 0], expected
    )


@pytest.mark.parametrize("dtype", DTYPES)
@quick
@given(sizes, sizes, even, st.integers(0, 5), layouts, seeds, st.lists(positions, max_size=4))
def test_equal_to_the_reference(dtype, batch, heads, dim, spare, interleaved, seed, where):
    """Table, two products and a sum in float32 or wider, then one rounding to the dtype."""
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


@quick
@given(even, layouts, seeds, positions)
def test_norm_is_kept(dim, interleaved, seed, m):
    x = normal((1, 2, 1, dim), seed)
    out = rotary_embedding(x, *tables(torch.tensor([m]), dim), interleaved=interleaved)
    torch.testing.assert_close(out.norm(dim=-1), x.norm(dim=-1), rtol=1e-14, atol=0)


@quick
@given(even, layouts, seeds, positions, positions)
def test_group_law(dim, interleaved, seed, m, n):
    x = normal((1, 1, 1, dim), seed)

    def turn(x, by):
        return rotary_embedding(x, *tables(torch.tensor([by]), dim), interleaved=interleaved)

    # Angles up to 10,000 are rounded by up to 10,000 eps/2, three of them.
    torch.testing.assert_close(
        turn(turn(x, m), n), turn(x, m + n), rtol=0, atol=3e4 * tolerance(torch.float64, scale=6)
    )


@quick
@given(even, layouts, seeds, positions)
def test_inverse_undoes_it(dim, interleaved, seed, m):
    x, (cos, sin) = normal((2, 1, 1, dim), seed), tables(torch.tensor([m]), dim)
    there = rotary_embedding(x, cos, sin, interleaved=interleaved)
    back = rotary_embedding(there, cos, sin, interleaved=interleaved, inverse=True)
    torch.testing.assert_close(back, x, rtol=0, atol=tolerance(torch.float64, scale=8))
    by_negative = rotary_embedding(there, *tables(torch.tensor([-m]), dim), interleaved=interleaved)
    assert torch.equal(back, by_negative)


@quick
@given(even, layouts, seeds, positions, positions, st.integers(0, 5000))
def test_scores_depend_on_the_difference_of_positions(dim, interleaved, seed, m, n, shift):
    q, k = normal((2, 1, 1, 1, dim), seed)

    def score(m, n):
        turned = [
            rotary_embedding(x, *tables(torch.tensor([at]), dim), interleaved=interleaved)
            for x, at in ((q, m), (k, n))
        ]
        return (turned[0] * turned[1]).sum()

    allowed = 4e4 * tolerance(torch.float64, scale=float(q.norm() * k.norm()))
    torch.testing.assert_close(score(m + shift, n + shift), score(m, n), rtol=0, atol=allowed)


@quick
@given(even, layouts, seeds)
def test_linear(dim, interleaved, seed):
    x, y = normal((2, 1, 2, 3, dim), seed)
    cos, sin = tables(3, dim)
    together = rotary_embedding(2 * x - y, cos, sin, interleaved=interleaved)
    apart = [rotary_embedding(z, cos, sin, interleaved=interleaved) for z in (x, y)]
    torch.testing.assert_close(
        together, 2 * apart[0] - apart[1], rtol=0, atol=tolerance(torch.float64, scale=20)
    )


@pytest.mark.parametrize("interleaved", [False, True])
def test_strided_views_and_empty_axes(interleaved):
    base = normal((2, 5, 3, 16), 0)
    view = base.transpose(1, 2)[..., ::2]  # [2, 3, 5, 8], no axis contiguous
    cos, sin = tables(5, 8)
    expected = rotary_embedding(view.contiguous(), cos, sin, interleaved=interleaved)
    assert torch.equal(rotary_embedding(view, cos, sin, interleaved=interleaved), expected)
    expanded = base[:1, :1].expand(4, 7, 3, 16)
    assert rotary_embedding(expanded, *tables(3, 8), interleaved=interleaved).shape == (4, 7, 3, 16)
    for shape in ((0, 2, 5, 8), (2, 0, 5, 8), (2, 3, 0, 8)):
        cos, sin = tables(shape[2], 8)
        out = rotary_embedding(torch.zeros(shape), cos, sin, interleaved=interleaved)
        assert out.shape == shape
        ids = torch.zeros(shape[2], dtype=torch.long)
        assert rotary_embedding(torch.zeros(shape), *tables(1, 8), ids).shape == shape


def test_every_way_to_say_where_a_token_stands():
    x, (cos, sin) = normal((2, 3, 4, 8), 0), tables(10, 8)
    ids = torch.tensor([[0, 1, 2, 3], [6, 2, 2, 9]])
    out = rotary_embedding(x, cos, sin, ids)
    for row in range(2):
        one = x[row : row + 1]
        assert torch.equal(out[row], rotary_embedding(one, cos, sin, ids[row])[0])
        assert torch.equal(out[row], rotary_embedding(one, cos[ids[row]], sin[ids[row]])[0])
    assert torch.equal(out, rotary_embedding(x, cos[ids][:, None], sin[ids][:, None]))
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        assert torch.equal(out, rotary_embedding(x, cos, sin, ids.to(dtype)))


def test_low_precision_is_rounded_once():
    """bfloat16 in, bfloat16 out, and in between the arithmetic of float32 exactly."""
    x, (cos, sin) = normal((1, 2, 64, 8), 0, torch.bfloat16), tables(64, 8, torch.float32)
    wide = rotary_embedding(x.float(), cos, sin)
    assert torch.equal(rotary_embedding(x, cos, sin), wide.to(torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tables_decide_the_arithmetic_too(dtype):
    """Wide tables widen it; tables as narrow as x leave it in float32."""
    x, (cos, sin) = normal((1, 2, 64, 8), 0, dtype), tables(64, 8)
    wide = rotary_embedding(x.double(), cos, sin)
    assert torch.equal(rotary_embedding(x, cos, sin), wide.to(dtype))
    cos, sin = tables(64, 8, dtype)
    wide = rotary_embedding(x.float(), cos.float(), sin.float())
    assert torch.equal(rotary_embedding(x, cos, sin), wide.to(dtype))


def test_gradients_reach_the_tables():
    """Learned frequencies: through the lookup, where a row may be read twice."""
    x, ids = normal((2, 1, 3, 6), 0), torch.tensor([[0, 1, 3], [3, 3, 2]])
    cos, sin = (table.requires_grad_() for table in tables(4, 4))
    assert torch.autograd.gradcheck(lambda *pair: rotary_embedding(x, *pair, ids), (cos, sin))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
def test_gradients(interleaved, inverse):
    x, (cos, sin) = normal((2, 2, 3, 6), 0).requires_grad_(), tables(9, 4)
    ids = torch.tensor([[0, 1, 8], [5, 5, 2]])

    def turn(x):
        return rotary_embedding(x, cos, sin, ids, interleaved=interleaved, inverse=inverse)

    assert torch.autograd.gradcheck(turn, x)
    assert torch.autograd.gradgradcheck(turn, x)
    upstream = normal((2, 2, 3, 6), 1)
    (gradient,) = torch.autograd.grad(turn(x), x, upstream)
    expected = rotary_embedding(
        upstream, cos, sin, ids, interleaved=interleaved, inverse=not inverse
    )
    torch.testing.assert_close(gradient, expected, rtol=0, atol=tolerance(torch.float64, scale=8))


def test_inputs_are_not_changed_nor_shared():
    x, (cos, sin) = normal((1, 1, 2, 4), 0), tables(2, 4)
    before = [t.clone() for t in (x, cos, sin)]
    rotary_embedding(x, cos, sin).zero_()
    assert all(torch.equal(t, old) for t, old in zip((x, cos, sin), before, strict=True))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_compiles_without_a_break(backend, interleaved):
    torch.compiler.reset()
    compiled = torch.compile(rotary_embedding, fullgraph=True, backend=backend)
    x, (cos, sin), ids = normal((2, 2, 3, 6), 0), tables(9, 4), torch.tensor([0, 8, 2])
    for arguments in ((x, cos, sin, ids), (x, cos[:3], sin[:3])):
        expected = rotary_embedding(*arguments, interleaved=interleaved)
        assert torch.equal(compiled(*arguments, interleaved=interleaved), expected)
    for outside in (9, -1):
        with pytest.raises(RuntimeError, match=r"within the rows of the tables"):
            compiled(x, cos, sin, torch.tensor([0, outside, 2]), interleaved=interleaved)


def test_meta_tensors_give_shapes():
    x, table = torch.empty(1, 2, 3, 8, device="meta"), torch.empty(5, 4, device="meta")
    ids = torch.empty(3, dtype=torch.long, device="meta")
    assert rotary_embedding(x, table, table, ids).shape == x.shape


def test_far_positions_stay_exact():
    """At a million positions a float32 angle is wrong in the second decimal; ours is not."""
    x, m = np.ones((1, 1, 1, 64)), 1_000_003
    out = rotary_embedding(
        torch.from_numpy(x), *tables(torch.tensor([m]), 64, torch.float32), interleaved=True
    )
    expected = reference.rotate_complex(x, [m], reference.inverse_frequencies(64))
    np.testing.assert_allclose(out, expected, atol=tolerance(torch.float32, scale=2, operations=2))
