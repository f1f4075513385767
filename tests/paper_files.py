"""What tests of the built pages share: the pages, and the PDF and EPUB made of them once."""

import os
from pathlib import Path

import pytest
from filelock import FileLock

from rope.book.paper.pages import Book, read_book

ROOT = Path(__file__).parents[1]


def give_up(why: str) -> None:
    """What is missing is a failure where everything should be there."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(why)


def built_book() -> Book:
    """The book as it was built last."""
    if not (ROOT / "_build" / "html" / "index.html").exists():
        pytest.fail("no built pages: run `make book`.")
    return read_book(ROOT)


def made_once(factory: pytest.TempPathFactory, make, book: Book, name: str) -> Path:
    """A file that the first of the processes that run the tests makes for all of them."""
    several = "PYTEST_XDIST_WORKER" in os.environ
    folder = factory.getbasetemp().parent if several else factory.mktemp("made")
    target = folder / name
    with FileLock(f"{target}.lock"):
        if not target.exists():
            make(book, target)
    return target
