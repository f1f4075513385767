"""Run one cell in a new namespace, after the cells above it.

The page's worker calls `run` in the browser, and the tests call it directly. As a program, this
module reads pages as JSON from stdin and prints which of their cells can run here.
"""

from __future__ import annotations

import ast
import io
import json
import linecache
import sys
import traceback
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

CELL, ABOVE = "<cell>", "<cells above>"


def run(above: Iterable[dict[str, Any]], source: str, stored: str) -> dict[str, Any]:
    """Run a cell and compare its output with the output in the book.

    above: for each cell above, its "source", and "whole", which is True if that cell can run in the
    page. The other cells need modules that are missing, so their failing statements are skipped.
    stored: the cell's output in the book, including the value of its last expression.
    Returns a dict. text: the output. same: True if `text` equals `stored` and there was no error.
    error: the exception with its traceback, or "".

    >>> result = run([{"source": "x = 2", "whole": True}], "print(x)\\nx + 1", "2\\n3")
    >>> result["text"], result["same"]
    ('2\\n3', True)
    """
    out = io.StringIO()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    error = ""
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            for cell in above:
                execute(cell["source"], ABOVE, namespace, whole=cell["whole"])
        with redirect_stdout(out), redirect_stderr(out):
            execute(source, CELL, namespace)
    except BaseException as exception:  # exit() ends the cell, not the worker
        error = _formatted(exception, source)
    text = out.getvalue().rstrip("\n")
    return dict(text=text, same=not error and text == stored, error=error)


def execute(source: str, name: str, namespace: dict[str, Any], *, whole: bool = True) -> bool:
    """Execute a cell and print the value of its last expression, as a notebook does.

    name: the file name in tracebacks. whole: False skips the statements that raise an exception,
    and a cell that isn't plain Python (for example `%pip`).
    Returns True if nothing was skipped.
    """
    try:
        body = ast.parse(source, name).body
    except SyntaxError:
        if whole:
            raise
        return False
    complete = True
    for node in body:
        shown = node is body[-1] and isinstance(node, ast.Expr)
        tree: Any = ast.Interactive([node]) if shown else ast.Module([node], [])
        try:
            exec(compile(tree, name, "single" if shown else "exec", dont_inherit=True), namespace)
        except Exception:
            if whole:
                raise
            complete = False
    return complete


def _formatted(exception: BaseException, source: str) -> str:
    """Return an exception as Python prints it, without the frames of this module."""
    linecache.cache[CELL] = len(source), None, source.splitlines(keepends=True), CELL
    frames = exception.__traceback__
    while frames and frames.tb_frame.f_code.co_filename not in (CELL, ABOVE):
        frames = frames.tb_next
    return "".join(traceback.format_exception(exception.with_traceback(frames))).rstrip()


def agreeing(cells: Iterable[dict[str, Any]]) -> list[bool]:
    """Run a page's cells in order. Return, for each, True if it ran and printed its "stored" text.

    >>> agreeing([{"source": "import no; x = 1", "stored": ""}, {"source": "x", "stored": "1"}])
    [False, True]
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    verdicts = []
    for cell in cells:
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            complete = execute(cell["source"], ABOVE, namespace, whole=False)
        verdicts.append(complete and out.getvalue().rstrip("\n") == cell.get("stored"))
    return verdicts


if __name__ == "__main__":
    print(json.dumps(agreeing(json.load(sys.stdin))))
