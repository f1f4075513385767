"""Put the PDF and the flat notebooks next to the built pages."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from rope.book.paper.pages import Book

LINK = re.compile(r'\s*<p class="rope-paper">.*?</p>', re.DOTALL)
# Insert the link in each page's footer and, on the front page, below the first links.
PLACES = re.compile(r'<div class="extra_footer">|<p class="rope-way-in">.*?</p>', re.DOTALL)


def publish_pdf(book: Book, pdf: Path) -> bool:
    """Copy the PDF next to the pages and add a link to each page. Return True if the PDF exists.

    If the PDF doesn't exist, remove an earlier copy and the links to the copy.
    """
    copy = book.html / pdf.name
    copy.unlink(missing_ok=True)
    if pdf.exists():
        shutil.copyfile(pdf, copy)
    for page in sorted(book.html.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        address = "../" * len(page.relative_to(book.html).parents[1:]) + pdf.name
        link = f'\n  <p class="rope-paper">The entire book as a <a href="{address}">PDF</a>.</p>'
        linked = PLACES.sub(rf"\g<0>{link if pdf.exists() else ''}", LINK.sub("", text))
        if linked != text:
            page.write_text(linked, encoding="utf-8")
    return pdf.exists()


def publish_notebooks(book: Book, notebooks: list[Path]) -> None:
    """Copy each flat notebook to the file that its page's download button offers."""
    for path in notebooks:
        shutil.copyfile(path, book.html / "_sources" / "chapters" / path.name)
