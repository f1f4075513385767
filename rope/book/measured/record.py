"""Store measurements as JSON: resume interrupted runs, write atomically, and keep diffs short."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

#: The folder of the records that come with the package.
RECORDED = Path(__file__).with_name("recorded")
DIGITS = 3  # the significant digits of a measured number


def recorded(name: str) -> dict[str, Any]:
    """Return a record that comes with the package, such as "cpu" or "real_model".

    >>> len(recorded("real_model")["losses"]["unchanged"])
    24
    """
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


def gpu_records() -> dict[str, dict[str, Any]]:
    """Return the GPU records that come with the package, keyed by device name."""
    names = [path.stem for path in sorted(RECORDED.glob("gpu-*.json"))]
    records = [recorded(name) for name in names if not name.endswith(".partial")]
    return {record["device"]: record for record in records}


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Round every float in nested lists and dicts to `digits` significant digits.

    >>> rounded({"a": [0.0012345, 1048576, 10000.0, 2.0**-29]})
    {'a': [0.00123, 1048576, 10000.0, 1.86e-09]}
    """
    if isinstance(value, dict):
        return {key: rounded(entry, digits) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry, digits) for entry in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def run_jobs(
    output: Path,
    program: str,
    jobs: Mapping[str, Callable[[], Any]],
    assemble: Callable[[dict[str, Any]], dict[str, Any]],
    digits: int = DIGITS,
) -> dict[str, Any]:
    """Run every job, then write and return the record that `assemble` builds from the results.

    program: a description of what the numbers depend on. assemble: a function that takes the
    rounded results, keyed by job name. digits: the significant digits of a result.
    Until the record is written, `NAME.partial.json`, next to the output, holds the results. An
    interrupted run resumes from that file unless `program` has changed.
    """
    partial_path = output.with_suffix(".partial.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(partial_path.read_text("utf-8")) if partial_path.exists() else {}
    done = earlier["done"] if earlier.get("program") == program else {}
    if earlier and not done:
        print(f"{partial_path} is from another program or machine; starting over.", file=sys.stderr)
    for number, (name, job) in enumerate(jobs.items(), start=1):
        if name not in done:
            print(f"{number}/{len(jobs)} {name}", file=sys.stderr, flush=True)
            done[name] = rounded(job(), digits)
            write(partial_path, {"program": program, "done": done})
    record = assemble(done)
    write(output, record)
    partial_path.unlink(missing_ok=True)
    return record


def write(path: Path, value: dict[str, Any]) -> None:
    """Write the value as JSON atomically; an interrupted write leaves the old file unchanged.

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


def layout(value: Any) -> str:
    """Return JSON with sorted keys and one line per innermost list or dict, to keep diffs short."""
    inside = re.compile(r"(?<=[\[{])\n[^\[\]{}]+(?=[\]}])")
    text = json.dumps(value, indent=2, sort_keys=True)
    return inside.sub(lambda lines: " ".join(map(str.strip, lines[0].strip().split("\n"))), text)
