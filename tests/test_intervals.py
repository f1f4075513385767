"""Test intervals of Student's t against SciPy."""

import numpy as np
import pytest
from scipy import stats

from rope.book.measured.intervals import T_95, interval, stratified


def test_intervals_are_those_of_student():
    values = [1.5, 1.6, 1.55, 1.7, 1.52]
    mean = interval(values)
    low, high = stats.t.interval(0.95, 4, loc=sum(values) / 5, scale=stats.sem(values))
    assert (mean.low, mean.high) == pytest.approx((low, high), rel=1e-4)
    with pytest.raises(ValueError, match="at least two"):
        interval([1.0])


def test_a_stratified_interval_covers_the_mean_of_its_groups():
    """Simulate groups with different means, and count intervals that contain the overall mean."""
    groups_means = np.array([0.0, 5.0, -2.0])[:, None]
    draws = groups_means + np.random.default_rng(0).normal(size=(4000, 3, 8))
    inside = [abs(stratified(groups).mean - 1) <= stratified(groups).half for groups in draws]
    assert 0.94 < np.mean(inside) < 0.96
    with pytest.raises(ValueError, match="at least two"):
        stratified([[1.0, 2.0], [1.0]])


def test_the_table_is_that_of_student():
    assert pytest.approx(stats.t.ppf(0.975, range(1, 27)), abs=5e-4) == T_95
