"""What is made of the built pages beside them: PDF and EPUB, flat notebooks to download."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from rope.book.paper.pages import Book

KINDS = {"pdf": "PDF", "epub": "EPUB"}
LINE = re.compile(r'\s*<p class="rope-paper">.*?</p>', re.S)
# Where the line stands: in every page's footer, and on the front page below the ways in.
PLACES = re.compile(r'<div class="extra_footer">|<p class="rope-way-in">.*?</p>', re.S)


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
        if not PLACES.search(text):
            if "<article" not in text:
                continue  # the page that leads to the first one
            raise ValueError(f"{page} has no footer to write the links into")
        line = links(there, "../" * len(page.relative_to(book.html).parents[1:]))
        linked = PLACES.sub(rf"\g<0>{line}", LINE.sub("", text))
        if linked != text:
            page.write_text(linked, encoding="utf-8")
    return there


def offer(book: Book, notebooks: list[Path]) -> None:
    """Put flat notebooks where the download buttons lead, in the place of the pages' sources."""
    for path in notebooks:
        shutil.copyfile(path, book.html / "_sources" / "chapters" / path.name)


def links(kinds: list[str], up: str) -> str:
    """The line of links, or nothing."""
    named = [f'<a href="{up}rope-book.{kind}">{KINDS[kind]}</a>' for kind in kinds]
    return f'\n  <p class="rope-paper">The whole book as {" or ".join(named)}.</p>' if named else ""
