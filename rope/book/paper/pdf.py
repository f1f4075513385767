"""Build the PDF: join all articles into one HTML document and print it with Chromium.

The document uses the style sheets of the built pages and `print.css`. Chromium turns headings into
the PDF's outline, and links between chapters into links within the PDF.
"""

from __future__ import annotations

import html
import io
import json
import logging
import os
import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from playwright.sync_api import sync_playwright
from pypdf import PdfWriter
from pypdf.generic import Destination, NameObject, TextStringObject

from rope.book.mime import still_chart
from rope.book.paper.pages import BROWSER_ONLY, MOVES, Book, Page, link_target

NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"] + [
    f"/Applications/{name}.app/Contents/MacOS/{name}" for name in ("Chromium", "Google Chrome")
]
COLUMN = 643  # CSS pixels between the margins of print.css
DIFFERS = (
    "This book is also available as web pages and as notebooks that you can run. This PDF shows "
    "the initial state of each interactive figure and leaves out the code of figures and checks. "
    "A line that starts with ✓ states the claim that a check asserts."
)
# Disable MathJax's menu and hidden MathML; FINISH labels the formulas with their TeX instead.
MATHJAX = (
    "<script>window.MathJax = {options: {enableMenu: false, renderActions: {assistiveMml: []}, "
    'processHtmlClass: "math", ignoreHtmlClass: "chapter"}}</script>'
    '<script src="{static}mathjax/tex-chtml.js"></script>'
)
# Label the formulas, shrink tables and formulas that are wider than the column (otherwise Chromium
# would shrink the entire document), and return the headings as text.
FINISH = """async (column) => {
    await MathJax.startup.promise;
    for (const formula of MathJax.startup.document.math) {
        formula.typesetRoot.setAttribute('role', 'img');
        formula.typesetRoot.setAttribute('aria-label', formula.math);
    }
    for (const wide of document.querySelectorAll('table, div.math')) {
        const room = Math.min(column, wide.parentElement.clientWidth);
        if (wide.scrollWidth > room) wide.style.zoom = room / wide.scrollWidth;
    }
    return Array.from(document.querySelectorAll('h1, h2, h3, h4, h5, h6'), (heading) => {
        const copy = heading.cloneNode(true);
        for (const formula of copy.querySelectorAll('mjx-container'))
            formula.replaceWith(formula.getAttribute('aria-label'));
        return copy.textContent.trim().replace(/\\s+/g, ' ');
    });
}"""


def chromium() -> str:
    """Return the path of the browser in CHROMIUM or, if unset, of the first one found in `NAMES`.

    Raises FileNotFoundError if no such executable is found.
    """
    named = os.environ.get("CHROMIUM")
    path = next(filter(None, map(shutil.which, [named] if named else NAMES)), None)
    if path is None:
        raise FileNotFoundError(
            f"Chromium not found{f' at CHROMIUM={named}' if named else ''}; install it (Debian: "
            "`apt-get install chromium`; macOS: `brew install --cask chromium`) or set CHROMIUM "
            "to a browser's executable"
        )
    return path


def make_pdf(book: Book, target: Path) -> None:
    """Print the book to a PDF file with an outline.

    target: the path of the PDF. The HTML document is written next to it, with suffix `.html`.
    """
    source = target.with_suffix(".html")
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(document(book), encoding="utf-8")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        page = browser.new_page(
            viewport={"width": COLUMN, "height": 1000}, offline=True, reduced_motion="reduce"
        )
        page.set_default_timeout(300_000)
        page.emulate_media(media="print", color_scheme="light")
        page.goto(source.resolve().as_uri())
        headings = page.evaluate(FINISH, COLUMN)
        pdf = page.pdf(prefer_css_page_size=True, tagged=True, outline=True)
        browser.close()
    # Silence the warning that the number of objects in Chromium's trailer is too low.
    logging.getLogger("pypdf").setLevel(logging.ERROR)
    writer = PdfWriter(clone_from=io.BytesIO(pdf))
    # Chromium's outline repeats some words and lacks formulas, so replace its titles.
    for entry, heading in zip(outline_entries(writer.outline), headings, strict=True):
        entry.node[NameObject("/Title")] = TextStringObject(heading)  # type: ignore[index]
    writer.write(target)


