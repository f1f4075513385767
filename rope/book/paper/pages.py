"""Read the built pages in the order of `_toc.yml`, and write files made from them next to them."""

from __future__ import annotations

import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from bs4 import BeautifulSoup, Tag

# Elements of a page that only help a reader in a browser.
BROWSER_ONLY = ".headerlink, .toctree-wrapper, noscript"
# The text that replaces the controls of an interactive chart.
MOVES = "This figure is interactive in the browser. Here you see its initial state."
# Insert the link to the PDF below the first links of the front page.
WAY_IN = re.compile(r'<p class="rope-way-in">.*?</p>', re.DOTALL)
LINK = '\n<p>The entire book as a <a href="../{name}">PDF</a>.</p>'


@dataclass(frozen=True)
class Page:
    """Represent a built page: its unique name, the caption of its part, and its HTML file."""

    name: str
    part: str
    file: Path

    def article(self) -> Tag:
        """Parse the page and return its article. Raise ValueError if it has no <article>."""
        soup = BeautifulSoup(self.file.read_text(encoding="utf-8"), "html.parser")
        article = soup.select_one("article")
        if article is None:
            raise ValueError(f"{self.file} has no <article>; run `make book` again")
        return article


@dataclass(frozen=True)
class Book:
    """Represent the most recently built book. `html` and `chapters` are folders."""

    title: str
    author: str
    version: str
    licence: str
    address: str
    html: Path
    chapters: Path
    pages: tuple[Page, ...]


def read_book(root: Path) -> Book:
    """Return the book in a checkout, with the pages from its `_build/html`.

    root: the checkout's folder, which contains `_toc.yml` and `_config.yml`.
    Raises FileNotFoundError if a page in `_toc.yml` was not built.
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
            f"{len(missing)} of {len(pages)} pages were not built, for example {missing[0]}; "
            "run `make book` first"
        )
    return Book(
        title=config["title"],
        author=config["author"],
        version=project["version"],
        licence=config["html"]["extra_footer"].strip().format(version=project["version"]),
        address=config["repository"]["url"],
        html=built,
        chapters=root / "chapters",
        pages=pages,
    )


def link_target(href: str, own: str) -> tuple[str, str]:
    """Return the page name and the id that a link points to, or ("", "") for a web address.

    own: the name of the page that contains the link. The id is "" if the link has none.

    >>> link_target("two.html#there", "one"), link_target("#here", "one")
    (('two', 'there'), ('one', 'here'))
    >>> link_target("https://arxiv.org/abs/2104.09864", "one")
    ('', '')
    """
    if re.match(r"https?:|mailto:", href):
        return "", ""
    path, _, place = href.partition("#")
    return Path(path).stem if path else own, place


def publish_pdf(book: Book, pdf: Path) -> None:
    """Copy the PDF next to the pages and link to it from the front page.

    Raises FileNotFoundError if the PDF doesn't exist.
    """
    shutil.copyfile(pdf, book.html / pdf.name)
    front, link = book.pages[0].file, LINK.format(name=pdf.name)
    text = front.read_text(encoding="utf-8").replace(link, "")
    front.write_text(WAY_IN.sub(rf"\g<0>{link}", text), encoding="utf-8")


def publish_notebooks(book: Book, notebooks: list[Path]) -> None:
    """Copy each flat notebook to the file that its page's download button offers."""
    for path in notebooks:
        shutil.copyfile(path, book.html / "_sources" / "chapters" / path.name)
