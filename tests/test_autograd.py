"""Derivatives: of every order and direction, under every transform, out of place and in place."""

import itertools

import pytest
import torch
from strategies import DTYPES, normal, tolerance
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from rope import RotaryEmbedding, inverse_frequencies, rotary_tables
from rope.extensions import YaRN
from rope.functional import rotary_embedding, rotary_embedding_

IDS = torch.tensor([[0, 1, 8], [5, 5, 2]])
SHAPE = (2, 2, 3, 6)
FLAGS = [{"interleaved": a, "inverse": b} for a, b in itertools.product((False, True), repeat=2)]
flags = pytest.mark.parametrize(
    "flags", FLAGS, ids=lambda f: "-".join(k for k in f if f[k]) or "plain"
)


def tables(rows=9, dim=4, dtype=torch.float64):
    return rotary_tables(rows, inverse_frequencies(dim), dtype=dtype)


def in_place(x, *arguments, **options):
    """On a copy, since a leaf cannot be overwritten."""
    return rotary_embedding_(x.clone(), *arguments, **options)


forms = pytest.mark.parametrize("form", [rotary_embedding, in_place])


@forms
@flags
@pytest.mark.parametrize("dim", [2, 4])
def test_first_and_second_order_both_modes(form, flags, dim):
    x = normal((2, 1, 2, 4), 0).requires_grad_()
    cos, sin = tables(dim=dim)

    def turn(x):
        return form(x, cos, sin, IDS[:, :2], **flags)

    assert gradcheck(turn, x, check_forward_ad=True, check_batched_grad=True)
    # The map is linear: squared, so that the second derivative is not just zero.
    assert gradgradcheck(lambda x: turn(x).square(), x, check_fwd_over_rev=True)


@forms
@flags
def test_tables_are_differentiable_too(form, flags):
    """As learned frequencies need it; in place, the old values are kept for it."""
    x = normal((2, 1, 2, 4), 0).requires_grad_()
    cos, sin = (table.requires_grad_() for table in tables(6, 2))

    def turn(x, cos, sin):
        return form(x, cos, sin, IDS[:, 1:] % 6, **flags)

    assert gradcheck(turn, (x, cos, sin), check_forward_ad=True)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
def test_the_layer_with_an_extension(inplace, inverse):
    rotary = RotaryEmbedding(4, 8, extension=YaRN(4.0, 4))
    q, k = (normal((1, heads, 2, 4), heads).requires_grad_() for heads in (1, 2))

    def turn(q, k):
        # x * 1: in place needs the result of an operation.
        return rotary(q * 1, k * 1, offset=5, inverse=inverse, inplace=inplace)

    assert gradcheck(turn, (q, k), check_forward_ad=True)
    assert gradgradcheck(lambda q, k: tuple(x.square() for x in turn(q, k)), (q, k))


@forms
@flags
def test_function_transforms(form, flags):
    cos, sin = tables()
    many = normal((5, *SHAPE), 0)

    def turn(x):
        return form(x, cos, sin, IDS, **flags)

    one_by_one = torch.stack([turn(x) for x in many])
    assert torch.equal(torch.func.vmap(turn)(many), one_by_one)
    moved = torch.func.vmap(turn, in_dims=2, out_dims=3)(many.movedim(0, 2).contiguous())
    assert torch.equal(moved.movedim(3, 0), one_by_one)

    x, upstream = many[0], many[1]
    jacobian = torch.func.jacrev(turn)(x).reshape(x.numel(), x.numel())
    assert torch.equal(jacobian, torch.func.jacfwd(turn)(x).reshape(x.numel(), x.numel()))
    eye = torch.eye(x.numel(), dtype=x.dtype)
    torch.testing.assert_close(  # orthogonal
        jacobian.T @ jacobian, eye, rtol=0, atol=tolerance(torch.float64, 1.0, operations=8)
    )
    value, directional = torch.func.jvp(turn, (x,), (upstream,))
    assert torch.equal(value, one_by_one[0])
    assert torch.equal(directional, one_by_one[1])  # linear: its own derivative
    gradient = torch.func.grad(lambda x: (turn(x) * upstream).sum())(x)
    back = rotary_embedding(upstream, cos, sin, IDS, **{**flags, "inverse": not flags["inverse"]})
    torch.testing.assert_close(gradient, back, rtol=0, atol=tolerance(torch.float64, 4.0))
    per_sample = torch.func.vmap(torch.func.grad(lambda x: turn(x).square().sum()))(many)
    torch.testing.assert_close(per_sample, 2 * many, rtol=0, atol=tolerance(torch.float64, 16.0))


