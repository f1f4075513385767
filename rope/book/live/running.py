"""Runs one cell in a namespace of its own, after what it needs from the cells above it.

In the browser the page's worker calls this; the tests call it without a browser.
"""

from __future__ import annotations

import ast
import io
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from difflib import ndiff
from typing import Any

from rope.book.tools.slicing import needed

CELL, ABOVE = "<cell>", "<cells above>"
MOST_TEXT, MOST_LINES = 100_000, 200  # that a cell may print; that are shown of a difference
ELSEWHERE = "the page has Python and SymPy alone; the notebook has NumPy, PyTorch and all of rope"


class _Output(io.StringIO):
    """What a cell prints, up to a length that a page can show."""

    def write(self, text: str) -> int:
        if self.tell() + len(text) > MOST_TEXT:
            raise ValueError(f"the cell prints more than {MOST_TEXT:,} characters: print less")
        return super().write(text)


def run(above: Sequence[str], source: str, stored: str) -> dict[str, Any]:
    """What a cell gives, and whether that is what the page shows.

    above: the cells above it, as they stand; what they print is not shown.
    stored: what the book has printed for this cell, an expression's value included.

    Returns a dict: text, what it prints; same, whether text is what is stored; difference, their
    lines after `- ` (stored) and `+ ` (now) where they differ; error, the last line of an
    exception, or "".

    >>> result = run(["x = 2"], "print(x)\\nx + 1", "2\\n3")
    >>> result["text"], result["same"]
    ('2\\n3', True)
    >>> run([], "x = 1\\n1 / 0", "")["error"]
    'ZeroDivisionError: division by zero (line 2)'
    >>> run(["x = 2"], "assert x == 3", "")["error"]
    'AssertionError: `assert x == 3` (line 1)'
    """
    out = _Output()
    names: dict[str, Any] = {"__name__": "__main__"}
    error = ""
    try:
        _parse(above)
        chosen, _ = needed(above, source)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            _execute([statement.node for statement in chosen], ABOVE, names)
        with redirect_stdout(out), redirect_stderr(out):
            body = ast.parse(source, CELL).body
            last = body[-1] if body else None
            shown = isinstance(last, ast.Expr)
            _execute(body[:-1] if shown else body, CELL, names)
            if isinstance(last, ast.Expr):
                code = compile(ast.Expression(last.value), CELL, "eval", dont_inherit=True)
                value = eval(code, names)
                if value is not None:
                    print(repr(value))
    except BaseException as raised:  # exit() and an interruption end a cell, not its worker
        error = _last_line(raised, source)
    text = out.getvalue().rstrip("\n")
    same = not error and text == stored
    lines = [] if same else list(ndiff(stored.splitlines(), text.splitlines()))
    difference = [line for line in lines if not line.startswith("? ")]
    if len(difference) > MOST_LINES:
        difference[MOST_LINES:] = [f"  … and {len(difference) - MOST_LINES:,} lines more"]
    return dict(text=text, same=same, difference=difference, error=error)


def _parse(above: Sequence[str]) -> None:
    """Refuse a cell above that is no Python, unless it has one of IPython's own commands."""
    for number, source in enumerate(above, 1):
        try:
            ast.parse(source)
        except SyntaxError as error:
            if not any(line.lstrip().startswith(("%", "!")) for line in source.splitlines()):
                raise ValueError(f"code cell {number} of the page is no Python: {error}") from None


def _execute(nodes: list[ast.stmt], where: str, names: dict[str, Any]) -> None:
    exec(compile(ast.Module(nodes, []), where, "exec", dont_inherit=True), names)


def _last_line(raised: BaseException, source: str) -> str:
    """An exception as one line, and the cell's line that it came from."""
    message = raised.msg if isinstance(raised, SyntaxError) else str(raised)
    frames = traceback.extract_tb(raised.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == CELL]
    if isinstance(raised, SyntaxError):
        lines = [raised.lineno]
    elif isinstance(raised, ModuleNotFoundError):
        message = f"no {raised.name} here: {ELSEWHERE}"
    elif isinstance(raised, AssertionError) and lines and not message:
        message = f"`{_asserted(source, lines[-1] or 1)}`"
    text = f"{type(raised).__name__}: {message}" if message else type(raised).__name__
    if lines:
        return f"{text} (line {lines[-1]})"
    above = any(frame.filename == ABOVE for frame in frames)
    return f"{text} (in a cell above)" if above else text


def _asserted(source: str, line: int) -> str:
    """The assertion at a line of a cell, written in one line; the line itself if there is none."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or line):
            return " ".join(str(ast.get_source_segment(source, node)).split())
    return source.splitlines()[line - 1].strip()
