"""A run: case by case everybody is checked, those who are right are timed, and all is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rope import kernels
from rope.book.measured.bench.cases import Case
from rope.book.measured.bench.check import check
from rope.book.measured.bench.field import Competitor, Pair, Rotate, setting
from rope.book.measured.bench.memory import page_faults, peak_memory, settle_allocator
from rope.book.measured.clock import SEED, quartiles, time_all
from rope.book.measured.machine import about_here
from rope.book.measured.record import measured

#: How long each case is timed: see `rope.book.measured.clock.time_all`.
FULL = {"rounds": 5, "seconds": 0.05}
QUICK = {"rounds": 3, "seconds": 0.01}

Call = Callable[[], Any]


def run(
    path: Path,
    cases: Sequence[Case],
    field: Sequence[Competitor],
    device: torch.device,
    effort: dict[str, Any],
) -> dict[str, Any]:
    """Measure the cases, showing a bar, and write the record to `path`; returns it.

    The record: "metadata", all that a time depends on and that can be known, and "cases", a list of
    what `measure` returns. Whatever stops it, KeyboardInterrupt included, finished cases are kept,
    and it goes on from there if the metadata are the same.
    """
    about = metadata(field, device, effort)
    here = [entry for entry in field if about["versions"][entry.package] != "absent"]
    # What the C library has kept once it gives out again, so new pages come first.
    jobs = {
        case.name: partial(measure, case, here, device, effort)
        for case in sorted(cases, key=lambda case: case.pages != "new")
    }
    return measured(
        path,
        json.dumps(about, sort_keys=True),
        jobs,
        lambda done: {"cases": [done[case.name] for case in cases], "metadata": about},
    )


def metadata(
    field: Sequence[Competitor], device: torch.device, effort: dict[str, Any]
) -> dict[str, Any]:
    """Machine, device, versions, commit, effort, and what this package runs there."""
    about = about_here(sorted({"torch", "triton", *(entry.package for entry in field)}))
    about["device"] = {"kind": device.type, "threads": torch.get_num_threads()}
    if device.type == "cuda":
        about["device"]["gpu"] = torch.cuda.get_device_name(device)
    ours, _, _ = kernels.explain(device.type).partition(":")  # after it: where on this machine
    return about | {"effort": effort, "rope": ours}


def measure(
    case: Case, field: Sequence[Competitor], device: torch.device, effort: dict[str, Any]
) -> dict[str, Any]:
    """Check everybody, then time in turns those who are right, and two plain copies.

    "copy" fills tensors that exist, "clone" makes new ones. Returns "case", its `changes`; "times",
    by name: "lower", "median" and "upper" quartile of the seconds a call, "memory", the most bytes
    held by one call over those of the result, and "faults", the new pages that it takes, unless 0;
    "not timed": by the name of everybody else who is installed, why.
    """
    torch.compiler.reset()  # or else torch stops compiling after a few shapes
    if device.type == "cpu":
        settle_allocator(case.pages)
    made, inputs = setting(case, device), random_pair(case, device, SEED)
    grads = random_pair(case, device, SEED + 1) if case.mode == "backward" else None
    calls, left_out = _copies(inputs), dict[str, str]()
    for entry in field:
        why = entry.refusal(case, device)
        if not why:
            try:
                rotate = entry.prepare(made)
                why = check(entry, rotate, made, inputs, grads)
                calls |= {} if why else {entry.name: timed_call(rotate, inputs, grads)}
            except Exception as error:
                why = _sentence(error)
        left_out |= {entry.name: why} if why else {}
    times, failed = time_all(calls, device, **effort)
    left_out |= {name: _sentence(error) for name, error in failed.items()}
    lines: dict[str, dict[str, Any]] = {}
    for name, taken in times.items():
        lines[name] = quartiles(taken)
        lines[name]["memory"] = peak_memory(calls[name], device) / (case.bytes / 2)
        if device.type == "cpu" and (faults := page_faults(calls[name])):
            lines[name]["faults"] = faults
    return {"case": case.changes, "not timed": left_out, "times": lines}


def random_pair(case: Case, device: torch.device, seed: int) -> Pair:
    """Normally distributed q `[B, H, S, D]` and k `[B, H_kv, S, D]`, stored as the case says.

    >>> q, k = random_pair(Case(2, 4, 1, 3, 8, storage="[B,S,H,D]"), torch.device("cpu"), 1)
    >>> q.stride(), k.shape
    ((96, 8, 32, 1), torch.Size([2, 1, 3, 8]))
    """
    generator = torch.Generator(device).manual_seed(seed)
    made = partial(torch.empty, dtype=getattr(torch, case.dtype), device=device)

    def one(heads: int) -> torch.Tensor:
        if case.storage == "[B,H,S,D]":
            x = made(case.batch, heads, case.seq, case.head_dim)
        else:
            x = made(case.batch, case.seq, heads, case.head_dim).transpose(1, 2)
        return x.normal_(generator=generator)

    return one(case.heads), one(case.kv_heads)


def timed_call(rotate: Rotate, inputs: Pair, grads: Pair | None) -> Call:
    """What the clock runs: the rotation, or its gradient alone where grads are given."""
    if grads is None:
        return partial(rotate, *inputs)
    leaves = [x.detach().requires_grad_() for x in inputs]
    results = rotate(leaves[0], leaves[1])
    return partial(torch.autograd.grad, results, leaves, grads, retain_graph=True)


def _copies(inputs: Pair) -> dict[str, Call]:
    """The plain copies of the same tensors: into memory at hand, and into new memory."""
    into = [torch.empty_like(x) for x in inputs]
    return {
        "copy": lambda: [y.copy_(x) for x, y in zip(inputs, into, strict=True)],
        "clone": lambda: [x.clone() for x in inputs],
    }


def _sentence(error: Exception) -> str:
    """The first line of an exception, which may be hundreds long."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
