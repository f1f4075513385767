import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import even, normal, quick, seeds, tolerance

from rope import inverse_frequencies, layouts, reference, rotary_embedding, rotary_tables


@quick
@given(even, st.integers(0, 3), seeds)
def test_one_rotation_in_two_orders(dim, spare, seed):
    x = normal((1, 2, 5, dim + spare), seed)
    cos, sin = rotary_tables(5, inverse_frequencies(dim), dtype=torch.float64)
    half = rotary_embedding(layouts.interleaved_to_half(x, dim), cos, sin)
    interleaved = rotary_embedding(x, cos, sin, interleaved=True)
    assert torch.equal(half, layouts.interleaved_to_half(interleaved, dim))


def test_the_permutation_is_made_where_it_is_asked_for():
    assert layouts.permutation(4, device="meta").is_meta
    assert layouts.interleaved_to_half(torch.empty(3, 8, device="meta"), 4).shape == (3, 8)


def test_as_matrices():
    theta, p = reference.inverse_frequencies(8), layouts.permutation(8).numpy()
    permute = np.eye(8)[p]
    half = permute @ reference.rotation_matrix(5, theta) @ permute.T
    x = np.random.default_rng(0).standard_normal((1, 8))
    np.testing.assert_allclose(
        half @ x[0], reference.rotate_complex(x, [5], theta, interleaved=False)[0], atol=1e-14
    )


@quick
@given(even, st.integers(0, 3), seeds)
def test_there_and_back(dim, spare, seed):
    x = normal((3, dim + spare), seed)
    before = x.clone()
    there = layouts.interleaved_to_half(x, dim)
    assert torch.equal(layouts.half_to_interleaved(there, dim), x)
    assert torch.equal(layouts.interleaved_to_half(layouts.half_to_interleaved(x, dim), dim), x)
    there.zero_()
    assert torch.equal(x, before)


@pytest.mark.parametrize("rotary_dim", [None, 4])
@pytest.mark.parametrize("shape", [(18, 5), (18,)])
def test_projections_convert_head_by_head(shape, rotary_dim):
    weight = torch.nn.Parameter(normal(shape, 0))
    before = weight.detach().clone()
    half = layouts.projection_interleaved_to_half(weight, 3, rotary_dim)
    heads = weight.unflatten(0, (3, 6)).movedim(1, -1)  # [H, E, D]
    expected = layouts.interleaved_to_half(heads, rotary_dim).movedim(-1, 1).flatten(0, 1)
    assert torch.equal(half, expected)
    assert half.shape == weight.shape
    assert torch.equal(layouts.projection_half_to_interleaved(half, 3, rotary_dim), weight)
    half.detach().zero_()
    assert torch.equal(weight, before)


def test_a_converted_projection_gives_the_same_scores():
    x, cos_sin = (
        normal((1, 7, 12), 0),
        rotary_tables(7, inverse_frequencies(6), dtype=torch.float64),
    )
    w_q, w_k = normal((2, 12, 12), 1)

    def scores(w_q, w_k, interleaved):
        q, k = (
            rotary_embedding(
                (x @ w.T).unflatten(-1, (2, 6)).transpose(1, 2), *cos_sin, interleaved=interleaved
            )
            for w in (w_q, w_k)
        )
        return q @ k.mT

    convert = layouts.projection_interleaved_to_half
    right = scores(w_q, w_k, True)
    allowed = tolerance(torch.float64, scale=right.abs().max().item(), operations=40)
    converted = scores(convert(w_q, 2), convert(w_k, 2), False)
    torch.testing.assert_close(converted, right, rtol=0, atol=allowed)
    assert (scores(w_q, w_k, False) - right).abs().max() > 1  # mixing layouts is not a rounding
