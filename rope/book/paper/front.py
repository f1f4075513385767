"""The title page, the same on paper and on a reader."""

from __future__ import annotations

import html

from rope.book.paper.pages import Book

DIFFERS = (
    "This book is also web pages and notebooks, which can be run. Here, figures that move stand "
    "still, and the code behind figures and checks is left out. A line that begins with ✓ states "
    "what such a check asserts. Solutions stand at the end of each chapter."
)


def cover(book: Book, edition: str) -> str:
    """The title page in HTML that is XHTML too.

    edition: what this form of the book is called.
    """
    address = html.escape(book.address)
    link = f'<p><a href="{address}">{address}</a></p>' if address else ""
    return (
        f'<section class="cover"><h1>{html.escape(book.title)}</h1>'
        f"<p>{html.escape(book.author)}</p><p>{edition} of version {html.escape(book.version)}</p>"
        f'<div class="about"><p>{DIFFERS}</p>{book.licence}{link}</div></section>'
    )
