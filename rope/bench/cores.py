"""Whether a CPU's cores have their full speed: where others share them they may not, for seconds.

Two hardware threads of one core share its arithmetic. On a rented machine the other one may be a
stranger's, and while it works everything that computes takes up to twice as long, while a copy,
which waits for memory, does not: a ratio of the two is then one of the neighbours.
"""

from __future__ import annotations

import time
from functools import cache

import torch

_EACH = 1 << 15  # elements to a thread: they stay in its cache
_TIMES = 20
_SLACK = 1.2
_WATCH = 2.0  # seconds to look on at first


class Cores:
    """Fixed arithmetic on all threads, timed; full speed is the best that it has had."""

    def __init__(self, threads: int) -> None:
        count = _EACH * threads
        self.ones, self.others = torch.ones(count, device="cpu"), torch.ones(count, device="cpu")
        self.least = float("inf")
        until = time.perf_counter() + _WATCH
        while time.perf_counter() < until:
            self.seconds()

    def seconds(self) -> float:
        """What the fixed arithmetic takes now, in the best of three."""
        return min(self._once() for _ in range(3))

    def _once(self) -> float:
        start = time.perf_counter()
        for _ in range(_TIMES):
            torch.mul(self.ones, self.others, out=self.others)
        taken = time.perf_counter() - start
        self.least = min(self.least, taken)
        return taken

    def slow(self, seconds: float) -> bool:
        """Whether that was more than a fifth above the least so far."""
        return seconds > _SLACK * self.least


@cache
def cores(threads: int) -> Cores:
    """The same for all visits of a process, so that the best of all is known.

    >>> one = cores(1)
    >>> one is cores(1), one.slow(one.least), one.slow(2 * one.least)
    (True, False, True)
    """
    return Cores(threads)
