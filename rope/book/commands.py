"""What `make book` and `make test` do: the strict build, and the tests part by part with a table.

Run as a file (`python rope/book/commands.py test`): it uses the standard library alone, so that it
can say which packages are missing. The working directory does not matter.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
APPLICATIONS = Path("/Applications")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
MAC_BROWSERS = ("Chromium", "Google Chrome")
CELL_SECONDS = 600
GET_CHROMIUM = (
    "no Chromium found. Debian: apt-get install chromium. macOS: brew install --cask chromium."
    " Any other: make test CHROMIUM=/path/to/chromium"
)


@dataclass
class Part:
    """One part of the tests: its name and what came of it."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = field(default="", repr=False)


def is_set(name: str) -> bool:
    """Whether an environment variable says yes."""
    return os.environ.get(name, "").lower() not in ("", "0", "no", "false")


def environment() -> dict[str, str]:
    """The environment of the parts: this tree's `rope`, one thread a process."""
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**os.environ, **own}


def run_pytest(part: Part, *arguments: str, browser: str | None = None) -> Part:
    """Run pytest, its output going straight to the terminal, and count what it reports."""
    began = time.monotonic()
    colour = "yes" if sys.stdout.isatty() else "no"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", f"--color={colour}"]
        extra = {"CHROMIUM": browser} if browser else {}
        done = subprocess.run(
            [*command, f"--junitxml={report}", *arguments],
            cwd=ROOT,
            env={**environment(), **extra},
            check=False,
        )
        if report.exists():
            for suite in ElementTree.parse(report).getroot().iter("testsuite"):
                failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
                skipped = int(suite.get("skipped", 0))
                part.failed += failed
                part.skipped += skipped
                part.passed += int(suite.get("tests", 0)) - failed - skipped
    none_found = 5
    if done.returncode not in (0, none_found) and not part.failed:
        part.failed = 1
        part.note = f"pytest ended with status {done.returncode}; its own words are above"
    part.seconds = time.monotonic() - began
    return part


def build(part: Part, *, quiet: bool) -> Part:
    """Build the HTML from the stored outputs; a warning of Sphinx is a failure."""
    began = time.monotonic()
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", "."]
    command += ["--all", "--warningiserror", "--nitpick", "--keep-going"]
    command += ["-q"] if quiet else []
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None
    shown = True
    for line in process.stdout:
        shown = shown and not line.startswith("Traceback (most recent call last)")
        if shown:
            print(line, end="", flush=True)
    if process.wait():
        part.failed = 1
        part.note = "Sphinx warned (above), and the build is strict"
    else:
        part.passed = 1
    part.seconds = time.monotonic() - began
    return part


def find_chromium() -> str | None:
    """The browser to test with: CHROMIUM, else the first that is installed."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    installed = [shutil.which(name) for name in BROWSERS]
    installed += [
        shutil.which(APPLICATIONS / f"{name}.app" / "Contents" / "MacOS" / name)
        for name in MAC_BROWSERS
    ]
    return next((browser for browser in installed if browser), None)


def browser_tests(part: Part, built: bool) -> Part:
    """The built pages in a real browser, where there is one."""
    if not (ROOT / "tests" / "test_browser.py").exists():
        part.note = "there is no tests/test_browser.py"
        return part
    browser = find_chromium()
    if browser is None:
        part.note = GET_CHROMIUM
        part.failed, part.skipped = (1, 0) if is_set("CI") else (0, 1)
        return part
    if not built:
        part.skipped, part.note = 1, "the build failed, so there are no pages to look at"
        return part
    # Two browsers at work: most of a test is waiting for a page to come to rest.
    two = ("-n", "2", "--dist", "worksteal")
    return run_pytest(part, *two, "tests/test_browser.py", browser=browser)


def test() -> int:
    """Run every part, whatever became of the ones before, and print what ran."""
    parts: list[Part] = []

    def begin(name: str) -> Part:
        print(f"\n== {name}", flush=True)
        parts.append(Part(name))
        return parts[-1]

    apart = ("--ignore=tests/test_notebooks.py", "--ignore=tests/test_browser.py")
    two = ("-n", "2", "--dist", "loadfile")
    run_pytest(begin("unit tests, doctests"), *two, "-m", "not slow", *apart, "tests", "rope")
    notebooks = sorted((ROOT / "chapters").glob("*.ipynb"))
    part = begin(f"chapters, each cell compared (nbval, {len(notebooks)} notebooks)")
    if notebooks:
        nbval = ("--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_SECONDS}")
        run_pytest(part, *nbval, *two, "chapters")
    run_pytest(begin("rules for notebooks"), "--tb=short", "tests/test_notebooks.py")
    built = build(begin("strict build"), quiet=True)
    browser_tests(begin("browser tests"), built=not built.failed)
    if is_set("CI") or is_set("SLOW"):
        os.environ["SLOW"] = "1"
        run_pytest(begin("slow tests"), *two, "-m", "slow", "tests")
    else:
        parts.append(Part("slow tests", note="not run; make test SLOW=1 runs them"))

    print(f"\n{'part':<52}passed  failed  skipped  seconds")
    for part in parts:
        counts = f"{part.passed:>6}{part.failed:>8}{part.skipped:>9}{part.seconds:>9.1f}"
        print(f"{part.name:<52}{counts}")
    for part in parts:
        if part.note:
            print(f"{part.name}: {part.note}.")
    passed, failed, skipped = (
        sum(getattr(part, what) for part in parts) for what in ("passed", "failed", "skipped")
    )
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0


def book() -> int:
    """Build the pages and say where they are."""
    built = build(Part("strict build"), quiet=False)
    if built.failed:
        print(f"\nThe book was not built: {built.note}.", file=sys.stderr)
        return 1
    print(f"\nBuilt in {built.seconds:.0f} s. Open {(HTML / 'index.html').as_uri()}")
    return 0


def packages() -> int:
    """Say which of the packages that the book names are missing from this environment."""
    if sys.version_info < (3, 11):  # noqa: UP036, this file is run by whatever PYTHON names
        print(
            f"{sys.executable} is Python {sys.version.split()[0]}; the book needs 3.11 or later.",
            file=sys.stderr,
        )
        return 1
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    own = text.split("# What those need in turn.")[0].splitlines()
    missing = []
    elsewhere = "darwin" if sys.platform.startswith("linux") else "linux"
    named = [line for line in own if "==" in line and f'"{elsewhere}"' not in line]
    names = [re.split(r"[=<> ]", line)[0] for line in named]
    for name in [*names, "rope-book"]:
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        print(
            f"{sys.executable} lacks {', '.join(missing)}.\nInstall what is missing (pip install"
            " -r requirements.txt, then pip install --no-deps --no-build-isolation -e .), or leave"
            " PYTHON out, and make sets up .venv.",
            file=sys.stderr,
        )
    return 1 if missing else 0


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("book", "test", "packages"))
    command = parser.parse_args().command
    try:
        return {"book": book, "test": test, "packages": packages}[command]()
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
