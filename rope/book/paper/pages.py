"""What is made into one volume: the built pages in order, their parts, the title page."""

from __future__ import annotations

import html
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DIFFERS = (
    "This book is also web pages and notebooks, which can be run. Here, figures that move stand "
    "still, and the code behind figures and checks is left out. A line that begins with ✓ states "
    "what such a check asserts. Solutions stand at the end of each chapter."
)


@dataclass(frozen=True)
class Page:
    """A built page: its name, which no other has, its part's caption, its file."""

    name: str
    part: str
    file: Path


@dataclass(frozen=True)
class Book:
    """The whole book as it was built."""

    title: str
    author: str
    version: str
    language: str
    licence: str
    address: str
    html: Path
    chapters: Path
    pages: tuple[Page, ...]


def read_book(root: Path) -> Book:
    """The book in a checkout, with the pages that were built from it.

    root: the folder of `_toc.yml` and `_config.yml`; the pages are in its `_build/html`.

    Raises FileNotFoundError: a page of `_toc.yml` was not built.
    """
    built = root / "_build" / "html"
    config: dict[str, Any] = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    toc: dict[str, Any] = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = [("", toc["root"])]
    files += [(part["caption"], one["file"]) for part in toc["parts"] for one in part["chapters"]]
    pages = tuple(Page(Path(file).name, part, built / f"{file}.html") for part, file in files)
    missing = [str(page.file) for page in pages if not page.file.exists()]
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} of {len(pages)} pages were not built, first {missing[0]}; "
            "run `make book` and try again."
        )
    return Book(
        title=config["title"],
        author=config["author"],
        version=project["version"],
        language=config["sphinx"]["config"]["language"],
        licence=config["html"]["extra_footer"].strip().format(version=project["version"]),
        address=config["repository"]["url"],
        html=built,
        chapters=root / "chapters",
        pages=pages,
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
