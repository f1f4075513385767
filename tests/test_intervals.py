"""Test intervals of Student's t, and the rule that calls a difference clear, against SciPy."""

import numpy as np
import pytest
from scipy import stats

from rope.book.measured.intervals import (
    EQUALS_CLEAR,
    T_95,
    false_clears,
    interval,
    stratified,
    verdict,
)


def test_intervals_are_those_of_student():
    values = [1.5, 1.6, 1.55, 1.7, 1.52]
    mean = interval(values)
    low, high = stats.t.interval(0.95, 4, loc=sum(values) / 5, scale=stats.sem(values))
    assert (mean.low, mean.high) == pytest.approx((low, high), rel=1e-4)
    with pytest.raises(ValueError, match=r"values.* 1 "):
        interval([1.0])


def test_a_stratified_interval_covers_the_mean_of_its_groups():
    """Simulate groups with different means, and count intervals that contain the overall mean."""
    groups_means = np.array([0.0, 5.0, -2.0])[:, None]
    draws = groups_means + np.random.default_rng(0).normal(size=(4000, 3, 8))
    inside = [abs(stratified(groups).mean - 1) <= stratified(groups).half for groups in draws]
    assert 0.94 < np.mean(inside) < 0.96
    with pytest.raises(ValueError, match="fewer than two"):
        stratified([[1.0, 2.0], [1.0]])


def test_equals_are_called_clear_as_rarely_as_the_table_says():
    """Compare both tables with SciPy."""
    assert pytest.approx(stats.t.ppf(0.975, range(1, 27)), abs=5e-4) == T_95
    for count in range(2, 12):
        edge = 2 * stats.t.ppf(0.975, count - 1)
        assert EQUALS_CLEAR[count - 2] == round(2 * stats.t.sf(edge, count - 1), 4)
    assert "0.11" in false_clears(21, 5)


def test_a_verdict_is_clear_from_twice_its_half_width_on():
    assert verdict([1.0, 1.1, 1.2], [0.0, 0.0, 0.0]) == "+1.10 ± 0.25, clear, 3 seeds"
    assert verdict([1.0, 1.4, 1.2]) == "+1.20 ± 0.50, clear, 3 seeds"
    assert verdict([0.9, 1.3, 1.1], [0.2, 0.2, 0.2]) == "+0.90 ± 0.50, not clear, 3 seeds"
    assert verdict([2.0, 2.0], [2.0, 2.0]) == "+0.00 ± 0.00, not clear, 2 seeds"
