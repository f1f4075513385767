"""The PDF: all articles as one document, typeset and printed by Chromium.

It is printed twice: page numbers in the contents are known once the pages are.
"""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import cast

from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, TextStringObject

from rope.book.mime import fonts
from rope.book.paper.articles import Article, read_articles
from rope.book.paper.browser import mathjax, offline_page
from rope.book.paper.front import cover
from rope.book.paper.pages import Book

HERE = Path(__file__).parent
COLUMN = 627  # CSS pixels between the margins of print.css
SERIF = {
    "STIXGeneral": "",
    "STIXGeneralItalic": "i",
    "STIXGeneralBol": "b",
    "STIXGeneralBolIta": "bi",
}
FACES = {"STIX": SERIF} | {
    f"DejaVu {name}": {
        f"{file}": "",
        f"{file}-Oblique": "i",
        f"{file}-Bold": "b",
        f"{file}-BoldOblique": "bi",
    }
    for name, file in (("Sans", "DejaVuSans"), ("Sans Mono", "DejaVuSansMono"))
}
# Formulas, then what is too wide or short enough to stay on one page.
SET = """async (column) => {
    await document.fonts.ready;
    await MathJax.typesetPromise();
    for (const formula of MathJax.startup.document.math) {
        // One image with words, and not an element of the PDF's structure for each sign.
        formula.typesetRoot.setAttribute('role', 'img');
        formula.typesetRoot.setAttribute('aria-label', formula.math);
    }
    for (const wide of document.querySelectorAll('table, div.math')) {
        const room = Math.min(column, wide.parentElement.clientWidth);
        if (wide.scrollWidth > room) wide.style.zoom = room / wide.scrollWidth;
    }
    for (const [what, height] of [['pre', 190], ['.admonition', 380]])
        for (const block of document.querySelectorAll(what))
            if (block.clientHeight < height) block.classList.add('keep');
    const wrong = '.math:not(:has(mjx-container)), mjx-merror, [data-mjx-error]';
    return [document.querySelectorAll(wrong).length, document.documentElement.scrollWidth - column];
}"""
# A heading as text, a formula in it as the signs that it shows.
HEADINGS = """async () => {
    const texts = [];
    for (const heading of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
        const copy = heading.cloneNode(true);
        for (const formula of copy.querySelectorAll('.math')) {
            const tex = formula.textContent.trim().slice(2, -2);
            const mathml = await MathJax.tex2mmlPromise(tex);
            formula.innerHTML = mathml.replace(/>\\s+</g, '><');
        }
        texts.push(copy.textContent.trim().replace(/\\s+/g, ' '));
    }
    return texts;
}"""
NUMBER = """(pages) => {
    for (const link of document.querySelectorAll('a.paged'))
        link.dataset.page = pages[link.getAttribute('href').slice(1)];
}"""


def make_pdf(book: Book, target: Path) -> None:
    """Print the book.

    target: where the PDF is written; the document that was printed stays beside it as `.html`.

    Raises RuntimeError: a formula that MathJax cannot set, an error in the browser.
    """
    source = target.with_suffix(".html")
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(document(book, read_articles(book)), encoding="utf-8")
    with offline_page(source, width=COLUMN) as page:
        headings = page.evaluate(HEADINGS)
        wrong, over = page.evaluate(SET, COLUMN)
        if over > 0:  # Chromium would print every page smaller
            raise RuntimeError(f"something is {over} pixels wider than the column of {COLUMN}")
        if wrong:
            raise RuntimeError(f"{wrong} formulas cannot be set; the pages show them in red")
        first = page.pdf(prefer_css_page_size=True)
        page.evaluate(NUMBER, places(first))
        second = page.pdf(prefer_css_page_size=True, outline=True, tagged=True)
    finish(second, headings, book).write(target)


