"""What a measurement depends on and can be known: machine, versions, commit; no date, no user."""

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def about_here(packages: Sequence[str]) -> dict[str, Any]:
    """Commit, platform, Python, cores, CPU, and the versions of these packages.

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
    """The version of a package.

    >>> installed("no-such-package")
    'absent'
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def cpu_model() -> str:
    """The processor as Linux names it, or else what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """The commit that this package is checked out at, with a word where files differ from it."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty= with changes", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip() or "unknown"
