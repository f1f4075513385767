"""Read the known mistakes. Each one edits `right.py` and has a sentence for the reader.

`mistakes/step_N.txt` holds blocks separated by blank lines. A block has a sentence, `-` lines with
text that occurs exactly once in the source, and `+` lines that replace this text. A sentence that
begins with "right, " marks an alternative solution, in which every mistake is also tried. "same, "
marks a rewritten solution. Some mistakes edit lines that only the rewritten solution contains.
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
    """Hold edits to `right.py`, and the sentence that describes them."""

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
    """Return the patches for a step, in the order in which its file lists them."""
    return parse((FOLDER / "mistakes" / f"step_{step}.txt").read_text(encoding="utf-8"))


def parse(text: str) -> list[Patch]:
    """Parse the text of a mistakes file and return its patches."""
    strip = lambda lines: "\n".join(line[1:] for line in lines.splitlines())
    patches = []
    for block in text.strip().split("\n\n"):
        sentence = " ".join(line for line in block.splitlines() if line[0] not in "-+")
        edits = re.findall(r"((?:^-.*\n?)+)((?:^\+.*\n?)+)", block, re.MULTILINE)
        patches.append(Patch(sentence, tuple((strip(old), strip(new)) for old, new in edits)))
    return patches


def select(kind: str, *steps: int) -> list[Patch]:
    """Return the patches of one kind ("mistake", "right", or "same") for the given steps."""
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
    """Return the named function from the patched `right.py`, or None if a patch doesn't apply.

    Each call executes the source again, so the returned functions share no state.

    >>> function("rotate", select("mistake", 1)[0])(1, 0, 1.5)
    (1, 0)
    """
    code = _compiled(*patches)
    namespace: dict[str, Any] = {"__name__": "rope.book.judge.right"}
    if code is None:
        return None
    exec(code, namespace)
    return namespace[name]