def finish(pdf: bytes, headings: list[str], book: Book) -> PdfWriter:
    """The PDF with its own data, and an outline that reads as the headings do.

    Chromium writes formulas' TeX and some words twice.

    Raises RuntimeError: the outline has another number of entries than there are headings.
    """
    writer = PdfWriter(clone_from=io.BytesIO(pdf))
    entries = list(
        outline_entries(cast(DictionaryObject, writer.root_object["/Outlines"].get_object()))
    )
    if len(entries) != len(headings):
        raise RuntimeError(f"{len(entries)} entries in the outline of {len(headings)} headings")
    for entry, heading in zip(entries, headings, strict=True):
        entry[NameObject("/Title")] = TextStringObject(heading)
    data = {"Title": book.title, "Author": book.author, "Subject": f"Version {book.version}"}
    writer.metadata = None
    writer.add_metadata({f"/{key}": value for key, value in data.items()})
    return writer


def outline_entries(node: DictionaryObject) -> Iterator[DictionaryObject]:
    """The entries below a node of a PDF's outline, from the first to the last."""
    child = node.get("/First")
    while child is not None:
        entry = child.get_object()
        yield entry
        yield from outline_entries(entry)
        child = entry.get("/Next")


def places(pdf: bytes) -> dict[str, int]:
    """The page, counted from 1, of every place in a PDF that a link leads to."""
    reader = PdfReader(io.BytesIO(pdf))
    found = {}
    for name, destination in reader.named_destinations.items():
        number = reader.get_destination_page_number(destination)
        if number is not None:
            found[name.removeprefix("/")] = number + 1
    return found


def document(book: Book, articles: list[Article]) -> str:
    """The whole book as one HTML document."""
    styles = [(HERE / name).read_text(encoding="utf-8") for name in ("shared.css", "print.css")]
    styles += [face_rules(), running_titles(articles)]
    body = [cover(book, "Paper edition"), contents(articles)]
    for part, group in groupby(articles, lambda article: article.page.part):
        if part:
            body.append(f'<section class="part"><h1>{html.escape(part)}</h1></section>')
        body += [below(article.html(), 1 if part else 0) for article in group]
    return (
        f'<!doctype html><html lang="{book.language}"><head><meta charset="utf-8">'
        f"<title>{html.escape(book.title)}</title><style>{''.join(styles)}</style>"
        f"{mathjax(book.html)}</head><body>{''.join(body)}</body></html>"
    )


def below(text: str, levels: int) -> str:
    """The article with its headings so many levels lower, and their own level as a class."""
    heading = re.compile(r"<(/?)h([1-5])\b")

    def lower(found: re.Match[str]) -> str:
        level = int(found[2])
        own = "" if found[1] else f' class="level-{level}"'
        return f"<{found[1]}h{level + levels}{own}"

    return heading.sub(lower, text)


def face_rules() -> str:
    """The fonts that Matplotlib brings, so that every machine prints the same pages."""
    rules = []
    for family, files in FACES.items():
        for file, face in files.items():
            url = (fonts() / f"{file}.ttf").as_uri()
            style = "italic" if "i" in face else "normal"
            weight = "bold" if "b" in face else "normal"
            rules.append(
                f'@font-face {{ font-family: "{family}"; src: url("{url}"); '
                f"font-style: {style}; font-weight: {weight} }}"
            )
    return "\n".join(rules)


def running_titles(articles: list[Article]) -> str:
    """A kind of page for each chapter, with its title at the head."""
    rule = "font: italic 9pt STIX, serif; vertical-align: bottom; padding-bottom: 4mm"
    return "\n".join(
        f"#{article.page.name} {{ page: {article.page.name} }} "
        f"@page {article.page.name} {{ "
        f"@top-right {{ content: {json.dumps(article.title, ensure_ascii=False)}; {rule} }} "
        f"@top-left {{ content: {json.dumps(article.page.part, ensure_ascii=False)}; {rule} }} }}"
        for article in articles
    )


def contents(articles: list[Article]) -> str:
    """The table of contents, with room for three digits a page number."""
    rows = []
    for part, group in groupby(articles, lambda article: article.page.part):
        lines = "".join(
            f'<li><a class="paged" data-page="000" href="#{article.page.name}">'
            f"<span>{html.escape(article.title)}</span></a></li>"
            for article in group
        )
        rows.append(f"<li><b>{html.escape(part)}</b><ol>{lines}</ol></li>" if part else lines)
    return f'<section class="contents"><h1>Contents</h1><ol>{"".join(rows)}</ol></section>'
