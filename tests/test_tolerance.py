"""Test the rule by which chapters compare numbers: it allows roundings and nothing else."""

import math

import numpy as np
import pytest
import torch

from rope.book.tolerance import allowed, within


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_one_rounding_is_half_a_unit_in_the_last_place(dtype):
    """Check that a number that is one unit off is two roundings away, not one."""
    right = torch.ones(3, dtype=dtype)
    off = right + torch.finfo(dtype).eps
    assert within(off, right, 2, dtype=dtype) and not within(off, right, 1, dtype=dtype)
    assert allowed(3, size=5, dtype=dtype) == 15 * torch.finfo(dtype).eps / 2


@pytest.mark.parametrize(
    "right", [1.0, 1j, [0.5, 2.0], np.ones((2, 2)), torch.ones(2, dtype=torch.complex128)]
)
def test_numbers_arrays_and_tensors_are_compared_entry_by_entry(right):
    one = right if torch.is_tensor(right) else np.asarray(right)
    assert within(one, right, 1) and within(right, one, 1)
    assert not within(one * (1 + 2**-40), right, 8) and within(one * (1 + 2**-40), right, 2**14)
    assert not within(one * math.nan, right, 8)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("infinity", [math.inf, -math.inf, complex(math.inf, 0)])
def test_an_infinity_agrees_only_with_itself(infinity):
    """Check infinities, as in masked scores; the comparison must not warn."""
    scores = np.asarray([1.0, infinity])
    assert within(scores, scores, 1) and within(infinity, infinity, 1)
    assert not within(scores, -scores, 1) and not within(scores, [1.0, 2.0], 1)
    assert not within(scores, [1.0, math.nan], 1)


@pytest.mark.parametrize(("left", "right"), [([], []), ([1, 2], [1, 2, 3])])
def test_results_that_cannot_be_compared_raise(left, right):
    with pytest.raises(ValueError, match=r"shapes are \["):
        within(left, right, 1)
