"""The clock: competitors and plain copies take turns, so that a slow moment strikes them all.

A round gives each one sample, in an order shuffled by a fixed seed. A sample is one call, or as
many as it takes to outlast the clock's own cost. A slow moment may outlast all rounds, and need not
strike all alike: a case can be visited several times, and a visit can wait for the machine's full
speed. Kept are the median and the quartiles of a call.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from rope.bench.memory import pages_taken
from rope.bench.pace import NOT_ASKED, Look, pace

SEED = 20
_PAUSE = 0.02  # seconds
Around = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Effort:
    """How long to measure one case.

    rounds: in a visit at least so many, at most `most`, stopping after `seconds` in between;
    sample: a sample lasts at least so many seconds; visits: how often a run comes to the case;
    patience: so many seconds of a visit, on a CPU, may go into waiting for its full speed, and into
    rounds that do not count as it was gone before or after.
    """

    rounds: int = 5
    most: int = 60
    seconds: float = 3.0
    sample: float = 4e-4
    visits: int = 1
    patience: float = 0.0


QUICK = Effort(rounds=5, most=15, seconds=0.4, sample=1e-4)
REPEATED = Effort(rounds=3, most=20, seconds=1.0, visits=3, patience=8.0)


def time_all(
    calls: Mapping[str, tuple[Callable[[int], Any], Around]], device: torch.device, effort: Effort
) -> tuple[dict[str, dict[str, Any]], dict[str, Exception]]:
    """What one visit tells of a call, by name: see `sample_all` and `summed_up`.

    >>> found, failed = time_all({"nothing": (int, _quiet)}, torch.device("cpu"), QUICK)
    >>> sorted(found["nothing"]), failed
    (['calls', 'lower', 'median', 'new_pages', 'samples', 'upper', 'visits'], {})
    """
    found = sample_all(calls, device, effort)
    return {name: summed_up([samples]) for name, samples in found.samples.items()}, found.failed


class Sampled(NamedTuple):
    """One visit. samples, by name: `seconds` a call, new `pages` a call, `calls` in a sample.

    failed: the exceptions of those that raised, who were left out from then on; looks: what the
    fixed work of `rope.bench.pace` took around each round, NaN where it was not asked.
    """

    samples: dict[str, dict[str, Any]]
    failed: dict[str, Exception]
    looks: list[Look]


def sample_all(
    calls: Mapping[str, tuple[Callable[[int], Any], Around]],
    device: torch.device,
    effort: Effort,
    visit: int = 0,
) -> Sampled:
    """Visit these calls once; the number of the visit decides in which orders.

    calls: what to run with the number of the turn, which tells it the inputs to take, and the
    context to enter before the clock starts.
    """
    counts: dict[str, int] = {}
    failed: dict[str, Exception] = {}
    order, shuffle = list(calls), random.Random(SEED + visit)

    def a_round(each: Callable[[str, Callable[[int], Any]], Any]) -> dict[str, Any]:
        found = {}
        shuffle.shuffle(order)
        for name in list(order):
            call, around = calls[name]
            try:
                with around():
                    found[name] = each(name, call)
            except Exception as error:
                error.__traceback__ = error.__context__ = None  # which hold the tensors of a call
                failed[name] = error
                order.remove(name)
        return found

    def sampled(name: str, call: Callable[[int], Any]) -> tuple[float, float]:
        before = pages_taken()
        seconds = _sample(call, counts[name], device)
        return seconds, (pages_taken() - before) / counts[name]

    with _quiet():
        # One round to find how many calls make a sample, and one to have all in its place.
        counts |= a_round(lambda name, call: _calls(call, device, effort))
        a_round(sampled)
        rounds = list(_rounds(lambda: a_round(sampled), device, effort))
    return Sampled(
        {
            name: {
                "calls": counts[name],
                "pages": [found[name][1] for found, _ in rounds],
                "seconds": [found[name][0] for found, _ in rounds],
            }
            for name in order
        },
        failed,
        [look for _, look in rounds],
    )


def _rounds(
    a_round: Callable[[], dict[str, Any]], device: torch.device, effort: Effort
) -> Iterator[tuple[dict[str, Any], Look]]:
    """Rounds, each with the worse of the two looks around it, until enough had full speed.

    None is dropped here; which count is said when all visits are done, by the looks alone.
    """
    watch = pace(torch.get_num_threads()) if effort.patience and device.type == "cpu" else None
    left = 0.0 if watch is None else watch.patience(effort.patience)
    number, spent, waits = 0, 0.0, left > 0
    while number < effort.most and (number < effort.rounds or spent < effort.seconds):
        start = time.perf_counter()
        before = NOT_ASKED if watch is None else watch.look()
        if watch is not None and left > 0 and watch.slow(before):
            time.sleep(_PAUSE)
            left -= time.perf_counter() - start
            continue
        start = time.perf_counter()
        found = a_round()
        took = time.perf_counter() - start
        after = NOT_ASKED if watch is None else watch.look()
        look = max(before[0], after[0]), max(before[1], after[1])
        yield found, look
        if watch is not None and left > 0 and watch.slow(look):
            left -= took
        else:
            number, spent = number + 1, spent + took
    if watch is not None and waits:
        watch.waited(in_vain=left <= 0)


def _calls(call: Callable[[int], Any], device: torch.device, effort: Effort) -> int:
    """How many calls make a sample: warmed up, then doubled until they last long enough."""
    count = 1
    _sample(call, count, device)
    while _sample(call, count, device) * count < effort.sample and count < 4096:
        count *= 2
    return count


def _sample(call: Callable[[int], Any], count: int, device: torch.device) -> float:
    """Seconds a call, over `count` calls in a row; results are dropped at once."""
    if device.type == "cuda":
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        first.record()
        for turn in range(count):
            call(turn)
        last.record()
        torch.cuda.synchronize(device)
        return first.elapsed_time(last) / 1000 / count
    start = time.perf_counter()
    for turn in range(count):
        call(turn)
    return (time.perf_counter() - start) / count


def summed_up(visits: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Seconds a call over the samples of visits: median, lower and upper quartile.

    new_pages: how often a call stopped for a page of memory that was not there, in the median; None
    where the system does not count them; samples: how many; calls: in a sample, at most; visits:
    the median of each.

    >>> visits = [{"calls": 1, "pages": [0], "seconds": [float(n)]} for n in (1, 9, 2)]
    >>> found = summed_up(visits)
    >>> found["median"], found["upper"], found["visits"]
    (2.0, 5.5, [1.0, 9.0, 2.0])
    """
    seconds = [value for visit in visits for value in visit["seconds"]]
    lower, median, upper = statistics.quantiles(seconds, n=4, method="inclusive")
    taken = statistics.median(value for visit in visits for value in visit["pages"])
    return {
        "calls": max(visit["calls"] for visit in visits),
        "lower": lower,
        "median": median,
        "new_pages": None if math.isnan(taken) else taken,
        "samples": len(seconds),
        "upper": upper,
        "visits": [statistics.median(visit["seconds"]) for visit in visits],
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """No garbage collection while the clock runs."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
