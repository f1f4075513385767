"""Do a chapter's own checks bite? With a fault planted in one of its cells, one of them must fail.

`page_faults/<chapter>.txt` holds the patches: a name, then what stands in one cell of the chapter
(-) and what replaces it (+).
"""

from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from patches import edits

from rope.book.tools import execute

ROOT = Path(__file__).parents[1]
FAULTS = [
    pytest.param(page.stem, lines, id=f"{page.stem}: {name}")
    for page in sorted(Path(__file__).with_name("page_faults").glob("*.txt"))
    for patch in page.read_text(encoding="utf-8").strip().split("\n\n")
    for name, *lines in [patch.splitlines()]
]


def planted(chapter: str, lines: list[str]) -> NotebookNode:
    """The chapter with the fault in it."""
    notebook = nbformat.read(ROOT / f"chapters/{chapter}.ipynb", as_version=4)
    for right, wrong in edits(lines):
        holding = [cell for cell in notebook.cells if right in cell.source]
        assert len(holding) == 1, f"{chapter} no longer holds {right!r} in one cell"
        holding[0].source = holding[0].source.replace(right, wrong)
    return notebook


@pytest.mark.parametrize(("chapter", "lines"), FAULTS)
def test_fault_can_be_planted(chapter, lines):
    planted(chapter, lines)


@pytest.mark.slow
@pytest.mark.parametrize(("chapter", "lines"), FAULTS)
def test_page_finds_its_own_fault(chapter, lines):
    """An assertion must find it; a changed number in an output would not count."""
    with pytest.raises(execute.NotebookError, match=r"AssertionError|NotEqual"):
        execute.execute(planted(chapter, lines), ROOT / "chapters", chapter)
