"""The report: every measurement in turn, kept as soon as it is made, written when all are there.

What is done so far stands beside the result as `NAME.partial.json`; a run that was interrupted
goes on from there, unless what is measured has changed since.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rope.accuracy import pairs, peers, relativity, tables
from rope.accuracy.cases import (
    CASES,
    HALF_POWERS,
    LARGEST,
    PEER_BASES,
    PEER_DIM,
    PEER_WINDOW,
    QUICK_CASES,
    fingerprint,
)
from rope.measuring.record import resume, rounded, write

PACKAGES = ("mpmath", "rotary-embedding-torch", "torch", "transformers")

Job = tuple[str, str, int, Callable[[Callable[[int], Any]], Any]]


def jobs(*, quick: bool) -> list[Job]:
    """The measurements: section, name, how many steps it has, and the call that makes it.

    quick leaves out the pass over every position: each extension's tables are measured once, at
    sampled positions alone.

    >>> [len(jobs(quick=kind)) for kind in (True, False)]
    [23, 53]
    """
    measure = tables.measure_sample if quick else tables.measure_all
    steps = len(tables.sample_positions()) if quick else LARGEST + 1
    found: list[Job] = [
        ("tables", f"{place}: {case.name}", steps, partial(measure, case))
        for place, case in enumerate(QUICK_CASES if quick else CASES)
    ]
    found += [
        ("pairs", f"{dtype}, base {base:.0f}", 1, _once(pairs.measure_pairs, base, dtype))
        for base in PEER_BASES
        for dtype in pairs.DTYPES
    ]
    found += [
        ("peers", f"base_{base:.0f}", 1, _once(peers.measure_peers, base)) for base in PEER_BASES
    ]
    found += [
        ("relativity", str(dtype), 1, _once(relativity.measure_relativity, dtype))
        for dtype in relativity.DTYPES
    ]
    return found


def measure(path: Path, *, quick: bool = False) -> dict[str, Any]:
    """Measure, showing a bar, and write the result to `path`; returns it.

    Whatever stops it, KeyboardInterrupt included, the measurements made so far are kept.
    """
    from tqdm import tqdm

    kept = path.with_suffix(".partial.json")
    done = resume(kept, fingerprint(quick=quick))
    todo = jobs(quick=quick)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tqdm(total=sum(steps for _, _, steps, _ in todo), unit="position", unit_scale=True) as bar:
        for section, name, steps, job in todo:
            key = f"{section}/{name}"
            bar.set_description(key)
            if key in done:
                bar.update(steps)
                continue
            done[key] = rounded(job(bar.update))
            write(kept, {"program": fingerprint(quick=quick), "done": done})
    result = _assembled(todo, done, quick)
    write(path, result)
    kept.unlink(missing_ok=True)
    return result


def _once(call: Callable[..., Any], *arguments: Any) -> Callable[[Callable[[int], Any]], Any]:
    def job(advance: Callable[[int], Any]) -> Any:
        found = call(*arguments)
        advance(1)
        return found

    return job


def _assembled(todo: list[Job], done: dict[str, Any], quick: bool) -> dict[str, Any]:
    """The layout of the result: lists for tables, pairs and relativity, one dict for the peers."""
    result: dict[str, Any] = {
        "pairs": [],
        "peers": {"dim": PEER_DIM, "positions": list(HALF_POWERS), "window": PEER_WINDOW},
        "program": fingerprint(quick=quick),
        "relativity": [],
        "tables": [],
        "versions": {name: _version(name) for name in PACKAGES},
    }
    for section, name, _, _ in todo:
        found = done[f"{section}/{name}"]
        if section == "peers":
            result["peers"][name] = found
        else:
            result[section] += found if isinstance(found, list) else [found]
    return result


def _version(name: str) -> str:
    try:
        return version(name).split("+")[0]  # which build, CPU or CUDA, changes no number here
    except PackageNotFoundError:
        return "absent"
