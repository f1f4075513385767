"""What a cell needs from the cells above it: those of their statements that it depends on.

In the build this decides which cells a browser can run; in the browser, what is run before one.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator, Sequence
from functools import cache

# Statements after which a name is what they made it: what stood above no longer matters.
_BINDING = (
    ast.Assign,
    ast.AnnAssign,
    ast.ClassDef,
    ast.FunctionDef,
    ast.Import,
    ast.ImportFrom,
)
# Scopes of their own whose body runs where it stands.
_AT_ONCE = {"dictcomp", "genexpr", "listcomp", "setcomp"}


class Statement:
    """One statement at the top level of a cell, and the names that it has to do with."""

    def __init__(self, node: ast.stmt) -> None:
        table = symtable.symtable(ast.unparse(node), "cell", "exec")
        symbols = table.get_symbols()
        read = list(_global_names(table, called_later=False))
        self.node = node
        self.binds = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}
        self.reads = {name for name, _ in read}
        self.later = {name for name, called_later in read if called_later}
        self.changes = self.binds | set(_changed(node))

    @property
    def replaces(self) -> set[str]:
        """The names that this statement binds whatever happens."""
        return self.binds if isinstance(self.node, _BINDING) else set()


def _global_names(table: symtable.SymbolTable, called_later: bool) -> Iterator[tuple[str, bool]]:
    """The global names that are read, and whether only when a function is called."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (table.get_type() == "module" or symbol.is_global()):
            yield symbol.get_name(), called_later
    for child in table.get_children():
        at_once = child.get_name() in _AT_ONCE or child.get_type() == "class"
        yield from _global_names(child, called_later or not at_once)


def _changed(node: ast.stmt) -> Iterator[str]:
    """The names whose objects are written into: `x[0] = 1`, `x.a = 1`, `x.append(1)`."""
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
    """The statements of a cell; none where it is no Python alone, as the first cell of a notebook.

    >>> [sorted(one.binds) for one in statements("a = 1; b, c = a, 2")]
    [['a'], ['b', 'c']]
    """
    try:
        return tuple(Statement(node) for node in ast.parse(source).body)
    except SyntaxError:
        return ()


def needed(above: Sequence[str], source: str) -> tuple[list[Statement], set[str]]:
    """The statements of the cells above that this one needs, in order, and the names nobody makes.

    A function's body is read as if it ran where it is called: what it names may be made later.

    >>> above = ["import torch", "r = 2", "def area(): return pi * r**2", "pi = 3"]
    >>> chosen, unknown = needed(above, "print(area() + x)")
    >>> [ast.unparse(one.node) for one in chosen], unknown
    (['r = 2', 'def area():\\n    return pi * r ** 2', 'pi = 3'], {'x'})
    """
    earlier = [one for cell in above for one in statements(cell)]
    own = statements(source)
    wanted: set[str] = set()
    for one in reversed(own):
        wanted = (wanted - one.replaces) | one.reads
    own_names = {name for one in own for name in one.binds}
    while True:
        chosen, missing = _backwards(earlier, wanted)
        more = {name for one in (*chosen, *own) for name in one.later} - own_names - wanted
        if not more:
            made = {name for one in chosen for name in one.binds} | own_names
            return chosen, missing - made - set(dir(builtins))
        wanted |= more


def _backwards(earlier: Sequence[Statement], wanted: set[str]) -> tuple[list[Statement], set[str]]:
    """The statements that make what is wanted, found from the last one upwards."""
    chosen = []
    for one in reversed(earlier):
        if one.changes & wanted:
            chosen.append(one)
            wanted = (wanted - one.replaces) | one.reads
    return chosen[::-1], wanted
