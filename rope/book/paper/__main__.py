"""Build the PDF or the flat notebooks from the most recently built pages.

`pdf` writes `_build/rope-book.pdf`. `publish` copies the PDF next to the pages and links to it from
the front page. `notebooks` writes `_build/notebooks/` and connects each page's download button to
the page's flat notebook.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rope.book.paper.notebooks import make_notebooks
from rope.book.paper.pages import publish_notebooks, publish_pdf, read_book
from rope.book.paper.pdf import make_pdf

ROOT = Path(__file__).parents[3]
PDF = ROOT / "_build" / "rope-book.pdf"


def main(arguments: list[str] | None = None) -> None:
    """Run one command and print what it wrote."""
    parser = argparse.ArgumentParser(
        prog="python -m rope.book.paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["pdf", "notebooks", "publish"])
    command = parser.parse_args(arguments).command
    book = read_book(ROOT)
    if command == "pdf":
        make_pdf(book, PDF)
        print(f"Wrote {PDF} ({PDF.stat().st_size / 1e6:.1f} MB).")
    elif command == "publish":
        publish_pdf(book, PDF)
        print(f"Copied {PDF.name} next to the pages.")
    else:
        notebooks = make_notebooks(book, ROOT / "_build" / "notebooks")
        publish_notebooks(book, notebooks)
        print(f"Wrote {len(notebooks)} notebooks to {ROOT / '_build' / 'notebooks'}.")


if __name__ == "__main__":
    main()
