"""Describe the machine, package versions, and commit of a measurement, but not its date or user."""

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def about_here(packages: Sequence[str]) -> dict[str, Any]:
    """Return the commit, platform, Python version, cores, CPU model, and versions of `packages`.

    >>> sorted(about_here(["torch"]))
    ['commit', 'cores', 'cpu', 'platform', 'python', 'versions']
    """
    return {
        "commit": commit(),
        "cores": os.cpu_count(),
        "cpu": cpu_model(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in packages},
    }


def installed(package: str) -> str:
    """Return the version of a package, or "absent" if the package isn't installed.

    >>> installed("no-such-package")
    'absent'
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def cpu_model() -> str:
    """Return the processor's name from /proc/cpuinfo or, if it isn't there, from `platform`."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """Return the commit (plus " with changes" if files differ), or "unknown" if git fails."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty= with changes", "--exclude=*"]
    try:
        run = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return run.stdout.strip()
