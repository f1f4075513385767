"""Compare the positions of packed and padded tokens with loops that count."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from strategies import quick

from rope.positions import left_padded_position_ids, packed_position_ids


@quick
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_positions_restart_with_each_packed_sequence(lengths):
    counted = [n for length in lengths for n in range(length)]
    assert packed_position_ids(lengths).tolist() == counted


@quick
@given(st.lists(st.integers(0, 7), min_size=1, max_size=4))
def test_positions_start_where_the_padding_ends(padding):
    mask = torch.tensor([[0] * n + [1] * (7 - n) for n in padding])
    expected = [[0] * n + list(range(7 - n)) for n in padding]
    for form in (mask, mask.bool(), mask.to(torch.uint8)):
        ids = left_padded_position_ids(form)
        assert ids.dtype == torch.int64 and ids.tolist() == expected


def padded(*values, **options):
    return lambda: left_padded_position_ids(torch.tensor(values, **options))


WRONG = {
    "a negative length": (lambda: packed_position_ids([5, -2]), RuntimeError, "bound"),
    "mask floats": (padded([0.0, 1.0]), TypeError, "float32"),
    "mask of one axis": (padded(0, 1), ValueError, r"\[2\].*\[B, S\]"),
    "mask of ids": (padded([0, 1, 2]), ValueError, "contains 2"),
    "right padding": (padded([1, 1, 0]), ValueError, "0 after a 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_an_error(case):
    call, kind, names = WRONG[case]
    with pytest.raises(kind, match=names):
        call()
