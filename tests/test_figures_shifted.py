"""The figure of shifted positions draws what it is given, and says it."""

import re

import pytest

from rope.book.mime import _smallest_text
from rope.figures.shifted import shifted

OFFSETS = [0, 256, 65_536]
LOSSES = {
    "exact": [[1.5, 1.5, 1.5], [1.7, 1.7, 1.7]],
    "bf16 positions": [[1.5, 2.0, 2.9], [1.7, 2.2, 3.1]],
}


def test_it_says_both_ends_of_each_line_and_fits_a_phone():
    made = shifted(OFFSETS, LOSSES)
    assert "exact angles 1.60 at 0, 1.60 at 65,536" in made.alt
    assert "bfloat16 positions 1.60 at 0, 3.00 at 65,536" in made.alt
    assert float(re.search(r'viewBox="0 0 ([\d.]+)', made.svg)[1]) <= 5.2 * 72 + 1
    assert _smallest_text(made.svg) >= 10
    assert made.svg == shifted(OFFSETS, LOSSES).svg


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="3 losses for 2 offsets"):
        shifted(OFFSETS[:2], LOSSES)
    with pytest.raises(ValueError, match="nothing to draw"):
        shifted(OFFSETS, {})
