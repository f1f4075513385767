"""Names what an environment of one's own lacks: `make ... PYTHON=...` asks this before all else.

Run as a file, and with the standard library alone: it must work where nothing is installed.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[3] / "requirements.txt"


def missing(requirements: str) -> list[str]:
    """The packages that these lines name, for this system, and that are not installed.

    >>> missing('pytest==1\\nno-such-package==1\\nnor-this>=2 ; sys_platform == "win32"')
    ['no-such-package']
    """
    absent = []
    for name, system in re.findall(r'^([\w-]+)[=>]=[^;\n]*(?:;.*"(\w+)")?', requirements, re.M):
        try:
            version(name)
        except PackageNotFoundError:
            absent += [name] if system in ("", sys.platform) else []
    return absent


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036, this file is run by whatever PYTHON names
        old = sys.version.split()[0]
        sys.exit(f"{sys.executable} is Python {old}; the book needs 3.11 or later.")
    text = REQUIREMENTS.read_text(encoding="utf-8").partition("# What those need in turn.")[0]
    if absent := missing(f"{text}\nrope-book==0"):
        sys.exit(
            f"{sys.executable} lacks {', '.join(absent)}.\nInstall what is missing"
            " (pip install -r requirements.txt, then pip install --no-deps --no-build-isolation"
            " -e .), or leave PYTHON out: make sets up .venv."
        )
