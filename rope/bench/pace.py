"""Whether a CPU has its full speed: where others share the machine it may not, for seconds.

Two hardware threads of one core share its arithmetic. On a virtual machine the other one may be
somebody else's, and while it works what computes can take half as long again and more, while a
copy, which waits for memory, need not: a ratio of the two then says more of the neighbours than of
the code. Memory can be taken up by others too. So both are looked at before and after each round.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cache

import torch

_SMALL = 1 << 15  # elements to a thread, which most caches hold
_TIMES = 100
_LARGE = 1 << 23  # elements, which few caches hold
_SLACK = 1.2
_WATCH = 2.0  # seconds to look on at first
_HOPELESS = 5  # visits in a row that waited in vain

#: Seconds of fixed arithmetic in the cache, and of a fixed copy.
Look = tuple[float, float]
NOT_ASKED: Look = (math.nan, math.nan)


class Pace:
    """Fixed work on all threads, timed; full speed is the best that it has had."""

    def __init__(self, threads: int) -> None:
        self.small = torch.ones(2, _SMALL * threads, device="cpu")
        self.large = torch.ones(2, _LARGE, device="cpu")
        self.least: Look = (math.inf, math.inf)
        self.in_vain = 0
        until = time.perf_counter() + _WATCH
        while time.perf_counter() < until:
            self.look()

    def look(self) -> Look:
        """What the fixed work takes now, the better of two after one that wakes the cores."""
        self._multiply()
        found = min(self._multiply(), self._multiply()), min(self._copy(), self._copy())
        self.least = faster(self.least, found)
        return found

    def _multiply(self) -> float:
        ones, others = self.small
        start = time.perf_counter()
        for _ in range(_TIMES):
            torch.mul(ones, others, out=others)
        return time.perf_counter() - start

    def _copy(self) -> float:
        one, other = self.large
        start = time.perf_counter()
        other.copy_(one)
        return time.perf_counter() - start

    def slow(self, look: Look) -> bool:
        """Whether one of the two took more than a fifth above the least so far."""
        return slow(look, self.least)

    def patience(self, seconds: float) -> float:
        """How long a visit may wait: not at all once that has been in vain five times in a row."""
        return seconds if self.in_vain < _HOPELESS else 0.0

    def waited(self, in_vain: bool) -> None:
        """What came of a visit's waiting."""
        self.in_vain = self.in_vain + 1 if in_vain else 0


def slow(look: Sequence[float], least: Sequence[float]) -> bool:
    """Whether one of the two is more than a fifth above the least; False if it was not asked.

    >>> slow((1.1, 1.1), (1.0, 1.0)), slow((1.1, 1.3), (1.0, 1.0)), slow(NOT_ASKED, (1.0, 1.0))
    (False, True, False)
    """
    return any(taken > _SLACK * best for taken, best in zip(look, least, strict=True))


def faster(one: Sequence[float], other: Sequence[float]) -> Look:
    """The lesser of the arithmetic, the lesser of the copy."""
    return min(one[0], other[0]), min(one[1], other[1])


@cache
def pace(threads: int) -> Pace:
    """The same for all visits of a process, so that the best of all is known."""
    return Pace(threads)
