"""`make gpu`: check, tile, time and write the record of this GPU, in parts of some minutes.

Started again it goes on where it stopped. What is missing is said, and the rest goes on. The exit
status is 0 when the record is written, 75 when time ran out and it is to be started again, 1 when a
check failed, 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rope.book.measured.bench import RECORDED, cases, report
from rope.book.measured.bench.field import FIELD
from rope.book.measured.bench.run import FULL, QUICK, measure, metadata
from rope.book.measured.machine import installed
from rope.book.measured.record import measured

AGAIN = 75  # as sysexits.h has it: try again
BATCHES = (1, 8, 32, 256)


class OutOfTime(Exception):
    """The minutes given are over; what is measured is kept."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not measured yet, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rope.book.measured.gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=9.0, help="stop after these (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="small cases, to try the command")
    parser.add_argument("--output", type=Path, help="the record (gpu-NAME.json of the benchmark)")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() or installed("triton") == "absent":
        print("There is no CUDA device with Triton here: nothing is measured.", file=sys.stderr)
        return 2
    name = torch.cuda.get_device_name()
    path = options.output or RECORDED / f"gpu-{slug(name)}.json"
    return run(path, name, torch.device("cuda"), options.minutes, options.quick)


def run(path: Path, name: str, device: torch.device, minutes: float, quick: bool) -> int:
    """All parts on a device; see `main`."""
    effort = QUICK if quick else FULL
    about = metadata(FIELD, device, effort) | {"clocks": clocks()}
    for package in sorted({entry.package for entry in FIELD}):
        if about["versions"][package] == "absent":
            print(f"{package} is not installed: it is left out.", file=sys.stderr)
    jobs = parts(device, effort, about["versions"], quick)
    # Clocks move while it runs, and are no reason to begin again.
    program = json.dumps({k: v for k, v in about.items() if k != "clocks"}, sort_keys=True)
    try:
        record = measured(
            path, program, within(jobs, minutes), lambda done: whole(name, about, done)
        )
    except OutOfTime as error:
        print(f"\n{error}", file=sys.stderr)
        return AGAIN
    print(text(record))
    print(f"Wrote {path}; now: make execute NB=chapters/on_the_gpu.ipynb", file=sys.stderr)
    return int(any(each.startswith("wrong") for each in record["checks"].values()))


def parts(
    device: torch.device, effort: dict[str, Any], versions: dict[str, str], quick: bool
) -> dict[str, Callable[[], Any]]:
    """Every job by name, in the order in which they are done."""
    from rope.book.measured.gpu import checks, decoding, tiles  # which import Triton

    grid = cases.quick(device.type) if quick else cases.full(device.type)
    swept = list(tiles.cases())[:2] if quick else list(tiles.cases())
    here = [entry for entry in FIELD if versions[entry.package] != "absent"]
    jobs: dict[str, Callable[[], Any]] = {
        f"check: {name}": partial(checks.check, name, device) for name in checks.CHECKS
    }
    jobs |= {f"bench: {c.name}": partial(measure, c, here, device, effort) for c in grid}
    jobs |= {f"decoding: {b}": partial(decoding.steps, b, device, effort) for b in BATCHES}
    return jobs | {f"tile: {c.name}": partial(tiles.sweep, c, device, QUICK) for c in swept}


def within(jobs: dict[str, Callable[[], Any]], minutes: float) -> dict[str, Callable[[], Any]]:
    """The same, none of which begins after so many minutes; a job that fails says why."""
    until = time.monotonic() + 60 * minutes

    def timed(name: str, job: Callable[[], Any]) -> Any:
        if time.monotonic() > until:
            raise OutOfTime(f"{minutes:g} minutes are over before {name}: start it again.")
        try:
            return job()
        except Exception as error:
            return {"not measured": f"{type(error).__name__}: {error}".splitlines()[0][:200]}

    return {name: partial(timed, name, job) for name, job in jobs.items()}


def whole(name: str, about: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
    """The record: device, metadata, checks, the benchmark's cases, decoding, tiles, failures."""
    record: dict[str, Any] = {"device": name, "metadata": about, "checks": {}, "not measured": {}}
    lists = {"bench": "cases", "decoding": "decoding", "tile": "tiles"}
    record |= {key: [] for key in lists.values()}
    for job, result in done.items():
        part, _, what = job.partition(": ")
        if isinstance(result, dict) and "not measured" in result:
            record["not measured"][job] = result["not measured"]
        elif part == "check":
            record["checks"][what] = result
        else:
            record[lists[part]].append(result)
    return record


def text(record: dict[str, Any]) -> str:
    """The record in words and tables."""
    from rope.book.measured.gpu import tiles

    lines = [record["device"], *(f"{name}: {said}" for name, said in record["checks"].items())]
    lines += ["", report.table(record), "", tiles.table(record["tiles"]), ""]
    for entry in record["decoding"]:
        times = ", ".join(f"{name} {1e6 * s:.2f}" for name, s in entry["seconds"].items())
        lines.append(f"one token of {entry['batch']} texts, microseconds: {times}")
    return "\n".join(lines + [f"{job}: {why}" for job, why in record["not measured"].items()])


def slug(name: str) -> str:
    """A device's name as a file's.

    >>> slug("NVIDIA H100 80GB HBM3")
    'nvidia-h100-80gb-hbm3'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def clocks() -> str:
    """What nvidia-smi says of clocks and power, in MHz and W; why not, where it is not there."""
    query = "clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit"
    words = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        return f"not known ({type(error).__name__})"
    return f"{query}: {found.stdout.splitlines()[0]}"


if __name__ == "__main__":
    sys.exit(main())
