"""A visit to a case: everybody is prepared and checked, and those who are right timed together.

What a competitor's line says: `status` "timed", or "absent", "refused", "failed" or "wrong" with a
sentence in `why`. Times are seconds a call, memory is bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rope.bench.cases import Case
from rope.bench.check import check
from rope.bench.competitors import Competitor, Ready, RefusedError, Setting, empty, setting
from rope.bench.memory import launches, peak_memory
from rope.bench.timing import Around, Effort, sample_all

COPIES = ("clone", "copy_")
GRAPH = "{}, CUDA graph"
SEED = 20
#: On a GPU, inputs are taken in turn from so many bytes, several times what its caches hold.
SPREAD = 2**28
SETS = 64

Pair = tuple[Tensor, Tensor]
Call = Callable[[int], Any]


def visit(
    case: Case,
    field: Sequence[Competitor],
    device: torch.device,
    effort: Effort,
    number: int = 0,
) -> dict[str, Any]:
    """What `rope.bench.visits.finished` makes an entry of: name, case, bytes, lines, samples.

    The samples of a copy stand under its name, a competitor's in its line as `taken`, and those of
    its CUDA graph as `graph`; `looks` tells of the machine's speed around each round. number: of
    the visit, which decides the orders of its rounds.
    """
    torch.compiler.reset()  # or else torch stops compiling after a few shapes
    setting.cache_clear()  # for tables and buffers that lie elsewhere than in the visit before
    made = setting(case, device)
    sets = _inputs(case, device)
    grads = _inputs(case, device, seed=SEED + 1) if case.direction != "forward" else None
    lines: dict[str, dict[str, Any]] = {}
    calls: dict[str, tuple[Call, Around]] = _copies(sets)
    for entry in field:
        ready, lines[entry.name] = _prepared(entry, made, sets[0], grads)
        if ready is None:
            continue
        try:
            with ready.around():
                call = timed_call(ready, case, sets, grads)
                call(0)
                lines[entry.name]["peak"] = peak_memory(partial(call, 0), device)
        except Exception as error:
            lines[entry.name] = _failed(entry, error)
            continue
        calls[entry.name] = call, ready.around
        if device.type == "cuda" and case.kind == "decode":
            replay = _graph(ready, sets[0], lines[entry.name])
            if replay is not None:
                calls[GRAPH.format(entry.name)] = replay, nullcontext
    taken, failed, looks = sample_all(calls, device, effort, number)
    for name in COPIES:
        if name in failed:  # without a copy no time means anything
            raise failed[name]
    for entry in field:
        if entry.name in failed:
            lines[entry.name] = _failed(entry, failed[entry.name])
        elif entry.name in taken:
            graph = taken.get(GRAPH.format(entry.name))
            lines[entry.name]["taken"] = taken[entry.name]
            lines[entry.name] |= {} if graph is None else {"graph": graph}
            if GRAPH.format(entry.name) in failed:
                lines[entry.name]["graph_why"] = _sentence(failed[GRAPH.format(entry.name)])
    return {
        "bytes": case.bytes,
        "case": asdict(case),
        "competitors": lines,
        "copies": {name: taken[name] for name in COPIES},
        "looks": looks,
        "name": case.name,
        "output": case.bytes // 2,
        "sets": len(sets),
    }


def timed_call(
    ready: Ready, case: Case, sets: Sequence[Pair], grads: Sequence[Pair] | None
) -> Call:
    """What the clock runs: turn -> one call on the inputs of that turn."""
    number = len(sets)
    if grads is None:
        return lambda turn: ready.rotate(*sets[turn % number])
    leaves = [(q.detach().requires_grad_(), k.detach().requires_grad_()) for q, k in sets]
    if case.direction == "both":

        def both(turn: int) -> Any:
            pair = leaves[turn % number]
            return torch.autograd.grad(ready.rotate(*pair), pair, grads[turn % number])

        return both
    results = [ready.rotate(*pair) for pair in leaves]

    def backward(turn: int) -> Any:
        place = turn % number
        return torch.autograd.grad(results[place], leaves[place], grads[place], retain_graph=True)

    return backward


def _inputs(case: Case, device: torch.device, seed: int = SEED) -> list[Pair]:
    """Random q and k: one pair on a CPU, on a GPU as many as outgrow its caches, at most 64."""
    size = case.elements * torch.finfo(getattr(torch, case.dtype)).bits // 8
    number = max(1, min(SETS, SPREAD // size)) if device.type == "cuda" else 1
    generator = torch.Generator(device).manual_seed(seed)
    return [
        (
            empty(case, case.heads, device).normal_(generator=generator),
            empty(case, case.kv_heads, device).normal_(generator=generator),
        )
        for _ in range(number)
    ]


def _copies(sets: Sequence[Pair]) -> dict[str, tuple[Call, Around]]:
    """The plain copies of the same tensors: into new memory, and into memory at hand."""
    into = [torch.empty_like(tensor) for tensor in sets[0]]
    number = len(sets)

    def clone(turn: int) -> Any:
        q, k = sets[turn % number]
        return q.clone(), k.clone()

    def copy_(turn: int) -> Any:
        q, k = sets[turn % number]
        return into[0].copy_(q), into[1].copy_(k)

    return {"clone": (clone, nullcontext), "copy_": (copy_, nullcontext)}


def _prepared(
    entry: Competitor, made: Setting, inputs: Pair, grads: Sequence[Pair] | None
) -> tuple[Ready | None, dict[str, Any]]:
    """The call, if it may be timed, and the beginning of the competitor's line."""
    if entry.version is None:
        return None, {"status": "absent", "why": f"{entry.package} is not installed"}
    try:
        ready = entry.prepare(made)
        verdict = check(entry, ready, made, inputs, grads[0] if grads else None)
    except RefusedError as reason:
        return None, {"status": "refused", "why": str(reason), "version": entry.version}
    except Exception as error:
        return None, _failed(entry, error)
    if verdict.wrong is not None:
        return None, {"status": "wrong", "why": verdict.wrong, "version": entry.version}
    return ready, {
        "error": verdict.error,
        "of_allowed": verdict.share,
        "overwrites": verdict.overwrites,
        "status": "timed",
        "version": entry.version,
    }


def _failed(entry: Competitor, error: Exception) -> dict[str, Any]:
    error.__traceback__ = error.__context__ = None  # which hold the tensors of a call
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return {"status": "failed", "why": _sentence(error), "version": entry.version}


def _sentence(error: Exception) -> str:
    """The first line of an exception, which may be hundreds long.

    >>> _sentence(OSError("no room\\nat line 1"))
    'OSError: no room'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:300]


def _graph(ready: Ready, inputs: Pair, line: dict[str, Any]) -> Call | None:
    """A CUDA graph of one call, to be replayed; its number of kernels is put into the line."""
    try:
        with ready.around():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    ready.rotate(*inputs)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                ready.rotate(*inputs)
        line["launches"] = launches(graph.replay)
    except Exception as error:
        line["graph_why"] = _sentence(error)
        return None
    return lambda turn: graph.replay()