def test_queries_and_keys_vectorised_with_their_own_tables():
    q, k = normal((4, 1, 2, 3, 6), 0), normal((4, 1, 1, 3, 6), 1)
    rotary = RotaryEmbedding(6, 8)
    mapped = torch.func.vmap(lambda q, k: rotary(q, k, offset=2))(q, k)
    for i in range(4):
        for both, alone in zip(mapped, rotary(q[i], k[i], offset=2), strict=True):
            assert torch.equal(both[i], alone)
    angle = normal((4, 3, 3), 2)
    out = torch.func.vmap(rotary_embedding)(q, angle.cos(), angle.sin())
    for i in range(4):
        assert torch.equal(out[i], rotary_embedding(q[i], angle[i].cos(), angle[i].sin()))


@pytest.mark.parametrize("dtype", DTYPES)
@flags
def test_in_place_gradients_are_those_of_the_other_form(flags, dtype):
    (cos, sin), upstream = tables(dtype=torch.float32), normal(SHAPE, 1, dtype)
    leaf = normal(SHAPE, 0, dtype).requires_grad_()
    (expected,) = torch.autograd.grad(
        rotary_embedding(leaf, cos, sin, IDS, **flags), leaf, upstream
    )
    (actual,) = torch.autograd.grad(in_place(leaf, cos, sin, IDS, **flags), leaf, upstream)
    assert torch.equal(actual, expected)


@flags
def test_in_place_returns_x_and_says_that_it_changed(flags):
    cos, sin = tables()
    x = normal(SHAPE, 0)
    version, address = x._version, x.data_ptr()
    assert rotary_embedding_(x, cos, sin, IDS, **flags) is x
    assert x._version > version
    assert x.data_ptr() == address
    view = x.transpose(1, 2)[:, :, :1]  # a view: its base knows too
    version = x._version
    rotary_embedding_(view, *tables(1), **flags)
    assert x._version > version


@flags
def test_what_autograd_still_needs_is_not_overwritten_in_silence(flags):
    """The square keeps its input for the backward pass; overwriting it must be an error there."""
    cos, sin = tables()
    x = normal(SHAPE, 0).requires_grad_() * 1
    loss = x.square().sum()
    rotary_embedding_(x, cos, sin, IDS, **flags)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@flags
def test_a_leaf_is_refused_in_place_and_left_as_it_was(flags):
    cos, sin = tables()
    leaf = normal(SHAPE, 0).requires_grad_()
    before = leaf.detach().clone()
    for x in (leaf, leaf[:, :1]):  # a view of a leaf is as much of one
        with pytest.raises((ValueError, RuntimeError), match="leaf"):
            rotary_embedding_(x, cos, sin, IDS, **flags)
        assert torch.equal(leaf, before)
    with torch.no_grad():
        assert rotary_embedding_(leaf, cos, sin, IDS, **flags) is leaf
    assert torch.equal(leaf, rotary_embedding(before, cos, sin, IDS, **flags))


OVERLAPPING = {
    "expanded heads": lambda: normal((2, 1, 3, 6), 0).expand(SHAPE),
    "expanded batch": lambda: normal((1, 2, 3, 6), 0).expand(SHAPE),
    "one number": lambda: normal((1, 1, 1, 1), 0).expand(SHAPE),
    "sliding window": lambda: normal((2, 2, 10), 0).unfold(-1, 6, 2),  # [2, 2, 3, 6], steps of 2
}


