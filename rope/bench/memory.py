"""The most memory that one call holds beyond what was held before it, in bytes.

On a GPU torch keeps the count. On a CPU its profiler lists every allocation and release in order;
the peak is the largest running sum. Neither sees memory that does not pass through torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch


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
