"""A mean with its interval: what a few independent measurements say, and how surely.

95% intervals by Student's t: mean ± t s / sqrt(n), s the standard deviation of the n values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev

#: What 95% of Student's distribution lies within, for 1, 2, ... degrees of freedom.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Interval:
    """A mean and half the width of its 95% interval.

    >>> Interval(2.0, 0.5).low, Interval(2.0, 0.5).high
    (1.5, 2.5)
    """

    mean: float
    half: float

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + self.half

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.half:.3f}"


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95% interval of 2 to 11 independent values; ValueError for another number of them.

    >>> print(interval([1.0, 2.0, 3.0]))
    2.000 ± 2.484
    """
    count = len(values)
    if not 2 <= count <= len(T_95) + 1:
        raise ValueError(
            f"values has {count} numbers; it must have 2 to {len(T_95) + 1}, such as one for each "
            "seed: measure more of them, or fewer"
        )
    return Interval(sum(values) / count, T_95[count - 2] * stdev(values) / math.sqrt(count))
