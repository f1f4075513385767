"""Test first and second derivatives, in both modes, under transforms, and in place."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from strategies import check_raises, normal, tables, tolerance
from torch.autograd import gradcheck, gradgradcheck

from rope import RotaryEmbedding, rotary_embedding, rotary_embedding_qk
from rope.extensions import YaRN

IDS = torch.tensor([[0, 1, 8], [5, 5, 2]])
SHAPE = (2, 2, 3, 6)
FLAGS = [{"interleaved": a, "inverse": b} for a, b in itertools.product((False, True), repeat=2)]
flags = pytest.mark.parametrize(
    "flags", FLAGS, ids=lambda f: "-".join(k for k in f if f[k]) or "plain"
)


def in_place(x, *arguments, **options):
    """Rotate a copy in place, because a leaf can't be overwritten."""
    return rotary_embedding(x.clone(), *arguments, **options, inplace=True)


forms = pytest.mark.parametrize("form", [rotary_embedding, in_place])


@forms
@flags
def test_first_and_second_order_both_modes(form, flags):
    x, (cos, sin) = normal((1, 1, 2, 6), 0).requires_grad_(), tables(9, 4)

    def rotate(x):
        return form(x, cos, sin, IDS[0, 1:], **flags)

    assert gradcheck(rotate, x, check_forward_ad=True, check_batched_grad=True)
    # The map is linear, so square it; otherwise, the second derivative would be zero.
    assert gradgradcheck(lambda x: rotate(x).square(), x, check_fwd_over_rev=True)


@forms
@flags
def test_tables_are_differentiable_too(form, flags):
    """Check gradients of the tables, which learned frequencies need, also in place.

    In place, autograd needs the old values of x for them.
    """
    x = normal((2, 1, 2, 6), 0).requires_grad_()
    cos, sin = (table.requires_grad_() for table in tables(3, 4))

    def rotate(x, cos, sin):
        return form(x, cos, sin, IDS[:, 1:] % 3, **flags)

    assert gradcheck(rotate, (x, cos, sin), check_forward_ad=True)


@pytest.mark.parametrize(("inplace", "inverse"), [(False, True), (True, False)])
def test_the_layer_with_an_extension(inplace, inverse):
    rotary = RotaryEmbedding(4, 8, extension=YaRN(4.0, 4))
    q, k = (normal((1, heads, 2, 4), heads).requires_grad_() for heads in (1, 2))

    def rotate(q, k):
        # In-place rotation needs the result of an operation, such as x * 1, and not a leaf.
        return rotary(q * 1, k * 1, offset=5, inverse=inverse, inplace=inplace)

    assert gradcheck(rotate, (q, k), check_forward_ad=True)
    assert gradgradcheck(lambda q, k: tuple(x.square() for x in rotate(q, k)), (q, k))


@forms
@flags
def test_function_transforms(form, flags):
    cos, sin = tables(9, 4)
    many = normal((5, *SHAPE), 0)

    def rotate(x):
        return form(x, cos, sin, IDS, **flags)

    one_by_one = torch.stack([rotate(x) for x in many])
    assert torch.equal(torch.func.vmap(rotate)(many), one_by_one)
    moved = torch.func.vmap(rotate, in_dims=2, out_dims=3)(many.movedim(0, 2).contiguous())
    assert torch.equal(moved.movedim(3, 0), one_by_one)

    x, upstream = many[0], many[1]
    jacobian = torch.func.jacrev(rotate)(x).reshape(x.numel(), x.numel())
    assert torch.equal(jacobian, torch.func.jacfwd(rotate)(x).reshape(x.numel(), x.numel()))
    eye = torch.eye(x.numel(), dtype=x.dtype)
    torch.testing.assert_close(  # orthogonal
        jacobian.T @ jacobian, eye, rtol=0, atol=tolerance(torch.float64, 1.0, operations=8)
    )
    value, directional = torch.func.jvp(rotate, (x,), (upstream,))
    assert torch.equal(value, one_by_one[0])
    assert torch.equal(directional, one_by_one[1])  # a linear map is its own derivative
    gradient = torch.func.grad(lambda x: (rotate(x) * upstream).sum())(x)
    back = rotary_embedding(upstream, cos, sin, IDS, **{**flags, "inverse": not flags["inverse"]})
    torch.testing.assert_close(gradient, back, rtol=0, atol=tolerance(torch.float64, 4.0))
    per_sample = torch.func.vmap(torch.func.grad(lambda x: rotate(x).square().sum()))(many)
    torch.testing.assert_close(per_sample, 2 * many, rtol=0, atol=tolerance(torch.float64, 16.0))


