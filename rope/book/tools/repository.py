"""Set the book's address in `_config.yml` and in the first code cell of every notebook.

`python -m rope.book.tools.repository URL [TAG]` sets the address; the URL `""` removes it. TAG is
the git tag or commit that Colab installs; the default is `v` plus the package's version. Without an
address, pages have no Colab button, and the first cell installs nothing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import rope

ADDRESS = re.compile(r"((https|file)://[^\s\"'\\{}]+[^\s\"'\\{}/])?")
IN_CONFIG = re.compile(r'(?<=^repository:\n  url: )"[^"]*"', re.MULTILINE)
IN_NOTEBOOK = re.compile(r'(?<="REPOSITORY, TAG = )\\"[^"]*\\", \\"[^"]*\\"')


def set_address(book: Path, url: str, tag: str = f"v{rope.__version__}") -> None:
    """Set the address and the tag in `_config.yml` and the notebooks of the folder `book`.

    Raises ValueError and changes no file if the URL is malformed or if a file doesn't contain
    exactly one address.
    """
    if not ADDRESS.fullmatch(url):
        raise ValueError(
            f"{url!r} is not a repository address; it must start with https:// or file:// and"
            " contain no spaces, quotes, backslashes, braces or trailing slash"
        )
    changed = {}
    for path in [book / "_config.yml", *sorted((book / "chapters").glob("*.ipynb"))]:
        pattern, value = IN_CONFIG, f'"{url}"'
        if path.suffix == ".ipynb":
            pattern, value = IN_NOTEBOOK, rf'\\"{url}\\", \\"{tag}\\"'
        changed[path], count = pattern.subn(value, path.read_text(encoding="utf-8"))
        if count != 1:
            raise ValueError(f"{path.name} contains {count} addresses; it must contain exactly one")
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        set_address(Path.cwd(), *sys.argv[1:])
    except (OSError, TypeError, ValueError) as error:
        sys.exit(f"Nothing was changed: {error}")
    done = f"Set the address {sys.argv[1]}" if sys.argv[1] else "Removed the address"
    print(f"{done} in _config.yml and in every notebook.")
