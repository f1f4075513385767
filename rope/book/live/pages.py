"""Gives the built pages their buttons: a style sheet, a script, and the page's cells as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat

from rope.book.live.cells import page_cells

# Between these marks stands what was put in, so that it can be put in again.
START, END = "<!-- live -->", "<!-- /live -->"


def put_in(html: Path, chapters: Path, sizes: dict[str, int]) -> dict[str, int]:
    """Put the script into every page with a cell that runs; return how many cells each page has."""
    counts = {}
    for path in sorted(chapters.glob("*.ipynb")):
        page = html / chapters.name / f"{path.stem}.html"
        if not page.exists():
            continue
        cells = page_cells(nbformat.read(path, as_version=4))
        text = without(page.read_text(encoding="utf-8"))
        if count := sum("stored" in cell for cell in cells):
            counts[path.stem] = count
            text = text.replace("</head>", f"{_tags(cells, sizes)}</head>", 1)
        page.write_text(text, encoding="utf-8")
    return counts


def without(text: str) -> str:
    """A page's text as it was built."""
    return re.sub(f"{START}.*?{END}", "", text, flags=re.DOTALL)


def _tags(cells: list[dict[str, str]], sizes: dict[str, int]) -> str:
    data = json.dumps({"cells": cells, "parts": sizes}).replace("<", r"\u003c")
    return (
        f'{START}<link rel="stylesheet" href="../_static/live/buttons.css">'
        f'<script type="application/json" id="rope-live">{data}</script>'
        f'<script defer="defer" src="../_static/live/python.js"></script>'
        f'<script defer="defer" src="../_static/live/buttons.js"></script>{END}'
    )
