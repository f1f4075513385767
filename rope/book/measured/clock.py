"""One clock: what is compared takes turns, so that a slow moment of the machine strikes all alike.

`torch.utils.benchmark` times on a CPU; `triton.testing.do_bench` on a GPU: it clears the L2 cache
before each call, and while it does so the host has time to launch, so a time is the device's alone.
"""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.benchmark import Timer

SEED = 20


def time_all(
    calls: Mapping[str, Callable[[], Any]],
    device: torch.device,
    *,
    rounds: int = 5,
    seconds: float = 0.05,
    in_a_row: bool = False,
) -> tuple[dict[str, list[float]], dict[str, Exception]]:
    """Seconds a call, many times over, by name; and, by name, the exceptions of those who failed.

    A round times every call for so many seconds at least, in an order shuffled anew; with 0 seconds
    once, after one call that is not timed. Who raises is left out from then on.
    in_a_row: by the host's clock on a GPU too, many calls one after another, with their launches
    and with warm caches.

    >>> found, failed = time_all({"nothing": int}, torch.device("cpu"), rounds=3, seconds=0)
    >>> len(found["nothing"]), failed
    (3, {})
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    failed: dict[str, Exception] = {}
    shuffle = random.Random(SEED)
    for _ in range(rounds):
        for name in shuffle.sample(list(taken), len(taken)):
            try:
                taken[name] += _times(calls[name], device, seconds, in_a_row)
            except Exception as error:
                error.__traceback__ = error.__context__ = None  # which hold the tensors of a call
                failed[name] = error
                del taken[name]
    return taken, failed


def _times(
    call: Callable[[], Any], device: torch.device, seconds: float, in_a_row: bool
) -> list[float]:
    if device.type == "cuda" and not in_a_row:
        from triton.testing import do_bench

        times = do_bench(call, warmup=200 * seconds, rep=1000 * seconds, return_mode="all")
        return [milliseconds / 1000 for milliseconds in times]
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=seconds).times


def quartiles(times: Sequence[float]) -> dict[str, float]:
    """The median of two times or more, and the quartiles below and above it.

    >>> quartiles([1.0, 9.0, 2.0])
    {'lower': 1.5, 'median': 2.0, 'upper': 5.5}
    """
    lower, median, upper = statistics.quantiles(times, n=4, method="inclusive")
    return {"lower": lower, "median": median, "upper": upper}
