"""Runs every chapter as a reader of it alone does, and reports which stop, where and why.

`python -m rope.book.tools.everywhere` runs each notebook in an empty folder of its own. Outputs are
not compared, and nothing is stored: elsewhere numbers may be printed otherwise, and the chapters'
own assertions decide. `.github/workflows/colab.yml` runs it in Colab's image, where the first cells
install `rope` from the address that is given, at the tag of its version.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import nbformat
from tqdm import tqdm

from rope.book.tools.execute import CHAPTERS, execute
from rope.book.tools.repository import with_address

COLOURS = re.compile(r"\x1b\[[\d;]*m")


class Ran(NamedTuple):
    """What became of a chapter: how long it took, and the error that stopped it, or nothing."""

    chapter: str
    seconds: float
    error: str


def run(path: Path, address: str | None = None) -> Ran:
    """Run one notebook alone, in an empty folder.

    path: the notebook's file, which stays as it is.
    address: where its first cell installs `rope` from; None leaves what the cell says.
    """
    started, error = time.perf_counter(), ""
    try:
        text = path.read_text(encoding="utf-8")
        notebook = nbformat.reads(text if address is None else with_address(text, address), 4)
        with tempfile.TemporaryDirectory() as folder:
            execute(notebook, Path(folder), path.name, quiet=False)
    except Exception as fault:  # whatever stops one chapter is reported, and the others run
        error = COLOURS.sub("", str(fault)).strip()
    return Ran(path.stem, time.perf_counter() - started, error)


def report(ran: list[Ran]) -> str:
    """A table in Markdown, a chapter a row, and below it each error in full.

    >>> print(report([Ran("intro", 2.4, "")]))
    1 of 1 chapters ran to the end.
    <BLANKLINE>
    | chapter | seconds | what stopped it |
    |---|--:|---|
    | intro | 2 | |
    <BLANKLINE>
    """
    stopped = [one for one in ran if one.error]
    lines = [f"{len(ran) - len(stopped)} of {len(ran)} chapters ran to the end.", ""]
    lines += ["| chapter | seconds | what stopped it |", "|---|--:|---|"]
    for one in ran:
        said = one.error.splitlines()
        brief = ": ".join(dict.fromkeys([said[0], said[-1]])).replace("|", "\\|") if said else ""
        lines.append(f"| {one.chapter} | {one.seconds:.0f} | {brief}{' ' if brief else ''}|")
    for one in stopped:
        lines += ["", f"## {one.chapter}", "", "````", one.error, "````"]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run chapters alone and report which stop; all of chapters/ when none is named."""
    parser = argparse.ArgumentParser(
        prog="python -m rope.book.tools.everywhere", description=__doc__
    )
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="chapters/NAME.ipynb")
    parser.add_argument("--address", help="the repository that the first cells install rope from")
    parser.add_argument("--report", type=Path, action="append", default=[], help="add it to a file")
    chosen = parser.parse_args(arguments)
    paths = chosen.notebooks or sorted(CHAPTERS.glob("*.ipynb"))
    ran: list[Ran] = []
    try:
        for path in (bar := tqdm(paths, unit="chapter")):
            bar.set_description(path.stem)
            ran.append(run(path, chosen.address))
    except KeyboardInterrupt:
        print("\nInterrupted: the report has the chapters that were run.", file=sys.stderr)
    text = report(ran)
    print(text)
    for path in chosen.report:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    return 0 if len(ran) == len(paths) and not any(one.error for one in ran) else 1


if __name__ == "__main__":
    sys.exit(main())
