"""`python -m rope.book.paper pdf`, `notebooks` or `publish`.

`pdf` makes `_build/rope-book.pdf` of the pages that were built last; `notebooks` makes
`_build/notebooks/`, and puts each where its page's download button leads; `publish` copies the PDF,
if there is one, next to the pages and links to it from each footer.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rope.book.paper.notebooks import make_notebooks
from rope.book.paper.pages import read_book
from rope.book.paper.pdf import make_pdf
from rope.book.paper.publish import offer, publish

ROOT = Path(__file__).parents[3]
PDF = ROOT / "_build" / "rope-book.pdf"


def main(arguments: list[str] | None = None) -> int:
    """Do what is asked for; what hinders it is one line on stderr, and the exit code 1."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m rope.book.paper", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("what", choices=["pdf", "notebooks", "publish"])
    chosen = parser.parse_args(arguments).what
    try:
        book = read_book(ROOT)
        if chosen == "publish":
            found = publish(book, PDF)
            print(f"Next to the pages: {PDF.name if found else 'nothing; run `make pdf` first'}.")
        elif chosen == "notebooks":
            target = ROOT / "_build" / "notebooks"
            written = make_notebooks(book, target)
            offer(book, written)
            print(f"{target}, {len(written)} notebooks")
        else:
            make_pdf(book, PDF)
            print(f"{PDF}, {PDF.stat().st_size / 1e6:.1f} MB")
    except (FileNotFoundError, RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
