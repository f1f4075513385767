"""What is made into one volume: the built pages in order, their parts, the book's own data."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


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


def read_book(root: Path, html: Path | None = None) -> Book:
    """The book in a checkout, with the pages that were built from it.

    root: the folder of `_toc.yml` and `_config.yml`.
    html: the folder of the built pages; `_build/html` when it is not given.

    Raises FileNotFoundError: a page of `_toc.yml` was not built.
    """
    html = html or root / "_build" / "html"
    config: dict[str, Any] = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    toc: dict[str, Any] = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = [("", toc["root"])]
    files += [(part["caption"], one["file"]) for part in toc["parts"] for one in part["chapters"]]
    pages = tuple(Page(Path(file).name, part, html / f"{file}.html") for part, file in files)
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
        html=html,
        chapters=root / "chapters",
        pages=pages,
    )
