"""Add Run buttons to the built pages: a style sheet, the cells as JSON, and scripts.

A cell runs in the page if it needs only Python's standard library, SymPy, and bundled modules.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nbformat

from rope.book.judge import MODULES
from rope.book.live.bundle import PACKAGES
from rope.book.tools.minutes import CHECK
from rope.book.tools.notebooks import ASSERTS, IGNORED, is_set_up, marks
from rope.book.tools.slicing import Statement, needed, statements

BUNDLED = {"rope.symbolic", "rope.book.judge"}
# Standard library modules that a chapter might import but that a browser doesn't have.
ABSENT = {"ctypes", "multiprocessing", "socket", "subprocess", "threading"}
# Additions to a page are enclosed in these marks, so that a later run can replace them.
START, END = "<!-- live -->", "<!-- /live -->"
JUDGED = re.compile(r"\b(?:judge|verdict)\((\d)")


def modules(chosen: Iterable[Statement]) -> Iterator[str]:
    """Yield the modules that statements use as `rope.name` or import, even inside functions.

    >>> sorted(modules(statements("import math, torch; from rope import symbolic; rope.xpos")))
    ['math', 'rope.symbolic', 'rope.xpos', 'torch']
    """
    for statement in chosen:
        for node in ast.walk(statement.node):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module == "rope":
                yield from (f"rope.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield str(node.module)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "rope":
                yield f"rope.{node.attr}"


def in_browser(module: str) -> bool:
    """Return True if the browser can import the module."""
    root = module.partition(".")[0]
    standard = root in sys.stdlib_module_names and root not in ABSENT
    return standard or root in PACKAGES or module in BUNDLED


def stored_text(cell: dict[str, Any]) -> str:
    """Return the text that the book shows below a cell: what it prints, then its last value."""
    texts = [
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for output in cell["outputs"]
    ]
    return "\n".join(text.rstrip("\n") for text in texts)


def runs(above: list[str], cell: dict[str, Any]) -> bool:
    """Return True if a cell can run in the page and prints or asserts something."""
    own = statements(cell["source"])
    step = JUDGED.search(cell["source"])
    if not own or marks(cell) & IGNORED or (step and MODULES[int(step[1]) - 1] != "in_python"):
        return False
    if is_set_up(cell) or not (cell["outputs"] or ASSERTS.search(cell["source"])):
        return False
    chosen, unknown = needed(above, cell["source"])
    return not unknown and all(map(in_browser, modules([*chosen, *own])))


def page_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all code cells of a notebook as dicts for the page's scripts.

    source: the cell's code. stored: the output shown in the book, if the cell can run in the page.
    judged: the step's number, if the cell calls the judge. solution: True if the cell belongs to a
    solution. An answer must not use the functions of solutions.
    """
    sources: list[str] = []
    entries: list[dict[str, Any]] = []
    in_solution = False
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            if "{solution-" in cell["source"]:
                in_solution = "{solution-start}" in cell["source"]
            continue
        source = CHECK.sub("", cell["source"])  # the page shows claims as labels
        entry: dict[str, Any] = {"source": source}
        if runs(sources, cell):
            entry["stored"] = stored_text(cell)
            if "judge" in marks(cell) and (step := JUDGED.search(source)):
                entry["judged"] = int(step[1])
        if in_solution:
            entry["solution"] = True
        sources.append(source)
        entries.append(entry)
    return entries


def add_buttons(html: Path, chapters: Path, sizes: dict[str, int]) -> dict[str, int]:
    """Add the style sheet and the scripts to each page where cells run.

    sizes: the size in bytes of each script in the bundle.
    Returns a dict that maps each page where cells run to the number of these cells.
    """
    counts = {}
    for path in sorted(chapters.glob("*.ipynb")):
        page = html / chapters.name / f"{path.stem}.html"
        if not page.exists():
            continue
        text = without_buttons(page.read_text(encoding="utf-8"))
        cells = page_cells(nbformat.read(path, as_version=4))
        if count := sum("stored" in cell for cell in cells):
            counts[path.stem] = count
            tags = f"{START}{scripts(cells, sizes)}{END}</head>"
            text = text.replace("</head>", tags, 1)
        page.write_text(text, encoding="utf-8")
    return counts


def without_buttons(text: str) -> str:
    """Return a page's HTML without the additions that `add_buttons` made."""
    return re.sub(f"{START}.*?{END}", "", text, flags=re.DOTALL)


def scripts(cells: list[dict[str, Any]], sizes: dict[str, int]) -> str:
    """Return the HTML elements that hold the page's cells and load its styles and scripts."""
    data = json.dumps({"cells": cells, "parts": sizes}).replace("<", r"\u003c")
    names = ["python", *["judge"] * any("judged" in cell for cell in cells), "buttons"]
    tags = [f'<script defer="defer" src="../_static/live/{name}.js"></script>' for name in names]
    tags.append('<link rel="stylesheet" href="../_static/live/buttons.css">')
    return f'<script type="application/json" id="rope-live">{data}</script>' + "".join(tags)