def test_queries_and_keys_vectorised_with_their_own_tables():
    q, k = normal((4, 1, 2, 3, 6), 0), normal((4, 1, 1, 3, 6), 1)
    rotary = RotaryEmbedding(6, 8)
    mapped = torch.func.vmap(lambda q, k: rotary(q, k, offset=2))(q, k)
    angle = normal((4, 3, 3), 2)
    with_tables = torch.func.vmap(rotary_embedding)(q, angle.cos(), angle.sin())
    for i in range(4):
        for pair, single in zip(mapped, rotary(q[i], k[i], offset=2), strict=True):
            assert torch.equal(pair[i], single)
        single = rotary_embedding(q[i], angle[i].cos(), angle[i].sin())
        assert torch.equal(with_tables[i], single)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_positions_are_vectorised_and_checked(dtype):
    rotary, x = RotaryEmbedding(6, 4), normal((3, 1, 2, 5, 6), 0, dtype)
    ids = torch.randint(0, 60, (3, 5), generator=torch.Generator().manual_seed(0))
    for given, in_dims in ((x, (0, 0)), (x[0], (None, 0))):
        mapped = torch.func.vmap(rotary.rotate, in_dims=in_dims)(given, ids)
        for i in range(3):
            one = given[i] if in_dims[0] == 0 else given
            assert torch.equal(mapped[i], RotaryEmbedding(6, 64).rotate(one, ids[i]))
    below = ids - 1 - ids.min()
    check_raises(lambda: torch.func.vmap(rotary.rotate)(x, below), ValueError, "position_ids -1")


@pytest.mark.parametrize("learned", [(False, False), (True, False), (False, True)])
def test_one_of_two_records_gradients(learned):
    """Check that only the tensor that requires a gradient gets one.

    If the other tensor got one too, its next backward pass would use a freed graph.
    """
    rows = tables(5, 6, torch.float32)
    q, k = (normal((2, n, 5, 8), n, torch.float32) for n in (4, 2))
    right = rotary_embedding_qk(q, k, *rows)
    q.requires_grad_(learned[0]), k.requires_grad_(learned[1])
    for found in (
        rotary_embedding_qk(q, k, *rows),
        rotary_embedding_qk(q * 1, k * 1, *rows, inplace=True),
    ):
        for x, given, expected, grad in zip(found, (q, k), right, learned, strict=True):
            assert torch.equal(x.detach(), expected) and x.requires_grad == grad
            if grad:
                (gradient,) = torch.autograd.grad(x, given, expected)
                assert torch.equal(gradient, rotary_embedding(expected, *rows, inverse=True))


def test_in_place_returns_x_and_counts_as_a_change():
    cos, sin = tables(9, 4)
    x = normal(SHAPE, 0)
    version, address = x._version, x.data_ptr()
    assert rotary_embedding(x, cos, sin, IDS, inplace=True) is x
    assert x._version > version
    assert x.data_ptr() == address
    view = x.transpose(1, 2)[:, :, :1]  # changing a view raises the version of its base
    version = x._version
    rotary_embedding(view, *tables(1, 4), inplace=True)
    assert x._version > version


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_overwriting_what_autograd_needs_raises_in_the_backward_pass(mode):
    """Check the error if q and k, which a square saved for its backward pass, are overwritten.

    Where autograd records nothing, only the operator can report that q and k have changed.
    """
    q, k = (normal(SHAPE, seed).requires_grad_() * 1 for seed in (0, 1))
    losses = [x.square().sum() for x in (q, k)]
    with mode():
        rotary_embedding_qk(q, k, *tables(3, 4), inplace=True)
    for loss in losses:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@forms
def test_backward_leaves_the_gradient_unchanged(form):
    """Run backward twice and check that the incoming gradient keeps its bits."""
    leaf, upstream = normal(SHAPE, 0).requires_grad_(), normal(SHAPE, 1)
    before, version = upstream.clone(), upstream._version
    out = form(leaf, *tables(9, 4), IDS)
    right = rotary_embedding(upstream, *tables(9, 4), IDS, inverse=True)
    for _ in range(2):
        (found,) = torch.autograd.grad(out, leaf, upstream, retain_graph=True)
        assert torch.equal(found, right)
    assert torch.equal(upstream, before)
    assert upstream._version == version
    ones = torch.ones(SHAPE, dtype=torch.float64)
    expanded = ones[0, 0, 0, 0].clone().expand(SHAPE)  # as the backward pass of sum() returns it
    (from_sum,) = torch.autograd.grad(out, leaf, expanded, retain_graph=True)
    assert torch.equal(expanded, ones)
    assert torch.equal(from_sum, rotary_embedding(ones, *tables(9, 4), IDS, inverse=True))


