"""Test `RotaryEmbedding.shift`, which moves rotated keys without their originals."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import normal, quick

from rope import RotaryEmbedding
from rope.book.tolerance import allowed, within
from rope.extensions import DynamicNTK, YaRN
from rope.kernels import disabled

HALVES = (torch.bfloat16, torch.float16)
ARITHMETIC = 2 + math.sqrt(2)  # roundings of one move: the matrix, the products and the sum


def size(x):
    return x.double().norm(dim=-1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("extension", [None, YaRN(8.0, 64)], ids=["plain", "scaled"])
@quick
@given(
    places=st.lists(st.integers(0, 3000), min_size=6, max_size=6),
    targets=st.lists(st.integers(0, 3000), min_size=6, max_size=6),
)
def test_moved_keys_are_those_rotated_there(interleaved, extension, places, targets):
    """Move keys by one int, by a shift per token, or by one per row and token."""
    rotary = RotaryEmbedding(8, extension=extension, interleaved=interleaved)
    k, places, targets = normal((2, 3, 3, 10), 0), torch.tensor(places), torch.tensor(targets)
    places, targets = places.view(2, 3), targets.view(2, 3)
    rotated, each = rotary.rotate(k, places), targets - places
    for_all = each[0].clamp(min=-places.amin())  # no key moves below 0
    for delta, there in ((each, targets), (for_all, places + for_all), (17, places + 17)):
        moved, right = rotary.shift(rotated, delta), rotary.rotate(k, there)
        assert within(moved, right, roundings=16, size=6000 * k.abs().max().item())
        assert moved.dtype == k.dtype
    assert torch.equal(rotary.rotate(k, places), rotated)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
def test_one_move_rounds_once_however_far(dtype):
    rotary = RotaryEmbedding(64)
    k = rotary.rotate(normal((1, 2, 40, 64), 0, dtype), offset=70_000)
    allowance = allowed(1, dtype=dtype) if dtype in HALVES else 0.0
    allowance += ARITHMETIC * allowed(1, dtype=torch.float32)
    for delta in (-1, 3, -70_000, 60_000):
        off = size(rotary.shift(k, delta).double() - rotary.shift(k.double(), delta))
        assert (off <= allowance * size(k)).all()


def test_layouts_devices_kernels_and_compilers_agree(one_thread):
    k = normal((2, 2, 5, 12), 0, torch.float32)
    delta = torch.tensor([[3, -2, 0, 5, -9], [0, 0, 1, 2, -70]])
    rotary = RotaryEmbedding(12)
    moved = rotary.shift(k, delta)
    with disabled():
        assert torch.equal(rotary.shift(k, delta), moved)
    assert torch.equal(rotary.shift(k, delta.to(torch.int8)), moved)
    assert torch.equal(rotary.shift(k, 4), rotary.shift(k, torch.full((5,), 4)))
    assert torch.equal(rotary.shift(k, torch.zeros(2, 5, dtype=torch.int64)), k)
    compiled = torch.compile(rotary.shift, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(k, delta), moved)


def test_the_gradient_is_the_move_back():
    k = normal((1, 2, 3, 8), 0, torch.float64).requires_grad_()
    seen = normal((1, 2, 3, 8), 1, torch.float64)
    rotary = RotaryEmbedding(8)
    rotary.shift(k, 5).backward(seen)
    assert within(k.grad, rotary.shift(seen, -5), roundings=16, size=5.0)


def test_a_spectrum_that_follows_the_length_must_be_named():
    rotary = RotaryEmbedding(8, extension=DynamicNTK(1.0, 64))
    k = normal((1, 1, 4, 8), 0, torch.float64)
    with pytest.raises(ValueError, match=r"seq_len.*DynamicNTK.*fix_length"):
        rotary.shift(k, 3)
    moved = rotary.shift(rotary.rotate(k, seq_len=300), 3, seq_len=300)
    assert within(moved, rotary.rotate(k, offset=3, seq_len=300), roundings=16, size=10.0)
    rotary.fix_length(300)
    assert torch.equal(rotary.shift(rotary.rotate(k), 3), moved)


@pytest.mark.parametrize(
    ("delta", "error", "names"),
    [
        (1.5, TypeError, "delta.*1.5"),
        (True, TypeError, "delta.*True"),
        (torch.tensor([1.0] * 4), TypeError, "delta.*float32"),
        (torch.tensor([1, 2]), ValueError, r"delta.*\[2\].*\[4\]"),
        (2**60, ValueError, "delta.*61"),
    ],
)
def test_what_is_no_move_is_an_error(delta, error, names):
    with pytest.raises(error, match=names):
        RotaryEmbedding(128).shift(torch.ones(1, 2, 4, 128), delta)
