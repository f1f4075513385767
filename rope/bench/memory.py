"""Memory: the most that a call holds, pages that it takes anew, and an allocator that holds still.

On a GPU torch counts what is held. On a CPU its profiler lists every allocation and release in
order; the peak is the largest running sum. Neither sees memory that does not pass through torch.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from typing import Any

import torch

#: Settings of glibc's malloc.h: M_MMAP_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD. NEW gives every
#: block from 128 KiB on back to the system, so that its pages are new each time; KEPT none.
NEW = ((-4, 65536), (-3, 128 << 10), (-1, 128 << 10))
KEPT = ((-4, 0), (-1, 2**31 - 1))


def settle_allocator(settings: tuple[tuple[int, int], ...]) -> bool:
    """Fix whether the C library keeps memory; False with another one, which stays as it is.

    Left alone glibc decides by all that was given back before, and the same clone() takes new
    pages in one program and kept ones in another, which costs four times as much or not. Blocks
    that were kept stay so: what is to have new pages comes first in a process.

    >>> settle_allocator(()) in (True, False)  # which changes nothing
    True
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    return all(mallopt(*setting) for setting in settings)


def pages_taken() -> float:
    """How often this process has stopped for a page that was not there; NaN where nobody counts.

    >>> import math
    >>> pages_taken() > 0 or math.isnan(pages_taken())
    True
    """
    return math.nan if _usage is None else _usage()


def _find() -> Callable[[], int] | None:
    try:
        import resource
    except ImportError:
        return None
    return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt


_usage = _find()


def peak_memory(call: Callable[[], Any], device: torch.device) -> int:
    """Bytes held at the worst moment of `call()`, its result among them.

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
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells of itself on stderr
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profile:
        result = call()
    del result
    held = peak = 0
    # The list by operation adds up what an operation allocates and releases; this one does not.
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def launches(call: Callable[[], Any]) -> int:
    """How many kernels one call starts on the GPU, copies and fills left out."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return sum(
        str(event.device_type).endswith("CUDA") and not event.name.startswith(("Memcpy", "Memset"))
        for event in profile.events()
    )
