"""Measure one call: its seconds, the memory that it holds, and the bytes that it moves.

Chapters "From maths to PyTorch" and "Bytes, kernels, launches". A rotation does little arithmetic,
so its cost is its memory traffic: at least one read and one write of each element. Calls that are
compared take turns, so that a slow moment of the machine affects all of them. On a GPU,
`triton.testing.do_bench` clears the L2 cache before each call; meanwhile the host launches, so the
time is the device's only.
"""

from __future__ import annotations

import ctypes
import math
import os
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.benchmark import Timer

SEED = 20
Call = Callable[[], Any]
#: Settings of glibc's malloc.h: M_MMAP_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD. With "new", every
#: block of 128 KiB or more goes back to the system, so its pages are new each time. With "kept",
#: no block does.
ALLOCATOR = {
    "new": ((-4, 65536), (-3, 128 << 10), (-1, 128 << 10)),
    "kept": ((-4, 0), (-1, 2**31 - 1)),
}


def time_all(
    calls: Mapping[str, Call],
    device: torch.device,
    *,
    rounds: int = 5,
    seconds: float = 0.05,
    back_to_back: bool = False,
) -> tuple[dict[str, list[float]], dict[str, Exception]]:
    """Return the seconds of each call, many times over, and the exceptions of calls that raised.

    Both are keyed by name. Each round times every call for at least `seconds`, in a newly shuffled
    order; with 0 seconds, once after one untimed call. A call that raises is not timed again.
    back_to_back: use the host's clock on a GPU too, many calls in a row, so that the time includes
    the launches and the caches are warm.

    >>> seconds, failed = time_all({"nothing": int}, torch.device("cpu"), rounds=3, seconds=0)
    >>> len(seconds["nothing"]), failed
    (3, {})
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    failed: dict[str, Exception] = {}
    shuffle = random.Random(SEED)
    for _ in range(rounds):
        for name in shuffle.sample(list(times), len(times)):
            try:
                times[name] += _times(calls[name], device, seconds, back_to_back)
            except Exception as error:
                error.__traceback__ = error.__context__ = None  # they keep a call's tensors alive
                failed[name] = error
                del times[name]
    return times, failed


def _times(call: Call, device: torch.device, seconds: float, back_to_back: bool) -> list[float]:
    if device.type == "cuda" and not back_to_back:
        from triton.testing import do_bench

        times = do_bench(call, warmup=200 * seconds, rep=1000 * seconds, return_mode="all")
        return [milliseconds / 1000 for milliseconds in times]
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=seconds).times


def quartiles(times: Sequence[float]) -> dict[str, float]:
    """Return the lower quartile, the median and the upper quartile of at least two times.

    >>> quartiles([1.0, 9.0, 2.0])
    {'lower': 1.5, 'median': 2.0, 'upper': 5.5}
    """
    lower, median, upper = statistics.quantiles(times, n=4, method="inclusive")
    return {"lower": lower, "median": median, "upper": upper}


def settle_allocator(pages: str) -> None:
    """Fix whether the C library keeps freed memory ("kept") or returns it ("new"); glibc only.

    By default glibc decides from the history of the process, so the same `clone()` takes new pages
    in one program and kept ones in another, which can change its time fourfold. Kept blocks stay
    kept, so measure with "new" pages first.
    """
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for setting in ALLOCATOR[pages]:
            mallopt(*setting)


def page_faults(call: Call) -> int | None:
    """Return how many pages of memory one call has to wait for, or None on Windows."""
    try:
        import resource
    except ImportError:
        return None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def peak_memory(call: Call, device: torch.device) -> int:
    """Return the most bytes that PyTorch holds at once during `call()`, including its result.

    >>> x = torch.ones(1000)
    >>> peak_memory(lambda: x.clone(), x.device)
    4000
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        result = call()
        torch.cuda.synchronize(device)
        peak = torch.cuda.max_memory_allocated(device) - before
        del result
        return peak
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would log to stderr
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profile:
        result = call()
    del result
    held = peak = 0
    # Use the raw events: the list by operation nets what an operation allocates and releases.
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


class Traffic(TorchDispatchMode):
    """Count the operations inside the `with` block and the bytes that they read and write.

    The counts follow from shapes; nothing is timed. `operations` doesn't include views, which move
    nothing. `read` and `written` are bytes; each operation counts each of its tensors once, and an
    expanded tensor counts with the elements that it stores.

    >>> x = torch.zeros(1000)
    >>> with Traffic() as traffic:
    ...     y = x.view(10, 100) * 2 + 1
    >>> traffic.operations, traffic.read, traffic.written
    (2, 8000, 8000)
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.read = 0
        self.written = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]
        if not func.is_view and outputs:
            self.operations += 1
            self.read += sum(map(_stored_bytes, inputs))
            self.written += sum(map(_stored_bytes, outputs))
        return result


def _stored_bytes(tensor: Tensor) -> int:
    """Return the bytes of the distinct elements: an axis of stride 0 repeats one element."""
    if tensor.layout != torch.strided:
        return _stored_bytes(tensor._indices()) + _stored_bytes(tensor._values())
    axes = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in axes if stride or not size) * tensor.element_size()
