"""Gives the built pages their buttons: a style sheet, a script, the page's cells as JSON, a note.

Those cells run in the page that need Python and SymPy alone.
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
from rope.book.tools.minutes import TICK
from rope.book.tools.notebooks import ASSERTS, HIDDEN_SOLUTION, IGNORED, code_cells, marks
from rope.book.tools.slicing import Statement, needed, statements

OURS = {"rope.symbolic", "rope.book.judge"}
THEIRS = {"mpmath", "sympy"}
# What Python's library has and a browser has not, of what a chapter might import.
ABSENT = {"ctypes", "multiprocessing", "socket", "subprocess", "threading"}
# Between these marks stands what was put in, so that it can be put in again.
START, END = "<!-- live -->", "<!-- /live -->"
JUDGED = re.compile(r"\b(?:judge|verdict)\((\d)")
GOALS = re.compile(r'<div class="goals admonition">.*?</div>\n', re.DOTALL)


def modules(chosen: Iterable[Statement]) -> Iterator[str]:
    """The modules that statements import, in functions too, or name as parts of `rope`.

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


def in_the_bundle(module: str) -> bool:
    """Whether the browser has the module."""
    root = module.partition(".")[0]
    standard = root in sys.stdlib_module_names and root not in ABSENT
    return standard or root in THEIRS or module in OURS


def stored_text(cell: dict[str, Any]) -> str:
    """What the book has printed for a cell: its stream, and the text of what it shows."""
    texts = [
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for output in cell["outputs"]
    ]
    return "\n".join(text.rstrip("\n") for text in texts)


def runs(above: list[str], cell: dict[str, Any]) -> bool:
    """Whether a cell can run in the page, and is worth it: it prints or asserts something."""
    own = statements(cell["source"])
    step = JUDGED.search(cell["source"])
    if not own or marks(cell) & IGNORED or (step and MODULES[int(step[1]) - 1] != "in_python"):
        return False
    chosen, unknown = needed(above, cell["source"])
    imported = modules([*chosen, *own])
    worth_it = bool(cell["outputs"] or ASSERTS.search(cell["source"]))
    return worth_it and not unknown and all(map(in_the_bundle, imported))


def page_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """All code cells of a notebook as the page's script reads them; a cell that runs has `stored`.

    The others are there because one that runs may need some of their lines. `judged` is the step
    of a cell that is an answer to be judged.
    """
    cells = code_cells(notebook)
    # A claim stands above its fold, not in its code.
    sources = [TICK.sub("", cell["source"]) for cell in cells]
    listed: list[dict[str, Any]] = []
    for number, (source, cell) in enumerate(zip(sources, cells, strict=True)):
        listed.append({"source": source})
        if runs(sources[:number], cell):
            listed[-1]["stored"] = stored_text(cell)
            if "judge" in marks(cell) and (step := JUDGED.search(source)):
                listed[-1]["judged"] = int(step[1])
    return listed


def folds(notebook: dict[str, Any]) -> Iterator[str]:
    """What each code cell that may run is folded into; "" for one in plain sight."""
    solution = False
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            tick = "lines marked ✓" if "check" in marks(cell) else ""
            yield "solutions" if solution else tick
        elif "{solution-" in cell["source"]:
            solution = bool(HIDDEN_SOLUTION.search(cell["source"]))


def note(name: str, notebook: dict[str, Any], cells: list[dict[str, Any]], size: int) -> str:
    """What a page says of running its cells; size: of what the first click loads, in bytes."""
    link = f'<a href="../_sources/chapters/{name}.ipynb" download>'
    where = [fold for fold, cell in zip(folds(notebook), cells, strict=True) if "stored" in cell]
    if not where:
        return f"The cells of this page run in {link}its notebook</a>."
    verb, places = ("runs", "") if len(where) == 1 else ("run", "all ")
    places = "" if "" in where else f", {places}in the folded {' and '.join(sorted({*where}))}"
    proves = any("stored" in cell and ASSERTS.search(cell["source"]) for cell in cells)
    edit = f"Edit the code{': turn a sign and see its proof fail' if proves else ' as you like'}. "
    if any("judged" in cell for cell in cells):
        edit = "What you write is kept in this browser and sent nowhere. "
    return (
        f"{len(where)} of this page’s {len(cells)} cells {verb} here{places}. "
        f"The first click on Run starts Python with SymPy ({size / 1e6:.0f} MB, part of this "
        f"book). {edit}"
        f"The other cells run in {link}the notebook</a>; most need NumPy or PyTorch."
    )


def put_in(html: Path, chapters: Path, sizes: dict[str, int]) -> dict[str, int]:
    """Put a note into each notebook's page, the script where cells run; return how many run."""
    counts = {}
    for path in sorted(chapters.glob("*.ipynb")):
        page = html / chapters.name / f"{path.stem}.html"
        if not page.exists():
            continue
        notebook = nbformat.read(path, as_version=4)
        cells = page_cells(notebook)
        said = note(path.stem, notebook, cells, sum(sizes.values()))
        paragraph = f'{START}<p class="rope-live-note">{said}</p>{END}'
        text = without(page.read_text(encoding="utf-8"))
        text = GOALS.sub(rf"\g<0>{paragraph}", text, count=1)
        tags = '<link rel="stylesheet" href="../_static/live/buttons.css">'
        if count := sum("stored" in cell for cell in cells):
            counts[path.stem] = count
            tags += _scripts(cells, sizes)
        text = text.replace("</head>", f"{START}{tags}{END}</head>", 1)
        page.write_text(text, encoding="utf-8")
    return counts


def without(text: str) -> str:
    """A page's text as it was built."""
    return re.sub(f"{START}.*?{END}", "", text, flags=re.DOTALL)


def _scripts(cells: list[dict[str, Any]], sizes: dict[str, int]) -> str:
    data = json.dumps({"cells": cells, "parts": sizes}).replace("<", r"\u003c")
    names = ["python", *["judge"] * any("judged" in cell for cell in cells), "buttons"]
    scripts = [f'<script defer="defer" src="../_static/live/{name}.js"></script>' for name in names]
    return f'<script type="application/json" id="rope-live">{data}</script>' + "".join(scripts)
