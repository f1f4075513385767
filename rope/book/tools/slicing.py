"""Find the statements in earlier cells that a cell depends on.

The build uses this module to decide which cells a browser can run. The browser uses it to decide
which statements to run before a cell. Scopes are derived from the syntax tree because the results
of `symtable` changed in Python 3.12.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

# Statements that always bind their names, so that earlier values of the names don't matter.
_BINDING = (
    ast.Assign,
    ast.AnnAssign,
    ast.ClassDef,
    ast.FunctionDef,
    ast.Import,
    ast.ImportFrom,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Statement:
    """Hold one top-level statement of a cell and the names that it binds, reads, and changes."""

    def __init__(self, node: ast.stmt) -> None:
        read = list(_read(node, frozenset(), called_later=False))
        self.node = node
        self.binds = set(_bound([node]))
        self.reads = _needs(node)
        self.later = {name for name, called_later in read if called_later}
        self.changes = self.binds | set(_changed(node))

    @property
    def replaces(self) -> set[str]:
        """Return the names that this statement binds unconditionally."""
        return self.binds if isinstance(self.node, _BINDING) else set()


def _before(own: Sequence[Statement], wanted: set[str]) -> set[str]:
    """Return the names needed before these statements, given the names needed after them."""
    for statement in reversed(own):
        wanted = (wanted - statement.replaces) | statement.reads
    return wanted


def _needs(node: ast.stmt) -> set[str]:
    """Return the names that a statement reads before it binds them; a loop binds its own target."""
    targets: list[ast.expr | None] = []
    if isinstance(node, ast.For):
        head, targets = [node.iter], [node.target]
    elif isinstance(node, ast.With):
        head = [item.context_expr for item in node.items]
        targets = [item.optional_vars for item in node.items]
    elif isinstance(node, (ast.If, ast.While)):
        head = [node.test]
    else:
        return {name for name, _ in _read(node, frozenset(), called_later=False)}
    read = {name for part in head for name, _ in _read(part, frozenset(), called_later=False)}
    body = _before([Statement(child) for child in node.body], set())
    other = _before([Statement(child) for child in getattr(node, "orelse", [])], set())
    return read | (body - set(_bound(filter(None, targets)))) | other


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that code binds in its own scope."""
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, _COMPREHENSIONS):  # only x := 1 binds a name outside them
            named = (part for part in ast.walk(node) if isinstance(part, ast.NamedExpr))
            yield from _bound(part.target for part in named)
        elif not isinstance(node, ast.Lambda):
            yield from _bound(ast.iter_child_nodes(node))


def _read(node: ast.AST, local: frozenset[str], called_later: bool) -> Iterator[tuple[str, bool]]:
    """Yield each global name that code reads, with True if only a later call reads the name."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in local:
        yield node.id, called_later
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield from _read(ast.Name(node.target.id, ast.Load()), local, called_later)
    inner, later, inside = local, called_later, list(ast.iter_child_nodes(node))
    if isinstance(node, _FUNCTIONS):
        body: list[ast.AST] = [*node.body] if isinstance(node.body, list) else [node.body]
        arguments = {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
        inner, later = local | arguments | set(_bound(body)), True
        for outside in (child for child in inside if child not in body):  # defaults, decorators
            yield from _read(outside, local, called_later)
        inside = body
    elif isinstance(node, _COMPREHENSIONS):
        first = node.generators[0].iter
        yield from _read(first, local, called_later)
        inner = local | set(_bound(loop.target for loop in node.generators))
    for child in inside:
        yield from _read(child, inner, later)


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
    """Search upward for statements that bind or change wanted names.

    Returns these statements in order, and the names that are still needed before them.
    """
    chosen = []
    for statement in reversed(earlier):
        if statement.changes & wanted:
            chosen.append(statement)
            wanted = _before([statement], wanted)
    return chosen[::-1], wanted
