"""Write the bundle and add Run buttons to the built pages: `make live`."""

from __future__ import annotations

import sys
from pathlib import Path

from rope.book.live.bundle import Unavailable, write_bundle
from rope.book.live.pages import add_buttons

UNAVAILABLE = 3  # the exit status if npm is missing or can't reach a registry


def main() -> int:
    """Write the bundle, add the buttons, and return the exit status. Run in the book's folder."""
    html = Path("_build/html")
    try:
        parts = write_bundle(Path("_build/live"), html / "_static" / "live")
    except Unavailable as error:
        print(f"No Run buttons were added: {error}", file=sys.stderr)
        return UNAVAILABLE
    counts = add_buttons(html, Path("chapters"), parts)
    print(f"{sum(counts.values())} cells run in {len(counts)} pages.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
