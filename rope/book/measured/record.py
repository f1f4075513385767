"""Measurements kept in JSON: resumed after an interruption, written whole, easy to compare."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

DIGITS = 3  # of a measured number


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Every float in nested lists and dicts rounded to so many significant digits.

    >>> rounded({"a": [0.0012345, 1048576, 10000.0, 2.0**-29]})
    {'a': [0.00123, 1048576, 10000.0, 1.86e-09]}
    """
    if isinstance(value, dict):
        return {key: rounded(entry, digits) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry, digits) for entry in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def measured(
    output: Path,
    program: str,
    jobs: Mapping[str, Callable[[], Any]],
    whole: Callable[[dict[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """Do every job, showing a bar, write `whole` of the results to `output`, and return it.

    whole: makes the record of what the jobs returned, rounded, by name. What is measured so far
    stands beside the output as `NAME.partial.json`; a run that was interrupted goes on from there,
    if `program`, which says what the numbers depend on, is the same.
    """
    kept = output.with_suffix(".partial.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    done = earlier["done"] if earlier.get("program") == program else {}
    if earlier and not done:
        print(f"{kept} was measured otherwise, and is begun anew.", file=sys.stderr)
    for name, job in _shown(jobs):
        if name not in done:
            done[name] = rounded(job())
            write(kept, {"program": program, "done": done})
    record = whole(done)
    write(output, record)
    kept.unlink(missing_ok=True)
    return record


def _shown(jobs: Mapping[str, Callable[[], Any]]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The jobs, with a bar; where tqdm is not installed, as on a bare GPU machine, a line each."""
    try:
        from tqdm import tqdm
    except ImportError:
        for number, (name, job) in enumerate(jobs.items(), start=1):
            print(f"{number}/{len(jobs)} {name}", file=sys.stderr, flush=True)
            yield name, job
        return
    for name, job in (bar := tqdm(jobs.items())):
        bar.set_description(name)
        yield name, job


def write(path: Path, value: dict[str, Any]) -> None:
    """Replace the file in one step: an interrupted write leaves the old one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder, "a.json"), {"b": [1, 2], "a": {}})
    ...     print(Path(folder, "a.json").read_text(), end="")
    {
      "a": {},
      "b": [1, 2]
    }
    """
    fresh = path.with_suffix(".new")
    fresh.write_text(layout(value) + "\n", encoding="utf-8")
    os.replace(fresh, path)


def layout(value: Any, depth: int = 0) -> str:
    """Sorted keys, and one line an innermost list or dict, so that a change is easy to see."""
    entries = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(value, (dict, list)) or not any(
        isinstance(entry, (dict, list)) for entry in entries
    ):
        return json.dumps(value, sort_keys=True)
    inner = "  " * (depth + 1)
    if isinstance(value, dict):
        lines = [
            f"{inner}{json.dumps(key)}: {layout(value[key], depth + 1)}" for key in sorted(value)
        ]
    else:
        lines = [inner + layout(entry, depth + 1) for entry in value]
    ends = "{}" if isinstance(value, dict) else "[]"
    return ends[0] + "\n" + ",\n".join(lines) + "\n" + "  " * depth + ends[1]
