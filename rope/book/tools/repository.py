"""Set the book's address in `_config.yml` and in the first code cell of every notebook.

`python -m rope.book.tools.repository URL [TAG]` sets it; `""` as the URL removes it. TAG names what
Colab installs: a git tag or a commit, `v` and the package's version when it is left out. While
there is no address, pages offer no Colab button and the first cell installs nothing.
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
    """Set the address and the tag in the book's folder.

    Raises ValueError, and changes no file, if the URL is malformed or if a file doesn't hold
    exactly one address.
    """
    if not ADDRESS.fullmatch(url):
        raise ValueError(
            f"{url!r} is not a repository's address; it must begin with https:// or file:// and"
            " contain no spaces, quotes or trailing slash"
        )
    changed = {}
    for path in [book / "_config.yml", *sorted((book / "chapters").glob("*.ipynb"))]:
        pattern, value = IN_CONFIG, f'"{url}"'
        if path.suffix == ".ipynb":
            pattern, value = IN_NOTEBOOK, rf'\\"{url}\\", \\"{tag}\\"'
        changed[path], count = pattern.subn(value, path.read_text(encoding="utf-8"))
        if count != 1:
            raise ValueError(f"{path.name} holds {count} addresses; it must hold one")
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        set_address(Path.cwd(), *sys.argv[1:])
    except (OSError, TypeError, ValueError) as error:
        sys.exit(f"Nothing was changed: {error}")
    print(f"Set {sys.argv[1] or 'no address'} in _config.yml and in every notebook.")