@forms
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_no_activation_is_kept_for_the_backward_pass(form, dtype):
    """Check that autograd saves only tables and ids, since the map is linear for fixed tables."""
    saved = []
    x = normal((2, 8, 3, 6), 0, dtype).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        form(x, *tables(9, 4, torch.float32), IDS)
    assert saved
    assert all(t.numel() <= 9 * 4 / 2 for t in saved)  # only tables and position ids are this small


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_without_autograd(mode):
    x, (cos, sin) = normal(SHAPE, 0), tables(9, 4)
    expected, leaf = rotary_embedding(x, cos, sin, IDS), x.clone().requires_grad_()
    with mode():
        assert torch.equal(rotary_embedding(x, cos, sin, IDS), expected)
        for free in (x * 1, leaf):  # an inference tensor has no version to count
            assert rotary_embedding(free, cos, sin, IDS, inplace=True) is free
            assert torch.equal(free, expected)


def test_the_backward_pass_itself_can_be_transformed():
    """Differentiate a graph inside a transform that started after the graph was built."""
    q, t = normal(SHAPE, 0).requires_grad_(), normal(SHAPE, 1)
    y = rotary_embedding(q, *tables(9, 4), IDS)

    def gradient(g):
        return torch.autograd.grad(y, q, g, retain_graph=True, create_graph=True)[0]

    along = torch.func.jvp(gradient, (torch.ones_like(y),), (t,))[1]
    torch.testing.assert_close(along, rotary_embedding(t, *tables(9, 4), IDS, inverse=True))


def test_position_ids_may_change_or_come_from_inference():
    with torch.inference_mode():
        saved = torch.arange(3)
    ids, x = torch.arange(3), normal(SHAPE, 0).requires_grad_()
    y = rotary_embedding(x, *tables(9, 4), ids) + rotary_embedding(x, *tables(9, 4), saved)
    ids += 3
    (grad,) = torch.autograd.grad(y.sum(), x)
    once = rotary_embedding(torch.ones_like(x), *tables(9, 4), saved, inverse=True)
    torch.testing.assert_close(grad, 2 * once)


def test_q_and_k_in_one_memory_raise_in_place():
    """Check the error for q and k that share memory, since they would be rotated twice.

    q and k may be the same tensor, a view, or its first heads, in any tensor format.
    """
    rotary, q = RotaryEmbedding(4), torch.ones(1, 2, 2, 4)
    for k, options in (
        (q, {"tensor_format": "bshd"}),
        (q.view_as(q), {}),
        (q[:, :1], {}),
    ):
        check_raises(partial(rotary, q, k, inplace=True, **options), ValueError, "q k k.clone()")
    packed = partial(rotary, q[0], q[0], inplace=True, tensor_format="thd")
    check_raises(packed, ValueError, "q k k.clone()")
    assert torch.equal(q, torch.ones_like(q))


CUTS = {  # how to slice q and k from one projection [B, S, 3 * H * D] with H = 2 and D = 4
    "heads": ((2, 3, 6, 4), np.s_[:, :, :2], np.s_[:, :, 2:4]),
    "third axis": ((2, 3, 3, 2, 4), np.s_[:, :, 0], np.s_[:, :, 1]),
    "within a head": ((2, 3, 2, 12), np.s_[..., :4], np.s_[..., 4:8]),
}


@pytest.mark.parametrize("cut", CUTS)
def test_slices_of_one_projection_are_apart(cut):
    shape, *slices = CUTS[cut]
    q, k = (normal((2, 3, 24), 0).view(shape)[at] for at in slices)
    fused = normal((2, 3, 24), 0).view(shape)
    rotary = RotaryEmbedding(4, interleaved=True)
    rotary(*(fused[at] for at in slices), tensor_format="bshd", inplace=True)
    for at, right in zip(slices, rotary(q, k, tensor_format="bshd"), strict=True):
        assert torch.equal(fused[at], right)
