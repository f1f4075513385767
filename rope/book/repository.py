"""The book's address: in `_config.yml`, and in the first cell that every notebook begins with.

`python -m rope.book.repository URL` sets it in all those places; an empty URL takes it away.
While there is none, the pages offer no Colab button and the first cell installs nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

URL = re.compile(r"(https|file)://[^\s\"'\\{}]+[^\s\"'\\{}/]")

FIRST_CELL = """\
import importlib.util

REPOSITORY, TAG = "{repository}", "{tag}"
if importlib.util.find_spec("rope") is None:
    if not REPOSITORY:
        raise ImportError("rope is missing: in a clone, pip install -e '.[notebooks]'")
    import torch
    book = f"rope-book[notebooks] @ git+{{REPOSITORY}}@{{TAG}}"
    %pip install --quiet "{{book}}" "torch=={{torch.__version__}}"
import rope
if not hasattr(rope, "rotary_embedding"):
    raise ImportError("another rope: %pip uninstall -y rope rope-book, restart, rerun")
"""
ADDRESS = re.compile(r'^REPOSITORY, TAG = "([^"]*)", "([^"]*)"$', re.MULTILINE)
CONFIG_URL = re.compile(
    r"^(repository:\n(?:(?:[ \t]+.*|#.*)?\n)*?[ \t]+url:)([^\n]*)", re.MULTILINE
)


def first_cell_source(repository: str, tag: str) -> str:
    """The first code cell of every notebook: it imports `rope`, or installs it, or says what to do.

    Args:
        repository: the address of the book's git repository; "" while it has none.
        tag: the git tag to install, the letter v and the package's version.

    Example:
        >>> first_cell_source("", "v0.1.0").splitlines()[2]
        'REPOSITORY, TAG = "", "v0.1.0"'
    """
    return FIRST_CELL.format(repository=repository, tag=tag).rstrip("\n")


def address_in_cell(source: str) -> tuple[str, str] | None:
    """Repository and tag that a first cell names; None when the cell has no such line."""
    found = ADDRESS.search(source)
    return (found[1], found[2]) if found else None


def address_in_config(text: str) -> str:
    """The repository's address that `_config.yml` holds; "" when it holds none."""
    found = CONFIG_URL.search(text)
    return found[2].strip(" \t\"'") if found else ""


def set_in_config(text: str, repository: str) -> str:
    """The text of `_config.yml` with the address set, and all else as it was.

    Raises:
        ValueError: the text has no `repository:` section with a `url:`.
    """
    if not CONFIG_URL.search(text):
        raise ValueError("_config.yml needs a section `repository:` that holds `url:`")
    return CONFIG_URL.sub(lambda found: f'{found[1]} "{repository}"', text, count=1)


def set_in_notebook(text: str, repository: str) -> str:
    """The text of a notebook with the address set in its first code cell; else as it was.

    Raises:
        ValueError: the first code cell has no line that names repository and tag.
    """
    notebook = json.loads(text)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    source = "".join(code[0]["source"]) if code else ""
    found = address_in_cell(source)
    if found is None:
        raise ValueError("its first code cell is not the book's (it names no REPOSITORY, TAG)")
    code[0]["source"] = first_cell_source(repository, found[1]).splitlines(keepends=True)
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def set_repository(root: Path, repository: str) -> list[Path]:
    """Set the address everywhere below `root`; nothing is written when one place cannot be set.

    Args:
        root: the book's folder.
        repository: an address that git can clone (https:// or file://), or "".

    Raises:
        ValueError: no such address, or a file is not as the book writes it.
    """
    if repository and not URL.fullmatch(repository):
        raise ValueError(
            f"{repository!r} is no address of a repository: it must begin with https:// (or"
            " file://), hold no blanks or quotes, and not end in a slash"
        )
    config = root / "_config.yml"
    changed = {config: set_in_config(config.read_text(encoding="utf-8"), repository)}
    for path in sorted((root / "chapters").glob("*.ipynb")):
        try:
            changed[path] = set_in_notebook(path.read_text(encoding="utf-8"), repository)
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")
    return list(changed)


def main(arguments: list[str] | None = None) -> int:
    """Set the address from the command line, in the book below the working directory."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("url", help='the repository\'s address; "" for none')
    url = parser.parse_args(arguments).url
    try:
        changed = set_repository(Path.cwd(), url)
    except (OSError, ValueError) as error:
        print(f"Nothing was changed: {error}", file=sys.stderr)
        return 1
    where = ", ".join(path.name for path in changed)
    print(f"{url or 'No address'}: set in {where}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
