"""Run one cell in a fresh namespace, after the statements it needs from the cells above it.

The page's worker calls `run` in the browser; the tests call it directly.
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
MOST_TEXT = 100_000  # the most characters that a cell may print
ELSEWHERE = "the page has only Python and SymPy; the notebook has NumPy, PyTorch and all of rope"


class _Output(io.StringIO):
    """Collect a cell's output. Raise ValueError if the output exceeds `MOST_TEXT` characters."""

    def write(self, text: str) -> int:
        if self.tell() + len(text) > MOST_TEXT:
            raise ValueError(f"the cell prints more than {MOST_TEXT:,} characters; print less")
        return super().write(text)


def run(above: Sequence[str], source: str, stored: str) -> dict[str, Any]:
    """Run a cell and compare its output with the output in the book.

    above: the source of each cell above it. The output of those cells is discarded.
    stored: the cell's output in the book, including the value of its last expression.
    Returns a dict. text: the output. same: True if `text` equals `stored` and there was no error.
    difference: a line-by-line diff, marked `- ` (stored) and `+ ` (now), or [] if `same` is True.
    error: the exception as one line, or "".

    >>> result = run(["x = 2"], "print(x)\\nx + 1", "2\\n3")
    >>> result["text"], result["same"]
    ('2\\n3', True)
    >>> run([], "x = 1\\n1 / 0", "")["error"]
    'ZeroDivisionError: division by zero (line 2)'
    >>> run(["x = 2"], "assert x == 3", "")["error"]
    'AssertionError: `assert x == 3` (line 1)'
    """
    out = _Output()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    error = ""
    try:
        _check_syntax(above)
        statements, _ = needed(above, source)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            _execute([statement.node for statement in statements], ABOVE, namespace)
        body = ast.parse(source, CELL).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        with redirect_stdout(out), redirect_stderr(out):
            _execute(body, CELL, namespace)
            if isinstance(last, ast.Expr):
                code = compile(ast.Expression(last.value), CELL, "eval", dont_inherit=True)
                if (value := eval(code, namespace)) is not None:
                    print(repr(value))
    except BaseException as exception:  # exit() ends the cell, not the worker
        error = _error_line(exception, source)
    text = out.getvalue().rstrip("\n")
    same = not error and text == stored
    difference: list[str] = []
    if not same:
        lines = ndiff(stored.splitlines(), text.splitlines())
        difference = [line for line in lines if not line.startswith("? ")]
    return dict(text=text, same=same, difference=difference, error=error)


def _check_syntax(above: Sequence[str]) -> None:
    """Raise ValueError if a cell isn't valid Python, unless it contains an IPython command.

    `needed` skips invalid cells, so a typo in a cell would silently remove its definitions.
    """
    for number, source in enumerate(above, 1):
        try:
            ast.parse(source)
        except SyntaxError as error:
            if not any(line.lstrip().startswith(("%", "!")) for line in source.splitlines()):
                raise ValueError(f"code cell {number} of the page isn't Python: {error}") from None


def _execute(nodes: list[ast.stmt], filename: str, namespace: dict[str, Any]) -> None:
    exec(compile(ast.Module(nodes, []), filename, "exec", dont_inherit=True), namespace)


def _error_line(exception: BaseException, source: str) -> str:
    """Return an exception as one line of text, with the number of the line that raised it."""
    message = str(exception)
    frames = traceback.extract_tb(exception.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == CELL]
    if isinstance(exception, SyntaxError):
        message, lines = exception.msg, [exception.lineno]
    elif isinstance(exception, ModuleNotFoundError):
        message = f"no {exception.name} here: {ELSEWHERE}"
    elif isinstance(exception, AssertionError) and lines and not message:
        message = f"`{source.splitlines()[(lines[-1] or 1) - 1].strip()}`"
    text = f"{type(exception).__name__}: {message}" if message else type(exception).__name__
    if lines:
        return f"{text} (line {lines[-1]})"
    return f"{text} (in a cell above)" if any(f.filename == ABOVE for f in frames) else text
