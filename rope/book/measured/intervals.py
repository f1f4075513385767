"""Summarize a few independent measurements by their mean and its 95% interval.

With n values and their standard deviation s, the interval is mean ± t s / sqrt(n), where t comes
from Student's t distribution with n - 1 degrees of freedom.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev

#: 95% of Student's t distribution lies within ±T_95[n - 1] for n = 1, 2, ... degrees of freedom.
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
)  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """Hold a mean and the half-width of its 95% interval, computed from `seeds` values.

    >>> Interval(2.0, 0.5).low, Interval(2.0, 0.5).high
    (1.5, 2.5)
    """

    mean: float
    half: float
    seeds: int = 5

    @property
    def low(self) -> float:
        """Return the lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Return the upper end of the interval."""
        return self.mean + self.half

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.half:.3f}"


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of 2 to 27 independent values and its 95% interval.

    >>> print(interval([1.0, 2.0, 3.0]))
    2.000 ± 2.484
    """
    count = len(values)
    half = T_95[count - 2] * stdev(values) / math.sqrt(count)
    return Interval(sum(values) / count, half, count)


def stratified(groups: Sequence[Sequence[float]]) -> Interval:
    """Return the mean of the groups' means and its 95% interval, for exactly these groups.

    groups: for example, one list per text, with one value per passage. A group needs at least two
    values. The interval reflects only the variation within groups, so it says nothing about other
    groups.

    >>> print(stratified([[1.0, 2.0, 3.0], [11.0, 12.0, 13.0]]))
    7.000 ± 1.133
    """
    freedom = sum(len(group) - 1 for group in groups)
    variance = sum(stdev(group) ** 2 / len(group) for group in groups) / len(groups) ** 2
    mean = sum(sum(group) / len(group) for group in groups) / len(groups)
    return Interval(mean, T_95[freedom - 1] * math.sqrt(variance), freedom + len(groups))
