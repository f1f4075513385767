"""Add Run buttons to the built pages: a style sheet, the cells as JSON, and a script.

A cell runs in the page if it needs only Python's standard library, SymPy, and bundled modules.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat

from rope.book.live.bundle import PACKAGES, own_files
from rope.book.tools.minutes import CHECK
from rope.book.tools.notebooks import ASSERTS, IGNORED, is_set_up, marks

# Additions to a page are enclosed in these marks, so that a later run can replace them.
START, END = "<!-- live -->", "<!-- /live -->"
JUDGED = re.compile(r"\bjudge\((\d)")
DEFINITION = re.compile(r"^(?:def|class) .*\n(?:(?:[ \t].*)?\n)*(?:[ \t].*)?", re.MULTILINE)


def stored_text(cell: dict[str, Any]) -> str:
    """Return the text that the book shows below a cell: what it prints, then its last value."""
    texts = [
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for output in cell["outputs"]
    ]
    return "\n".join(text.rstrip("\n") for text in texts)


def page_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all code cells of a notebook as dicts for the page's script.

    source: the cell's code. stored: the output shown in the book, if the cell can run in the page
    and prints or asserts something. judged: the step's number, if the cell calls the judge.
    solution: True if the cell belongs to a solution. An answer must not use the functions of
    solutions.
    """
    entries: list[dict[str, Any]] = []
    in_solution = False
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            if "{solution-" in cell["source"]:
                in_solution = "{solution-start}" in cell["source"]
            continue
        source = CHECK.sub("", cell["source"])  # the page shows claims as labels
        entry: dict[str, Any] = {"source": source}
        shows = cell["outputs"] or ASSERTS.search(DEFINITION.sub("", source))
        if shows and not is_set_up(cell) and not marks(cell) & IGNORED:
            entry["stored"] = stored_text(cell)
        if "judge" in marks(cell) and (step := JUDGED.search(source)):
            entry["judged"] = int(step[1])
        if in_solution:
            entry["solution"] = True
        entries.append(entry)
    for entry, agrees in zip(entries, _run_as_in_the_browser(entries), strict=True):
        if not agrees:
            entry.pop("stored", None)
    return entries


def _run_as_in_the_browser(cells: list[dict[str, Any]]) -> list[bool]:
    """Return `agreeing(cells)`, computed in a process that has only the bundle's modules."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "rope.zip").write_bytes(own_files())
        for name in PACKAGES:
            (Path(folder) / name).symlink_to(str(distribution(name).locate_file(name)))
        done = subprocess.run(
            [sys.executable, "-S", "-m", "rope.book.live.running"],
            cwd=folder, env={"PYTHONPATH": "rope.zip"}, input=json.dumps(cells),
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    return json.loads(done.stdout)


def add_buttons(html: Path, chapters: Path, parts: list[str]) -> dict[str, int]:
    """Add the style sheet and the script to each page where cells run.

    parts: the names of the bundle's scripts.
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
            data = json.dumps({"cells": cells, "parts": parts}).replace("<", r"\u003c")
            tags = (
                f'{START}<script type="application/json" id="rope-live">{data}</script>'
                '<script defer="defer" src="../_static/live/buttons.js"></script>'
                f'<link rel="stylesheet" href="../_static/live/buttons.css">{END}</head>'
            )
            text = text.replace("</head>", tags, 1)
        page.write_text(text, encoding="utf-8")
    return counts


def without_buttons(text: str) -> str:
    """Return a page's HTML without the additions that `add_buttons` made."""
    return re.sub(f"{START}.*?{END}", "", text, flags=re.DOTALL)
