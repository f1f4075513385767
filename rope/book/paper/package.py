"""The EPUB's own files: what it is, what it holds, in which order it is read."""

from __future__ import annotations

import html
import re
import time
import uuid

from rope.book.paper.pages import Book

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
