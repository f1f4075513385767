"""The EPUB: one XHTML file for each page, MathML for formulas, SVG for figures, no script."""

from __future__ import annotations

import html
import os
import re
import time
import uuid
import zipfile
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from bs4 import Tag

from rope.book.paper.articles import Article, put_back, read_articles
from rope.book.paper.mathml import replace_formulas
from rope.book.paper.pages import Book, cover

HERE = Path(__file__).parent
STYLES = ("shared.css", "reader.css")
CONTAINER = """<?xml version="1.0" encoding="utf-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
  <rootfiles>
    <rootfile full-path="EPUB/package.opf" media-type="application/oebps-package+xml"/>
  </rootfiles>
</container>
"""
ACCESS = {
    "accessMode": ("textual", "visual"),
    "accessModeSufficient": ("textual",),
    "accessibilityFeature": (
        "alternativeText",
        "MathML",
        "readingOrder",
        "structuralNavigation",
        "tableOfContents",
    ),
    "accessibilityHazard": ("none",),
}


def make_epub(book: Book, target: Path) -> None:
    """Pack the book.

    target: where the EPUB is written.

    Raises ValueError: a formula that MathJax cannot set, a page that holds what no reader shows.
    """
    articles = read_articles(book, narrow=True)
    replace_formulas(articles, book.html)
    names = [article.page.name for article in articles]
    files = {
        "cover.xhtml": xhtml(book.title, cover(book, "Electronic edition"), book),
        "nav.xhtml": navigation(articles, book),
    }
    for article in articles:
        files[f"{article.page.name}.xhtml"] = chapter(article, names, book)
    styles = "".join((HERE / name).read_text(encoding="utf-8") for name in STYLES)
    # Only the container's first entry must be stored; every entry has the same time.
    moment = time.gmtime(float(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w") as archive:
        for name, text in {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": CONTAINER,
            "EPUB/package.opf": package(book, files, moment),
            "EPUB/book.css": styles,
            **{f"EPUB/{name}": text for name, text in files.items()},
        }.items():
            entry = zipfile.ZipInfo(name, moment[:6])
            stored = name == "mimetype"
            entry.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)


def chapter(article: Article, names: Iterable[str], book: Book) -> str:
    """An article as an XHTML file, its links to other articles as links to their files."""
    own = article.page.name
    for code in article.body.select("pre"):  # as reader.css fits them into a narrow page
        code["style"] = f"--columns: {max(map(len, code.get_text().splitlines()))}"
    body = put_back(article.body.decode(formatter="minimal"), article.pictures)
    body = re.sub(
        rf'href="#({"|".join(names)})(--[^"]*)?"',
        lambda found: found[0] if found[1] == own else other(found[1], found[2] or ""),
        body,
    )
    return xhtml(article.title, body, book)


def other(name: str, place: str) -> str:
    """A link to another file, or to a place in it."""
    return f'href="{name}.xhtml#{name}{place}"' if place else f'href="{name}.xhtml"'


def xhtml(title: str, body: str, book: Book) -> str:
    """A whole file from its body."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n'
        f'<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" '
        f'lang="{book.language}" xml:lang="{book.language}"><head><meta charset="utf-8"/>'
        f"<title>{html.escape(title)}</title>"
        '<link rel="stylesheet" type="text/css" href="book.css"/></head>'
        f"<body>{body}</body></html>\n"
    )


def navigation(articles: list[Article], book: Book) -> str:
    """The navigation document: parts, chapters, sections."""
    items = []
    for part, group in groupby(articles, lambda article: article.page.part):
        lines = "".join(map(chapter_entry, group))
        items.append(
            f"<li><span>{html.escape(part)}</span><ol>{lines}</ol></li>" if part else lines
        )
    return xhtml(
        "Contents",
        '<nav epub:type="toc" id="toc" class="contents"><h1>Contents</h1>'
        f"<ol>{''.join(items)}</ol></nav>",
        book,
    )


def chapter_entry(article: Article) -> str:
    """A chapter's entry in the navigation, with its sections."""
    name = article.page.name
    sections = "".join(
        f'<li><a href="{name}.xhtml#{heading.parent["id"]}">{text_of(heading, article)}</a></li>'
        for heading in article.body.select("h2")
        if heading.parent is not None
    )
    inner = f"<ol>{sections}</ol>" if sections else ""
    return f'<li><a href="{name}.xhtml">{html.escape(article.title)}</a>{inner}</li>'


def text_of(heading: Tag, article: Article) -> str:
    """A heading as text, a formula in it as the signs that it shows."""
    text = put_back(str(heading), article.pictures)
    return " ".join(re.sub(r"<[^>]*>", "", text).split())


def package(book: Book, files: dict[str, str], moment: time.struct_time) -> str:
    """The package document.

    files: each XHTML file by its name, in the order of reading.
    moment: when this EPUB was made, in UTC.
    """
    known = book.address or "rope-book"
    identifier = uuid.uuid5(uuid.NAMESPACE_URL, f"{known} {book.version}")
    licence = " ".join(re.sub(r"<[^>]*>", "", book.licence).split())
    access = "".join(
        f'<meta property="schema:{name}">{value}</meta>'
        for name, values in ACCESS.items()
        for value in values
    )
    items = "".join(
        f'<item id="{name.removesuffix(".xhtml")}" href="{name}" '
        f'media-type="application/xhtml+xml"{properties(name, text)}/>'
        for name, text in files.items()
    )
    spine = "".join(f'<itemref idref="{name.removesuffix(".xhtml")}"/>' for name in files)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<package xmlns="http://www.idpf.org/2007/opf" version="3.0" '
        f'unique-identifier="identifier" xml:lang="{book.language}">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f'<dc:identifier id="identifier">urn:uuid:{identifier}</dc:identifier>'
        f"<dc:title>{html.escape(book.title)}</dc:title>"
        f"<dc:creator>{html.escape(book.author)}</dc:creator>"
        f"<dc:language>{book.language}</dc:language>"
        f"<dc:rights>{html.escape(licence)}</dc:rights>"
        f'<meta property="dcterms:modified">{time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)}</meta>'
        f"{access}</metadata>"
        f'<manifest><item id="style" href="book.css" media-type="text/css"/>{items}</manifest>'
        f"<spine>{spine}</spine></package>\n"
    )


def properties(name: str, text: str) -> str:
    """What a file holds beside XHTML, as the manifest must say."""
    held = [kind for kind, mark in (("mathml", "<math "), ("svg", "<svg ")) if mark in text]
    held += ["nav"] * (name == "nav.xhtml")
    return f' properties="{" ".join(held)}"' if held else ""
