"""Find the statements in earlier cells that a cell depends on.

The build uses this module to decide which cells a browser can run. The browser uses it to decide
which statements to run before a cell. Python's compiler determines which names are global.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
from collections.abc import Iterator, Sequence
from functools import cache
from types import CodeType

# Statements that always bind their names, so that earlier values of the names don't matter.
_BINDING = (
    ast.Assign,
    ast.AnnAssign,
    ast.ClassDef,
    ast.FunctionDef,
    ast.Import,
    ast.ImportFrom,
)


class Statement:
    """Hold one top-level statement of a cell and the names that it binds, reads, and changes.

    reads: names that it reads before it binds them. later: names that are read only when its
    functions are called. replaces: names that it always binds. changes: names that it binds or
    whose objects it modifies.
    """

    def __init__(self, node: ast.stmt) -> None:
        self.node = node
        self.binds: set[str] = set()
        self.reads: set[str] = set()
        self.later: set[str] = set()
        code = compile(ast.Module([node], []), "<cell>", "exec", dont_inherit=True)
        for name, use in _uses(code):
            if use == "bind":
                self.binds.add(name)
            elif use == "later":
                self.later.add(name)
            elif name not in self.binds:
                self.reads.add(name)
        self.replaces = self.binds if isinstance(node, _BINDING) else set()
        self.changes = self.binds | set(_changed(node))


def _uses(code: CodeType, read: str = "read", outermost: bool = True) -> Iterator[tuple[str, str]]:
    """Yield each use of a global name in compiled code: the name, and "bind", "read", or "later".

    The names that a function's body reads are read "later", when the function is called.
    """
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            yield step.argval, read
        elif step.opname == "STORE_GLOBAL" or (step.opname == "STORE_NAME" and outermost):
            yield step.argval, "bind"
        elif isinstance(step.argval, CodeType):
            inner = step.argval
            runs_now = not inner.co_flags & inspect.CO_OPTIMIZED  # the body of a class
            runs_now |= inner.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
            yield from _uses(inner, read if runs_now else "later", outermost=False)


def _before(own: Sequence[Statement], wanted: set[str]) -> set[str]:
    """Return the names needed before these statements. wanted: the names needed after them."""
    for statement in reversed(own):
        wanted = (wanted - statement.replaces) | statement.reads
    return wanted


def _changed(node: ast.stmt) -> Iterator[str]:
    """Yield the names whose objects are modified: `x[0] = 1`, `x.a = 1`, `x.append(1)`."""
    for part in ast.walk(node):
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
            target: ast.AST = part.value.func
        elif isinstance(getattr(part, "ctx", None), (ast.Store, ast.Del)):
            target = part
        else:
            continue
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            while isinstance(target, (ast.Attribute, ast.Subscript)):
                target = target.value
            if isinstance(target, ast.Name):
                yield target.id


@cache
def statements(source: str) -> tuple[Statement, ...]:
    """Return a cell's statements, or () if the cell isn't plain Python (for example `%pip`).

    >>> [sorted(one.binds) for one in statements("a = 1; b, c = a, 2")]
    [['a'], ['b', 'c']]
    """
    try:
        return tuple(Statement(node) for node in ast.parse(source).body)
    except SyntaxError:
        return ()


def needed(above: Sequence[str], source: str) -> tuple[list[Statement], set[str]]:
    """Return the earlier statements that a cell needs, in order, and the cell's undefined names.

    A function body reads its global names when the function is called, so those names may be bound
    after the function is defined.

    >>> above = ["import torch", "r = 2", "def area(): return pi * r**2", "pi = 3"]
    >>> chosen, unknown = needed(above, "print(area() + x)")
    >>> [ast.unparse(one.node) for one in chosen], unknown
    (['r = 2', 'def area():\\n    return pi * r ** 2', 'pi = 3'], {'x'})
    """
    earlier = [statement for cell in above for statement in statements(cell)]
    own = statements(source)
    wanted = _before(own, set())
    own_names = {name for statement in own for name in statement.binds}
    while True:
        chosen, missing = _backwards(earlier, wanted)
        later = {name for statement in (*chosen, *own) for name in statement.later}
        more = later - own_names - wanted
        if not more:
            bound = {name for statement in chosen for name in statement.binds} | own_names
            return chosen, missing - bound - set(dir(builtins))
        wanted |= more


def _backwards(earlier: Sequence[Statement], wanted: set[str]) -> tuple[list[Statement], set[str]]:
    """Search backward for the statements that bind or change the wanted names.

    Returns these statements in order, and the names that are still needed before them.
    """
    chosen = []
    for statement in reversed(earlier):
        if statement.changes & wanted:
            chosen.append(statement)
            wanted = _before([statement], wanted)
    return chosen[::-1], wanted
