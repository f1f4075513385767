"""Which cells of a notebook run in the page: those that need Python and SymPy alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from rope.book.live.slicing import Statement, needed, statements
from rope.book.tools.notebooks import ASSERTS, IGNORED, code_cells, marks

OURS = {"rope.symbolic"}
THEIRS = {"mpmath", "sympy"}
# What Python's library has and a browser has not, of what a chapter might import.
ABSENT = {"ctypes", "multiprocessing", "socket", "subprocess", "threading"}


def modules(chosen: Iterable[Statement]) -> Iterator[str]:
    """The modules that statements import, in functions too, or name as parts of `rope`.

    >>> sorted(modules(statements("import math, torch; from rope import symbolic; rope.xpos")))
    ['math', 'rope.symbolic', 'rope.xpos', 'torch']
    """
    for one in chosen:
        for node in ast.walk(one.node):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module == "rope":
                yield from (f"rope.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield str(node.module)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "rope":
                yield f"rope.{node.attr}"


def in_the_bundle(module: str) -> bool:
    """Whether the browser has the module."""
    root = module.partition(".")[0]
    standard = root in sys.stdlib_module_names and root not in ABSENT
    return standard or root in THEIRS or module in OURS


def stored_text(cell: dict[str, Any]) -> str:
    """What the book has printed for a cell: its stream, and the text of what it shows."""
    said = [
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for output in cell["outputs"]
    ]
    return "\n".join(text.rstrip("\n") for text in said)


def runs(above: list[str], cell: dict[str, Any]) -> bool:
    """Whether a cell can run in the page, and is worth it: it prints or asserts something."""
    own = statements(cell["source"])
    if not own or marks(cell) & IGNORED:
        return False
    chosen, unknown = needed(above, cell["source"])
    imported = {*modules([*chosen, *own])}
    says = cell["outputs"] or ASSERTS.search(cell["source"])
    return bool(says) and not unknown and all(map(in_the_bundle, imported))


def page_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """All code cells of a notebook as the page's script reads them; a cell that runs has `stored`.

    The others are there because one that runs may need some of their lines.
    """
    cells = code_cells(notebook)
    sources = [cell["source"] for cell in cells]
    return [
        {"source": cell["source"], "stored": stored_text(cell)}
        if runs(sources[:number], cell)
        else {"source": cell["source"]}
        for number, cell in enumerate(cells)
    ]
