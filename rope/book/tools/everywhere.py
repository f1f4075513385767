"""Runs every chapter as a reader of it alone does, and reports in Markdown which stop, and why.

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

import nbformat

from rope.book.tools.execute import CHAPTERS, execute
from rope.book.tools.repository import with_address

COLOURS = re.compile(r"\x1b\[[\d;]*m")


def run(path: Path, address: str | None = None) -> str:
    """Run one notebook alone, in an empty folder; the error that stopped it, or nothing.

    path: the notebook's file, which stays as it is.
    address: where its first cell installs `rope` from; None leaves what the cell says.
    """
    try:
        text = path.read_text(encoding="utf-8")
        notebook = nbformat.reads(text if address is None else with_address(text, address), 4)
        with tempfile.TemporaryDirectory() as folder:
            execute(notebook, Path(folder), path.name, quiet=False)
    except Exception as error:  # whatever stops one chapter is reported, and the others run
        return COLOURS.sub("", str(error)).strip()
    return ""


def main(arguments: list[str] | None = None) -> int:
    """Run chapters alone and report which stop; all of chapters/ when none is named."""
    parser = argparse.ArgumentParser(
        prog="python -m rope.book.tools.everywhere", description=__doc__
    )
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="chapters/NAME.ipynb")
    parser.add_argument("--address", help="the repository that the first cells install rope from")
    chosen = parser.parse_args(arguments)
    paths = chosen.notebooks or sorted(CHAPTERS.glob("*.ipynb"))
    stopped = 0
    for path in paths:
        start = time.perf_counter()
        error = run(path, chosen.address)
        seconds = time.perf_counter() - start
        print(f"- {path.stem}: {'stopped' if error else 'ran'}, {seconds:.0f} s", flush=True)
        if error:
            stopped += 1
            print(f"\n````\n{error}\n````\n", flush=True)
    print(f"\n{len(paths) - stopped} of {len(paths)} chapters ran to the end.")
    return 1 if stopped else 0


if __name__ == "__main__":
    sys.exit(main())
