"""Memory: the most that a call holds, the pages that it takes anew, and what the C library keeps.

On a GPU torch counts what is held. On a CPU its profiler lists every allocation and release in
order; the peak is the largest running sum. Neither sees memory that does not pass through torch.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

#: Settings of glibc's malloc.h: M_MMAP_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD. With "new" every
#: block from 128 KiB on goes back to the system, so that its pages are new each time; with "kept"
#: none does.
SETTINGS = {
    "new": ((-4, 65536), (-3, 128 << 10), (-1, 128 << 10)),
    "kept": ((-4, 0), (-1, 2**31 - 1)),
}


def settle_allocator(pages: str) -> None:
    """Fix whether the C library keeps memory; where it is not glibc it stays as it is.

    Left alone glibc decides by all that was given back before, and the same clone() takes new
    pages in one program and kept ones in another, which costs four times as much or not. Blocks
    that were kept stay so: what is to have "new" pages comes first in a process.
    """
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for setting in SETTINGS[pages]:
            mallopt(*setting)


def page_faults(call: Callable[[], Any]) -> int | None:
    """How often one call stops for a page of memory that is not there; None where nobody counts."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


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
