"""Run the benchmark suites and write one record per device.

correctness: check the Triton kernel on this GPU. If a check fails, nothing is timed.
rotations: time this package, the baselines, and a copy in every case from `cases`.
decoding: time the rotation of one token per text, run eagerly, compiled, and from a CUDA graph.
tiles: time alternative tiles for the kernel.

A CPU runs only "rotations". `make gpu` runs all suites on a GPU and needs only torch and Triton.
Baselines that aren't installed are left out. An interrupted run resumes when you start it again.
The exit status is 0 if the record is complete, 1 if a check or a job failed or the device was lost,
and 2 if there is no GPU. Make reports every status except 0 as 2.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from rope import kernels
from rope.book.measured.baselines import BASELINES
from rope.book.measured.bench import cases, suites
from rope.book.measured.bench.correctness import CHECKS, check_kernel
from rope.book.measured.machine import about_here
from rope.book.measured.record import RECORDED, run_jobs

SUITES = ("correctness", "rotations", "decoding", "tiles")
#: The record's key for each suite's results.
KEYS = {"rotations": "cases", "decoding": "decoding", "tiles": "tiles"}
BATCHES = (1, 8, 32, 256)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the missing measurements, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rope.book.measured.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=default)
    parser.add_argument("--output", metavar="PATH", type=Path, help="where to write the record")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    on_gpu = device.type == "cuda"
    if on_gpu and not (torch.cuda.is_available() and find_spec("triton")):
        print("No CUDA device with Triton is available; pass --device cpu.", file=sys.stderr)
        return 2
    path = options.output or Path("bench-cpu.json")
    if on_gpu and not options.output:
        name = re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-")
        path = RECORDED / f"gpu-{name}.json"
    return run(path, device, SUITES if on_gpu else ("rotations",))


def run(path: Path, device: torch.device, chosen: Iterable[str]) -> int:
    """Run the chosen suites on a device, write the record to `path`, and return the exit status."""
    checks: dict[str, str] = {}
    for name in CHECKS if "correctness" in chosen else ():
        checks[name] = check_kernel(name, device)
        print(f"{name}: {checks[name]}", flush=True)
    if any(result.startswith("wrong") for result in checks.values()):
        print("The kernel failed a check on this device, so nothing is timed.", file=sys.stderr)
        return 1
    about = metadata(device)
    jobs = make_jobs(chosen, device, about["versions"])
    jobs = {name: partial(attempted, job, device) for name, job in jobs.items()}
    # Leave out the platform, because an updated Linux kernel doesn't change the results.
    program = {name: value for name, value in about.items() if name != "platform"}
    record = run_jobs(
        path, json.dumps(program, sort_keys=True), jobs, partial(assemble, about, checks)
    )
    for name, reason in record["not measured"].items():
        print(f"{name}: {reason}")
    print(f"Wrote {path}", file=sys.stderr)
    return int(bool(record["not measured"]))


def metadata(device: torch.device) -> dict[str, Any]:
    """Return the machine, device, versions, commit, effort, and the kernel that rope uses."""
    about = about_here(sorted({"triton", *(baseline.package for baseline in BASELINES)}))
    about["device"] = {"kind": device.type, "threads": torch.get_num_threads()}
    if device.type == "cuda":
        about["device"]["gpu"] = torch.cuda.get_device_name(device)
    ours, _, _ = kernels.explain(device.type).partition(":")  # drop the local path
    return about | {"effort": suites.FULL, "rope": ours}


def make_jobs(
    chosen: Iterable[str], device: torch.device, versions: dict[str, str]
) -> dict[str, Callable[[], Any]]:
    """Return the jobs of the chosen suites in a dict. Each key starts with the suite's name."""
    installed = [baseline for baseline in BASELINES if versions[baseline.package] != "absent"]
    grid, effort = cases.full(device.type), suites.FULL
    jobs: dict[str, Callable[[], Any]] = {
        f"rotations: {c.name}": partial(suites.measure, c, installed, device, effort) for c in grid
    }
    jobs |= {f"decoding: {b}": partial(suites.measure_decoding, b, device, effort) for b in BATCHES}
    jobs |= {
        f"tiles: {c.name}": partial(suites.measure_tiles, c, device) for c in suites.tile_cases()
    }
    return {name: job for name, job in jobs.items() if name.partition(":")[0] in chosen}


def attempted(job: Callable[[], Any], device: torch.device) -> Any:
    """Run a job, and return its result or the reason why it failed.

    Raises RuntimeError if an earlier job has lost the device. The earlier job is recorded as
    failed, so the next run skips it.
    """
    if device.type == "cuda":
        torch.cuda.synchronize()
    try:
        return job()
    except Exception as error:
        return {"not measured": suites.first_line(error)}


def assemble(about: dict[str, Any], checks: dict[str, str], done: dict[str, Any]) -> dict[str, Any]:
    """Return the record: device, metadata, checks, the results of each suite, and failures.

    "not measured" maps each failed job and each untimed call of this package to the reason.
    """
    failures: dict[str, str] = {}
    record: dict[str, Any] = {key: [] for key in KEYS.values()}
    for job, result in done.items():
        if "not measured" in result:
            failures[job] = result["not measured"]
            continue
        record[KEYS[job.partition(": ")[0]]].append(result)
        for name, reason in result.get("not timed", {}).items():
            if name.partition(",")[0] == "rope":
                failures[f"{job}, {name}"] = reason
    device = about["device"].get("gpu", about["cpu"])
    return record | {
        "device": device,
        "metadata": about,
        "checks": checks,
        "not measured": failures,
    }


if __name__ == "__main__":
    sys.exit(main())
