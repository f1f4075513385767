"""`python -m rope.book.live`: makes the bundle, unless it is there, and gives the pages buttons."""

from __future__ import annotations

import sys
from pathlib import Path

from rope.book.live.bundle import Unavailable, write
from rope.book.live.pages import put_in

BUILD = Path("_build")
CANNOT = 3  # the exit status where there is no npm, or it reaches no registry


def main() -> str | int:
    """Do it in the book's folder; return the exit status, or what is wrong."""
    html = BUILD / "html"
    if not (html / "index.html").exists():
        return f"There are no pages in {html}: run `make book` first."
    try:
        sizes = write(BUILD / "live", html / "_static" / "live")
    except Unavailable as error:
        print(f"The pages stay without buttons: {error}", file=sys.stderr)
        return CANNOT
    counts = put_in(html, Path("chapters"), sizes)
    total = sum(sizes.values())
    print(
        f"{sum(counts.values())} cells run in {len(counts)} pages; the bundle has {total:,} bytes."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
