"""Put the PDF and the flat notebooks next to the built pages."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from rope.book.paper.pages import Book

LINK = re.compile(r'\s*<p class="rope-paper">.*?</p>', re.DOTALL)
# Insert the link in each page's footer and, on the front page, below the first links.
PLACES = re.compile(r'<div class="extra_footer">|<p class="rope-way-in">.*?</p>', re.DOTALL)


def publish_pdf(book: Book, pdf: Path) -> None:
    """Copy the PDF next to the pages and add a link to each page.

    Raises FileNotFoundError if the PDF doesn't exist.
    """
    shutil.copyfile(pdf, book.html / pdf.name)
    for page in sorted(book.html.rglob("*.html")):
        address = "../" * len(page.relative_to(book.html).parents[1:]) + pdf.name
        link = f'\n  <p class="rope-paper">The entire book as a <a href="{address}">PDF</a>.</p>'
        text = LINK.sub("", page.read_text(encoding="utf-8"))
        page.write_text(PLACES.sub(rf"\g<0>{link}", text), encoding="utf-8")


def publish_notebooks(book: Book, notebooks: list[Path]) -> None:
    """Copy each flat notebook to the file that its page's download button offers."""
    for path in notebooks:
        shutil.copyfile(path, book.html / "_sources" / "chapters" / path.name)
