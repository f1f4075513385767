"""The PDF: all articles as one document, typeset and printed by Chromium.

It is printed three times: the first shows which chapters end on a nearly empty page, the second on
which page each thing stands, as the contents and solutions say.
"""

from __future__ import annotations

import html
import io
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import cast

from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, TextStringObject

from rope.book.mime import fonts
from rope.book.paper.articles import Article, read_articles
from rope.book.paper.browser import mathjax, offline_page
from rope.book.paper.pages import Book, cover

HERE = Path(__file__).parent
COLUMN = 627  # CSS pixels between the margins of print.css
DEJAVU = ("", "-Oblique", "-Bold", "-BoldOblique")
FEW = 900  # characters, of some 3,000 that a page holds
# Each family's files: regular, italic, bold, both.
FACES = {
    "STIX": [f"STIXGeneral{style}" for style in ("", "Italic", "Bol", "BolIta")],
    "DejaVu Sans": [f"DejaVuSans{style}" for style in DEJAVU],
    "DejaVu Sans Mono": [f"DejaVuSansMono{style}" for style in DEJAVU],
}
STYLES = ("", "font-style: italic", "font-weight: bold", "font-style: italic; font-weight: bold")
# Formulas, then what is too wide or short enough to stay on one page.
SET = """async (column) => {
    await document.fonts.ready;
    await MathJax.typesetPromise();
    for (const formula of MathJax.startup.document.math) {
        // One image with words, and not an element of the PDF's structure for each sign.
        formula.typesetRoot.setAttribute('role', 'img');
        formula.typesetRoot.setAttribute('aria-label', formula.math);
    }
    // The drawing in it is the figure that has words.
    for (const figure of document.querySelectorAll('figure')) figure.setAttribute('role', 'group');
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
TIGHTEN = """(names) => {
    for (const name of names) document.getElementById(name).classList.add('tight');
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
    articles = read_articles(book)
    source.write_text(document(book, articles), encoding="utf-8")
    with offline_page(source, width=COLUMN) as page:
        headings = page.evaluate(HEADINGS)
        wrong, over = page.evaluate(SET, COLUMN)
        if over > 0:  # Chromium would print every page smaller
            raise RuntimeError(f"something is {over} pixels wider than the column of {COLUMN}")
        if wrong:
            raise RuntimeError(f"{wrong} formulas cannot be set; the pages show them in red")
        page.evaluate(TIGHTEN, nearly_empty(page.pdf(prefer_css_page_size=True), articles))
        page.evaluate(NUMBER, places(page.pdf(prefer_css_page_size=True)))
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


def nearly_empty(pdf: bytes, articles: list[Article]) -> list[str]:
    """The chapters whose last page has a few lines, which tighter lines bring onto the one before.

    A last page that a figure fills may be among them, and loses nothing.
    """
    pages = PdfReader(io.BytesIO(pdf)).pages
    starts = places(pdf)
    ends = [starts[article.page.name] - 2 for article in articles[1:]] + [len(pages) - 1]
    return [
        article.page.name
        for article, end in zip(articles, ends, strict=True)
        if len(pages[end].extract_text()) < FEW
    ]


def places(pdf: bytes) -> dict[str, int]:
    """The page, counted from 1, of every place in a PDF that a link leads to."""
    reader = PdfReader(io.BytesIO(pdf))
    numbers = {}
    for name, destination in reader.named_destinations.items():
        number = reader.get_destination_page_number(destination)
        if number is not None:
            numbers[name.removeprefix("/")] = number + 1
    return numbers


def document(book: Book, articles: list[Article]) -> str:
    """The whole book as one HTML document."""
    styles = [(HERE / name).read_text(encoding="utf-8") for name in ("shared.css", "print.css")]
    styles += [face_rules(), running_titles(articles)]
    body = [cover(book, "Paper edition"), contents(articles)]
    for part, group in groupby(articles, lambda article: article.page.part):
        chapters = list(group)
        if part:  # on the first page of its first chapter
            page = f'style="page: {chapters[0].page.name}"'
            body.append(f'<section class="part" {page}><h1>{html.escape(part)}</h1></section>')
        for article in chapters:
            lower_headings(article, 1 if part else 0)
            body.append(article.html())
    return (
        f'<!doctype html><html lang="{book.language}"><head><meta charset="utf-8">'
        f"<title>{html.escape(book.title)}</title><style>{''.join(styles)}</style>"
        f"{mathjax(book.html)}</head><body>{''.join(body)}</body></html>"
    )


def lower_headings(article: Article, levels: int) -> None:
    """Put an article's headings so many levels lower; their class keeps their own level."""
    for heading in article.body.select("h1, h2, h3, h4, h5"):
        level = int(heading.name[1])
        heading.name, heading["class"] = f"h{level + levels}", f"level-{level}"


def face_rules() -> str:
    """The fonts that Matplotlib brings, so that every machine prints the same pages."""
    folder = fonts().as_uri()
    return "\n".join(
        f'@font-face {{ font-family: "{family}"; src: url("{folder}/{file}.ttf"); {style} }}'
        for family, files in FACES.items()
        for file, style in zip(files, STYLES, strict=True)
    )


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
