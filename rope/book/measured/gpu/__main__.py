"""`make gpu`: check, time and tile on this GPU, in parts of some minutes, and write its record.

Started again it goes on where it stopped. What is missing is said, and the rest goes on; nothing is
timed before the kernel is right. The exit status, which make turns into 2, is 0 when the record is
written and whole, 75 when it is to be started again, 1 when a check failed or the record says what
could not be measured, 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from rope.book.measured.bench import RECORDED, cases, report
from rope.book.measured.bench.field import FIELD
from rope.book.measured.bench.run import FULL, QUICK, measure, metadata
from rope.book.measured.gpu import OutOfTime
from rope.book.measured.record import measured

AGAIN = 75  # as sysexits.h has it: try again
BATCHES = (1, 8, 32, 256)
PACKAGE = Path(__file__).parents[3]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not measured yet, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rope.book.measured.gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=9.0, help="stop after these (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="small cases, to try the command")
    parser.add_argument("--output", type=Path, help="the record (gpu-NAME.json of the benchmark)")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() or find_spec("triton") is None:
        print("There is no CUDA device with Triton here: nothing is measured.", file=sys.stderr)
        return 2
    name = torch.cuda.get_device_name()
    path = options.output or RECORDED / f"{'quick' if options.quick else 'gpu'}-{slug(name)}.json"
    return run(path, name, torch.device("cuda"), options.minutes, options.quick)


def run(path: Path, name: str, device: torch.device, minutes: float, quick: bool) -> int:
    """All parts on a device; see `main`."""
    from rope.book.measured.gpu import checks  # which imports Triton

    until = time.monotonic() + 60 * minutes
    passed: dict[str, str] = {}
    for check in checks.CHECKS:
        passed[check] = checks.check(check, device)
        print(f"{check}: {passed[check]}", flush=True)
    if any(said.startswith("wrong") for said in passed.values()):
        print("The kernel is wrong here, so nothing is timed.", file=sys.stderr)
        return 1
    effort = QUICK if quick else FULL
    about = metadata(FIELD, device, effort) | {"clocks": clocks(), "sources": sources()}
    for package in sorted({entry.package for entry in FIELD}):
        if about["versions"][package] == "absent":
            print(f"{package} is not installed: it is left out.", file=sys.stderr)
    jobs = parts(device, effort, about["versions"], quick, until)
    # Clocks move while it runs, and a lent machine may come back with another kernel of Linux.
    same = {name: known for name, known in about.items() if name not in ("clocks", "platform")}
    program = json.dumps(same, sort_keys=True)
    try:
        record = measured(
            path,
            program,
            within(jobs, device, until),
            lambda done: whole(name, about, passed, done),
        )
    except OutOfTime as error:
        print(f"\n{error}", file=sys.stderr)
        return AGAIN
    print(text(record))
    print(f"Wrote {path}; now: make execute NB=chapters/on_the_gpu.ipynb", file=sys.stderr)
    return int(bool(record["not measured"]))


def parts(
    device: torch.device,
    effort: dict[str, Any],
    versions: dict[str, str],
    quick: bool,
    until: float,
) -> dict[str, Callable[[], Any]]:
    """Every job by name, in the order in which they are done."""
    from rope.book.measured.gpu import decoding, tiles  # which import Triton

    grid = cases.quick(device.type) if quick else cases.full(device.type)
    swept = list(tiles.cases())[:2] if quick else list(tiles.cases())
    here = [entry for entry in FIELD if versions[entry.package] != "absent"]
    jobs: dict[str, Callable[[], Any]] = {
        f"bench: {c.name}": partial(measure, c, here, device, effort) for c in grid
    }
    jobs |= {f"decoding: {b}": partial(decoding.steps, b, device, effort) for b in BATCHES}
    return jobs | {f"tile: {c.name}": partial(tiles.sweep, c, device, QUICK, until) for c in swept}


def within(
    jobs: dict[str, Callable[[], Any]], device: torch.device, until: float
) -> dict[str, Callable[[], Any]]:
    """The same, none of which begins after a time, or on a lost device; who fails says why."""

    def timed(name: str, job: Callable[[], Any]) -> Any:
        if time.monotonic() > until:
            raise OutOfTime(f"its time is over before {name}: start it again.")
        try:
            if device.type == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            raise OutOfTime(f"the device was lost before {name}: start it again.") from error
        try:
            return job()
        except OutOfTime:
            raise
        except Exception as error:
            return {"not measured": f"{type(error).__name__}: {error}".splitlines()[0][:200]}

    return {name: partial(timed, name, job) for name, job in jobs.items()}


def whole(
    name: str, about: dict[str, Any], passed: dict[str, str], done: dict[str, Any]
) -> dict[str, Any]:
    """The record: device, metadata, checks, the benchmark's cases, decoding, tiles, failures.

    A failure is a job that raised, and a case in which our kernel was not right or not timed.
    """
    record: dict[str, Any] = {"device": name, "metadata": about, "checks": passed}
    record["not measured"] = {}
    lists = {"bench": "cases", "decoding": "decoding", "tile": "tiles"}
    record |= {key: [] for key in lists.values()}
    for job, result in done.items():
        if "not measured" in result:
            record["not measured"][job] = result["not measured"]
            continue
        record[lists[job.partition(": ")[0]]].append(result)
        for who, why in result.get("not timed", {}).items():
            if who.partition(",")[0] == "rope":
                record["not measured"][f"{job}, {who}"] = why
    return record


def text(record: dict[str, Any]) -> str:
    """The record in words and tables."""
    from rope.book.measured.gpu import tiles

    lines = [record["device"], "", report.table(record), "", tiles.table(record["tiles"]), ""]
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


def sources() -> str:
    """A digest of the kernels and of what measures them: parts of two versions are no one record.

    >>> len(sources())
    12
    """
    files = sorted([*PACKAGE.glob("kernels/*.py"), *PACKAGE.glob("book/measured/**/*.py")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


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
