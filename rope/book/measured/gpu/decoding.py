"""A token at a time: the rotation called eagerly, compiled, and replayed from a CUDA graph.

The times are of many calls one after another, by the host's clock, so they hold what the host adds
to each launch, and vectors lie in the cache. A copy of the same tensors stands beside, eagerly and
from a graph.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from rope.book.measured.bench.cases import Case
from rope.book.measured.bench.field import ours, plain_formula, setting
from rope.book.measured.bench.run import random_pair
from rope.book.measured.clock import SEED, quartiles, time_all

CALLS = 16  # of a graph, so that its own launch is a small part


def case(batch: int) -> Case:
    """One token of each of so many texts, with the heads of a model of 8 billion parameters."""
    return Case(batch, 32, 8, 1, 128, "bfloat16")


def steps(batch: int, device: torch.device, effort: dict[str, Any]) -> dict[str, Any]:
    """Seconds a rotation, by way; "not timed": by way, why.

    >>> found = steps(1, torch.device("cpu"), {"rounds": 1, "seconds": 0})
    Traceback (most recent call last):
    ValueError: device is cpu; graphs are of CUDA devices: pass cuda
    """
    if device.type != "cuda":
        raise ValueError(f"device is {device.type}; graphs are of CUDA devices: pass cuda")
    torch.compiler.reset()  # or else torch stops compiling after a few batches
    made, (q, k) = setting(case(batch), device), random_pair(case(batch), device, SEED)
    out = [torch.empty_like(x) for x in (q, k)]
    ways: dict[str, Callable[[], Any]] = {
        "copy": lambda: [y.copy_(x) for x, y in zip((q, k), out, strict=True)],
        "rope": partial(ours(made), q, k),
        "formula": partial(plain_formula(made), q, k),
    }
    calls: dict[str, Callable[[], Any]] = {f"{name}, eager": call for name, call in ways.items()}
    left_out: dict[str, str] = {}
    for name, call in ways.items():
        try:
            calls[f"{name}, graph"] = captured(call)
        except Exception as error:
            left_out[f"{name}, graph"] = f"{type(error).__name__}: {error}"[:200]
        if name != "copy":
            compiled = torch.compile(call, dynamic=False)
            try:
                compiled()  # or else the clock takes the compiler's time for that of a call
                calls[f"{name}, compiled"] = compiled
            except Exception as error:
                left_out[f"{name}, compiled"] = f"{type(error).__name__}: {error}"[:200]
    taken, failed = time_all(calls, device, **effort, in_a_row=True)
    left_out |= {name: f"{type(error).__name__}: {error}"[:200] for name, error in failed.items()}
    seconds = {name: quartiles(times)["median"] for name, times in taken.items()}
    for name in seconds:
        if name.endswith("graph"):
            seconds[name] /= CALLS
    return {"batch": batch, "seconds": seconds, "not timed": left_out}


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """A graph of CALLS calls, to be replayed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph.replay
