"""Read the known mistakes: each is an edit of `right.py` with the sentence a reader gets.

`mistakes/step_N.txt` holds blocks separated by blank lines. A block is a sentence, then `-` lines,
text that the source holds exactly once, and the `+` lines that replace it. A block `right, ...`
isn't a mistake but another right way, in which every mistake is tried, too; a block `same, ...` is
another text of the solution, for mistakes in lines that the chapter's text doesn't have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import CodeType
from typing import Any

Function = Callable[..., Any]
FOLDER = files("rope.book.judge")
SOURCE = (FOLDER / "right.py").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Patch:
    """Edits of `right.py`, and the sentence that names them."""

    sentence: str = ""
    edits: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        """Return "right" or "same" if the sentence begins with that word, else "mistake"."""
        first = self.sentence.partition(", ")[0]
        return first if first in ("right", "same") else "mistake"


CHAPTER = Patch()  # the solution as the chapter prints it


@cache
def read(step: int) -> list[Patch]:
    """Return the patches of a step in the order of its file."""
    return parse((FOLDER / "mistakes" / f"step_{step}.txt").read_text(encoding="utf-8"))


def parse(text: str) -> list[Patch]:
    """Return the patches of a text."""
    strip = lambda lines: "\n".join(line[1:] for line in lines.splitlines())
    patches = []
    for block in text.strip().split("\n\n"):
        sentence = " ".join(line for line in block.splitlines() if line[0] not in "-+")
        edits = re.findall(r"((?:^-.*\n?)+)((?:^\+.*\n?)+)", block, re.MULTILINE)
        patches.append(Patch(sentence, tuple((strip(old), strip(new)) for old, new in edits)))
    return patches


def select(kind: str, *steps: int) -> list[Patch]:
    """Return the patches of some steps that are a "mistake", another "right" way or "same" text."""
    return [patch for step in steps for patch in read(step) if patch.kind == kind]


@cache
def _compiled(*patches: Patch) -> CodeType | None:
    source = SOURCE
    for old, new in (edit for patch in patches for edit in patch.edits):
        if source.count(old) != 1:
            return None
        source = source.replace(old, new)
    return compile(source, "<judge>", "exec")


def function(name: str, *patches: Patch) -> Function | None:
    """Return a function of `right.py` after the patches, or None if one of them doesn't apply.

    The function is new, so it doesn't share what another one keeps between calls.

    >>> function("rotate", select("mistake", 1)[0])(1, 0, 1.5)
    (1, 0)
    """
    code = _compiled(*patches)
    namespace: dict[str, Any] = {"__name__": "rope.book.judge.right"}
    if code is None:
        return None
    exec(code, namespace)
    return namespace[name]
