"""What is made of the built pages beside them: PDF and EPUB, flat notebooks to download."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from rope.book.paper.pages import Book

KINDS = {"pdf": "PDF", "epub": "EPUB"}
LINE = re.compile(r'\s*<p class="rope-paper">.*?</p>', re.S)
FOOTER = '<div class="extra_footer">'


def publish(book: Book, made: Path) -> list[str]:
    """Copy what was made beside the pages and link to it; the kinds that are there.

    made: the folder of `rope-book.pdf` and `rope-book.epub`. One that is not there is taken out
    of the pages too, so that no link leads nowhere.

    Raises ValueError: a page has no footer to write into.
    """
    there = []
    for kind in KINDS:
        source, copy = made / f"rope-book.{kind}", book.html / f"rope-book.{kind}"
        copy.unlink(missing_ok=True)
        if source.exists():
            shutil.copyfile(source, copy)
            there.append(kind)
    for page in sorted(book.html.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        if FOOTER not in text:
            if "<article" not in text:
                continue  # the page that leads to the first one
            raise ValueError(f"{page} has no {FOOTER} to write the links into")
        up = "../" * len(page.relative_to(book.html).parents[1:])
        linked = LINE.sub("", text).replace(FOOTER, FOOTER + footer(there, up), 1)
        if linked != text:
            page.write_text(linked, encoding="utf-8")
    return there


def offer(book: Book, notebooks: list[Path]) -> None:
    """Put flat notebooks where the download buttons lead, in the place of the pages' sources."""
    for path in notebooks:
        shutil.copyfile(path, book.html / "_sources" / "chapters" / path.name)


def footer(kinds: list[str], up: str) -> str:
    """The line of links, or nothing."""
    links = [f'<a href="{up}rope-book.{kind}">{KINDS[kind]}</a>' for kind in kinds]
    return f'\n  <p class="rope-paper">The whole book as {" or ".join(links)}.</p>' if links else ""