@pytest.mark.parametrize("name", OVERLAPPING)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_memory_that_overlaps_is_refused_in_place(name, mode):
    x = OVERLAPPING[name]()
    before = x.clone()
    with mode(), pytest.raises(ValueError, match=r"place of its own.*\.contiguous\(\)"):
        rotary_embedding_(x, *tables(), IDS)
    assert torch.equal(x, before)


def test_axes_of_one_element_do_not_overlap():
    x = normal((1, 1, 3, 6), 0).expand(1, 1, 3, 6)
    for storage in (x, x.as_strided((1, 1, 3, 6), (0, 0, 6, 1))):
        expected = rotary_embedding(storage, *tables(3))
        assert torch.equal(rotary_embedding_(storage.clone(), *tables(3)), expected)
        assert torch.equal(rotary_embedding_(storage, *tables(3)), expected)
        x.copy_(normal((1, 1, 3, 6), 0))


@forms
@flags
def test_backward_leaves_the_gradient_it_is_given_alone(form, flags):
    """Twice through one graph, and the gradient that came in is bit for bit what it was."""
    leaf, upstream = normal(SHAPE, 0).requires_grad_(), normal(SHAPE, 1)
    before, version = upstream.clone(), upstream._version
    out = form(leaf, *tables(), IDS, **flags)
    first, second = (
        torch.autograd.grad(out, leaf, upstream, retain_graph=True)[0] for _ in range(2)
    )
    assert torch.equal(first, second)
    assert torch.equal(upstream, before)
    assert upstream._version == version
    expanded = torch.ones((), dtype=torch.float64).expand(SHAPE)  # what sum() sends back
    (from_sum,) = torch.autograd.grad(out, leaf, expanded, retain_graph=True)
    assert torch.equal(expanded, torch.ones(SHAPE, dtype=torch.float64))
    torch.testing.assert_close(from_sum, torch.autograd.grad(out.sum(), leaf)[0], rtol=0, atol=0)


@forms
@flags
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_no_activation_is_kept_for_the_backward_pass(form, flags, dtype):
    """The map is linear with given tables: those alone are saved."""
    kept = []
    x = normal((2, 8, 3, 6), 0, dtype).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        form(x, *tables(dtype=torch.float32), IDS, **flags)
    assert kept
    assert all(t.shape[1] == 1 and t.numel() <= 2 * 3 * 2 for t in kept)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@flags
def test_without_autograd(mode, flags):
    x, (cos, sin) = normal(SHAPE, 0), tables()
    expected = rotary_embedding(x, cos, sin, IDS, **flags)
    with mode():
        assert torch.equal(rotary_embedding(x, cos, sin, IDS, **flags), expected)
        fresh = x * 1  # an inference tensor has no version to count
        assert rotary_embedding_(fresh, cos, sin, IDS, **flags) is fresh
        assert torch.equal(fresh, expected)
        rotary = RotaryEmbedding(4, 2, interleaved=flags["interleaved"])
        q, _ = rotary(x * 1, x * 1, IDS, inverse=flags["inverse"], inplace=True)
        torch.testing.assert_close(q, expected, rtol=0, atol=tolerance(torch.float64, 8.0))


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.calls.append((func.overloadpacket.__name__, out))
        return out


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
@pytest.mark.parametrize("heads", [1, 3])
@flags
def test_a_dense_view_is_not_copied_and_keeps_its_strides(order, heads, flags):
    """[B, S, H, D] seen through a transpose, and every other order of the axes."""
    shape = (2, heads, 5, 8)
    back = [order.index(axis) for axis in range(4)]
    x = normal([shape[axis] for axis in order], 0).permute(back)
    cos, sin = tables(5, 6)
    with Recorder() as recorder:
        out = rotary_embedding(x, cos, sin, **flags)
    steps = [
        [step for step, size in zip(t.stride(), shape, strict=True) if size > 1] for t in (out, x)
    ]
    assert steps[0] == steps[1]
    copies = [
        name
        for name, made in recorder.calls
        if name in ("clone", "contiguous", "copy_", "_to_copy", "_reshape_copy")
        and made.numel() > cos.numel()
    ]
    assert not copies
