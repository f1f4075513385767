"""The report: every measurement in turn, kept as soon as it is made, written when all are there.

What is done so far stands beside the result as `NAME.partial.json`; a run that was interrupted
goes on from there, unless what is measured has changed since.
"""

from __future__ import annotations

import json
import os
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

PACKAGES = ("mpmath", "rotary-embedding-torch", "torch", "transformers")
DIGITS = 3

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
    done = _resume(kept, fingerprint(quick=quick))
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
            _write(kept, {"program": fingerprint(quick=quick), "done": done})
    result = _assembled(todo, done, quick)
    _write(path, result)
    kept.unlink(missing_ok=True)
    return result


def rounded(value: Any) -> Any:
    """Every float in nested lists and dicts rounded to three significant digits.

    >>> rounded({"a": [0.0012345, 1048576, 10000.0, 2.0**-29]})
    {'a': [0.00123, 1048576, 10000.0, 1.86e-09]}
    """
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


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


def _resume(kept: Path, program: str) -> dict[str, Any]:
    """What an earlier run of the same program has measured."""
    try:
        found = json.loads(kept.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return found["done"] if found.get("program") == program else {}


def _write(path: Path, value: dict[str, Any]) -> None:
    """Replace the file in one step: an interrupted write leaves the old one."""
    fresh = path.with_suffix(".new")
    fresh.write_text(_layout(value) + "\n", encoding="utf-8")
    os.replace(fresh, path)


def _layout(value: Any, depth: int = 0) -> str:
    """JSON with sorted keys, one line an innermost list or dict, so that a change is easy to see.

    >>> print(_layout({"b": [1, 2], "a": {}}))
    {
      "a": {},
      "b": [1, 2]
    }
    """
    entries = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(value, (dict, list)) or not any(
        isinstance(entry, (dict, list)) for entry in entries
    ):
        return json.dumps(value, sort_keys=True)
    inner = "  " * (depth + 1)
    if isinstance(value, dict):
        lines = [
            f"{inner}{json.dumps(key)}: {_layout(value[key], depth + 1)}" for key in sorted(value)
        ]
    else:
        lines = [inner + _layout(entry, depth + 1) for entry in value]
    ends = "{}" if isinstance(value, dict) else "[]"
    return ends[0] + "\n" + ",\n".join(lines) + "\n" + "  " * depth + ends[1]
