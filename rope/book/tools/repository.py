"""The book's address: in `_config.yml`, and in the first cell that every notebook begins with.

`python -m rope.book.tools.repository URL` sets it in all those places; an empty URL takes it away.
While there is none, the pages offer no Colab button and the first cell installs nothing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FIRST_CELL = """\
import importlib.util

REPOSITORY, TAG = "{repository}", "{tag}"
if importlib.util.find_spec("rope") is None:
    if not REPOSITORY:
        raise ImportError(
            "The package rope is not installed, and this copy of the book names no address to "
            "install it from. In the book's folder: pip install -e '.[notebooks]'. "
            "On Colab: upload the folder as book.zip, then %pip install './book.zip[notebooks]'"
        )
    import torch
    book = f"rope-book[notebooks] @ git+{{REPOSITORY}}@{{TAG}}"
    %pip install --quiet "{{book}}" "torch=={{torch.__version__}}"
import rope
if not hasattr(rope, "rotary_embedding"):
    raise ImportError("another rope: %pip uninstall -y rope rope-book, restart, rerun")"""
IN_CELL = re.compile(r'^REPOSITORY, TAG = "([^"]*)", "([^"]*)"$', re.MULTILINE)
# In a notebook's file, and in _config.yml.
IN_FILE = re.compile(r'((?:"REPOSITORY, TAG = \\|^repository:\n  url: )")[^"\\]*', re.MULTILINE)
ADDRESS = re.compile(r"((https|file)://[^\s\"'\\{}]+[^\s\"'\\{}/])?")


def first_cell_source(repository: str, tag: str) -> str:
    """The first code cell of every notebook: it imports `rope`, or installs it, or says what to do.

    repository: the address of the book's git repository; "" while it has none.
    tag: the git tag to install, the letter v and the package's version.

    >>> first_cell_source("", "v0.1.0").splitlines()[2]
    'REPOSITORY, TAG = "", "v0.1.0"'
    """
    return FIRST_CELL.format(repository=repository, tag=tag)


def with_address(text: str, url: str) -> str:
    """The text of `_config.yml`, or of a notebook's file, with the address set and no other change.

    >>> with_address('repository:\\n  url: ""\\n', "https://example.org/rope")
    'repository:\\n  url: "https://example.org/rope"\\n'

    Raises ValueError: there is not one place for the address.
    """
    changed, places = IN_FILE.subn(rf"\g<1>{url}", text)
    if places != 1:
        raise ValueError(f"it names the address in {places} places; it must be one")
    return changed


def set_address(book: Path, url: str) -> None:
    """Set the address everywhere in the book's folder; nothing is written when one place cannot be.

    Raises ValueError: no such address, or a file is not as the book writes it.
    """
    if not ADDRESS.fullmatch(url):
        raise ValueError(
            f"{url!r} is no address of a repository: it must begin with https:// (or file://),"
            " hold no blanks or quotes, and not end in a slash"
        )
    changed = {}
    for path in [book / "_config.yml", *sorted((book / "chapters").glob("*.ipynb"))]:
        try:
            changed[path] = with_address(path.read_text(encoding="utf-8"), url)
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        set_address(Path.cwd(), *sys.argv[1:])
    except (OSError, TypeError, ValueError) as error:
        sys.exit(f"Nothing was changed: {error}")
    print(f"{sys.argv[1] or 'No address'}: set in _config.yml and in every notebook.")
