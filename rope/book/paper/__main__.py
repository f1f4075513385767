"""`python -m rope.book.paper pdf`, `epub`, `publish`: see `--help`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from .pages import read_book

ROOT = Path(__file__).parents[3]


def main(arguments: list[str] | None = None) -> int:
    """Make what is asked for; a fault is one sentence and the exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m rope.book.paper", description=__doc__)
    parser.add_argument("what", choices=("pdf",))
    parser.add_argument("--html", type=Path, help="the built pages; _build/html unless given")
    chosen = parser.parse_args(arguments)
    start = time.monotonic()
    from .pdf import make_pdf
    book = read_book(ROOT, chosen.html)
    make_pdf(book, ROOT/"_build"/"rope-book.pdf")
    print(time.monotonic() - start)
    return 0


if __name__ == "__main__":
    sys.exit(main())