def outline_entries(outline: list[Any]) -> Iterator[Destination]:
    """Yield the entries of a nested outline in reading order."""
    for entry in outline:
        if isinstance(entry, list):
            yield from outline_entries(entry)
        else:
            yield entry


def document(book: Book) -> str:
    """Return the book as one HTML document: title page, table of contents, and all chapters."""
    first = BeautifulSoup(book.pages[0].file.read_text(encoding="utf-8"), "html.parser")
    static = f"{(book.html / '_static').resolve().as_uri()}/"
    styles = "".join(map(str, first.select("head link[rel=stylesheet]")))
    styles = styles.replace("../_static/", static)
    own = Path(__file__).with_name("print.css").read_text(encoding="utf-8")
    names = {page.name for page in book.pages}
    articles = [printable(page, names) for page in book.pages]
    entries = ""
    for part, group in groupby(zip(book.pages, articles, strict=True), lambda pair: pair[0].part):
        entries += f"<li><b>{html.escape(part)}</b></li>" if part else ""
        for page, article in group:
            title = article.h1.decode_contents()  # type: ignore[union-attr]
            entries += f'<li><a href="#{page.name}">{title}</a></li>'
    title = html.escape(book.title)
    return (
        '<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8">'
        f"<title>{title}</title>{styles}<style>{own}</style>"
        f"{MATHJAX.replace('{static}', static)}</head><body>"
        f'<section class="cover"><p class="title">{title}</p><p>{html.escape(book.author)}</p>'
        f"<p>PDF edition of version {book.version}</p><p>{DIFFERS}</p>{book.licence}</section>"
        f'<section class="contents"><h1>Contents</h1><ul>{entries}</ul></section>'
        f"{''.join(map(str, articles))}</body></html>"
    )


def printable(page: Page, names: set[str]) -> Tag:
    """Return a page's article for printing, without controls and folded code.

    names: the names of all pages. Links to these pages become links within the document.
    Each id becomes `page--id`, so that ids are unique in the book.
    """
    article = page.article()
    draw_charts(article, page.name)
    for node in article.select(BROWSER_ONLY):
        node.decompose()
    for code in article.select("pre"):
        code.string = code.get_text()  # printing highlighted code is slow, so drop the highlighting
    unfold_checks(article)
    for node in article.find_all(id=True):
        if node.find_parent("svg") is None:
            node["id"] = f"{page.name}--{node['id']}"
    for node in article.find_all("a"):
        key = "href" if "href" in node.attrs else "xlink:href"
        name, place = link_target(str(node.get(key, "")), page.name)
        if name in names:
            node[key] = f"#{name}--{place}" if place else f"#{name}"
        elif name:  # a link to the index or a download, which the PDF lacks
            node.unwrap()
    article["class"], article["id"] = "bd-article chapter", page.name
    return article


def draw_charts(article: Tag, name: str) -> None:
    """Replace each interactive chart with a drawing of its initial state."""
    for number, box in enumerate(article.select(".rope-chart")):
        spec = json.loads(box.select_one("script").get_text())  # type: ignore[union-attr]
        picture = f'<div class="rope-picture">{still_chart(spec, f"{name}-{number}")}</div>'
        box.replace_with(fragment(picture), fragment(f'<p class="moves">{MOVES}</p>'))


def unfold_checks(article: Tag) -> None:
    """Replace each folded check with the claim that it asserts; remove all other folded code."""
    for check in article.select("div.tag_check"):
        claim = check.select_one(".rope-claim").get_text()  # type: ignore[union-attr]
        check.replace_with(fragment(f'<p class="check">✓ {html.escape(claim)}</p>'))
    for fold in article.select("div.cell details"):
        fold.decompose()
    for cell in article.select("div.cell"):
        if not cell.get_text(strip=True):
            cell.decompose()


def fragment(text: str) -> Tag:
    """Parse HTML and return its first element."""
    return BeautifulSoup(text, "html.parser").find()  # type: ignore[return-value]
