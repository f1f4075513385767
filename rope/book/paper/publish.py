"""Put what is made of the built pages next to them: the PDF, and flat notebooks to download."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from rope.book.paper.pages import Book

LINE = re.compile(r'\s*<p class="rope-paper">.*?</p>', re.S)
# Where the line stands: in every page's footer, and on the front page below the ways in.
PLACES = re.compile(r'<div class="extra_footer">|<p class="rope-way-in">.*?</p>', re.S)


def publish(book: Book, pdf: Path) -> bool:
    """Copy the PDF next to the pages and link to it from each; return whether there is one.

    pdf: the file. If there is none, an earlier copy and its links are taken out of the pages.

    Raises ValueError: a page has no footer to write into.
    """
    copy, found = book.html / pdf.name, pdf.exists()
    copy.unlink(missing_ok=True)
    if found:
        shutil.copyfile(pdf, copy)
    for page in sorted(book.html.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        if not PLACES.search(text):
            if "<article" not in text:
                continue  # the page that leads to the first one
            raise ValueError(f"{page} has no footer to write the link into")
        address = "../" * len(page.relative_to(book.html).parents[1:]) + pdf.name
        line = f'\n  <p class="rope-paper">The whole book as <a href="{address}">PDF</a>.</p>'
        linked = PLACES.sub(rf"\g<0>{line}" if found else r"\g<0>", LINE.sub("", text))
        if linked != text:
            page.write_text(linked, encoding="utf-8")
    return found


def offer(book: Book, notebooks: list[Path]) -> None:
    """Put flat notebooks where the download buttons lead, in the place of the pages' sources."""
    for path in notebooks:
        shutil.copyfile(path, book.html / "_sources" / "chapters" / path.name)
