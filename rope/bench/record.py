"""A run: case by case, again and again, kept as it is measured, written with all it depends on.

What is done so far stands beside the result as `NAME.partial.json`; a run that was interrupted
goes on from there, if device, versions, code and settings are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from rope._compiler import compiler_version
from rope.bench.cases import NEW_PAGES, Case
from rope.bench.competitors import Competitor
from rope.bench.measure import visit
from rope.bench.memory import KEPT, NEW, settle_allocator
from rope.bench.timing import Effort
from rope.bench.visits import best, finished
from rope.measuring.machine import commit, cpu_model, installed
from rope.measuring.record import resume, rounded, write

#: Raise it when an entry changes its meaning: entries of another version are not resumed.
VERSION = 6
#: Beside the competitors' own packages: what compiles their kernels.
TOOLS = ("torch", "triton", "numpy")


def run(
    path: Path,
    cases: Sequence[Case],
    field: Sequence[Competitor],
    *,
    device: torch.device,
    effort: Effort,
    command: str,
) -> dict[str, Any]:
    """Measure the cases, showing a bar, and write the record to `path`; returns it.

    All cases on new pages are visited as often as they shall be, then all others. The record:
    `metadata`, and `cases`, a list of what `finished` returns, floats rounded to three digits.
    Whatever stops it, KeyboardInterrupt included, what was measured is kept.
    """
    from tqdm import tqdm

    about = metadata(field, device, effort, command)
    program = _program(about)
    kept = path.with_suffix(".partial.json")
    done = resume(kept, program)
    path.parent.mkdir(parents=True, exist_ok=True)
    # What the allocator has kept once it gives out again, whatever it is told then.
    first = [case for case in cases if case.mode == NEW_PAGES]
    then = [case for case in cases if case.mode != NEW_PAGES]
    turns: Counter[str] = Counter()
    with tqdm(effort.visits * first + effort.visits * then, unit="visit") as bar:
        for case in bar:
            bar.set_description(case.name)
            turns[case.name] += 1
            visits = done.setdefault(case.name, [])
            if len(visits) < turns[case.name]:
                if device.type == "cpu":
                    settle_allocator(NEW if case.mode == NEW_PAGES else KEPT)
                visits.append(visit(case, field, device, effort, len(visits)))
                write(kept, {"program": program, "done": done})
    here = {case.name: done.pop(case.name) for case in cases}
    least = best(visit for visits in here.values() for visit in visits)
    result = {
        "cases": [rounded(finished(here[case.name], least)) for case in cases],
        "metadata": about,
    }
    write(path, result)
    if done:  # of a longer run that was interrupted
        write(kept, {"program": program, "done": done})
    else:
        kept.unlink(missing_ok=True)
    return result


def metadata(
    field: Sequence[Competitor], device: torch.device, effort: Effort, command: str
) -> dict[str, Any]:
    """Everything that a time depends on and that can be known: no date, no path, no user.

    >>> about = metadata((), torch.device("cpu"), Effort(), "python -m rope.bench")
    >>> sorted(about)[:4], about["device"]["kind"]
    (['command', 'commit', 'device', 'effort'], 'cpu')
    """
    packages = sorted({*TOOLS, *(entry.package for entry in field)})
    return {
        "command": command,
        "commit": commit(),
        "device": _device(device),
        "effort": asdict(effort),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: installed(name) or "absent" for name in packages},
    }


def _program(about: dict[str, Any]) -> str:
    """A hash of what an entry depends on: the metadata but the command, and the package's code."""
    digest = hashlib.sha256(json.dumps([VERSION, about | {"command": ""}], sort_keys=True).encode())
    package = Path(__file__).parents[1]
    for source in sorted([*package.rglob("*.py"), *package.rglob("*.c")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _device(device: torch.device) -> dict[str, Any]:
    about: dict[str, Any] = {
        "cores": os.cpu_count(),
        "cpu": cpu_model(),
        "kind": device.type,
        "threads": torch.get_num_threads(),
    }
    if device.type == "cpu":
        about |= {"compiler": compiler_version(), "large pages": _large_pages()}
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        about |= {
            "capability": f"{found.major}.{found.minor}",
            "cuda": torch.version.cuda,
            "gpu": found.name,
            "memory": found.total_memory,
        }
    return about


def _large_pages() -> str:
    """When Linux gives pages of 2 MiB: always, when asked (madvise), never."""
    try:
        modes = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    return modes.partition("[")[2].partition("]")[0] or "unknown"
