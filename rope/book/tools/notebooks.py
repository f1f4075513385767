"""What a notebook of this book must be before nbval's verdict on it means anything.

nbval compares a cell that was run, and only that one: a stripped notebook passes, and so does a
cell that asks to be ignored. Each rule yields a sentence per fault, with the cell it is in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from rope.book.tools.execute import METADATA
from rope.book.tools.minutes import TICK, limits, visible
from rope.book.tools.numbers import claimed, claims, printed, stands
from rope.book.tools.repository import IN_CELL, first_cell_source
from rope.book.tools.slicing import statements

LONGEST_CELL = 12
LONGEST_HIDDEN_CELL = 40
HIDDEN = {"hide-input", "hide-cell", "remove-input"}
FEWEST_EXERCISES = 3
MOST_IGNORED = 0.1
FRONT_PAGE = "intro"

IGNORED = {"nbval-ignore-output", "pytest-validate-ignore-output"}
FORBIDDEN = {"nbval-skip", "raises-exception", "nbval-raises-exception"}
ASSERTS = re.compile(
    r"^\s*(?:assert\b|(?:\w+\.)*(?:prove_equal|assert_close|assert_allclose)\()", re.MULTILINE
)
PATHS = re.compile(
    r"(?<![\w.])/(?:home|Users|tmp|root|opt|mnt|content|private|var/folders)/"
    r"|\b[A-Z]:\\+(?:Users|Windows|Temp|Program)"
)
MACHINES = re.compile(
    r"object at 0x[0-9a-f]+|\bcuda:\d|\bNVIDIA\b|GeForce|\bTesla\b|Xeon|\bEPYC\b|Ryzen|Apple M\d"
)
GOALS = re.compile(r"^:::\{admonition\}.*\n:class: goals$", re.MULTILINE)
EXERCISE = re.compile(r"^:::\{exercise\}.*\n:label: (\S+)$", re.MULTILINE)
HIDDEN_SOLUTION = re.compile(r"^:::\{solution-start\} (\S+)\n:class: dropdown$", re.MULTILINE)

Cell = dict[str, Any]
Notebook = dict[str, Any]  # as nbformat reads it: each text is one string


def code_cells(notebook: Notebook) -> list[Cell]:
    """The code cells, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def named(notebook: Notebook) -> Iterator[tuple[str, Cell]]:
    """Each code cell, and before it what messages call it: its number, its id, its first line."""
    for number, cell in enumerate(code_cells(notebook), start=1):
        first = next(iter(cell["source"].strip().splitlines()), "(empty)")
        yield f"code cell {number} (id {cell.get('id')}, `{first}`)", cell


def prose(notebook: Notebook) -> list[str]:
    """The text of each cell that is no code."""
    return [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown"]


def texts(cell: Cell) -> Iterator[str]:
    """What a code cell's outputs say, but for the bytes of a bitmap."""
    for output in cell["outputs"]:
        yield output.get("text", "")
        for kind, value in output.get("data", {}).items():
            if kind not in ("image/png", "image/jpeg"):
                yield str(value)


def marks(cell: Cell) -> set[str]:
    """The tags of a cell and the comments that nbval reads as tags."""
    comments = re.findall(r"^\s*#+\s*((?:NBVAL|PYTEST)_[A-Z_]+)\s*$", cell["source"], re.MULTILINE)
    return {*cell["metadata"].get("tags", [])} | {c.lower().replace("_", "-") for c in comments}


def runs(name: str, notebook: Notebook) -> Iterator[str]:
    """Every code cell was run, once and in order, from a new kernel."""
    counts = [cell.get("execution_count") for cell in code_cells(notebook)]
    if counts != [*range(1, len(counts) + 1)]:
        yield f"the cells were not all run, once and in order: counts {counts}"


def errors(name: str, notebook: Notebook) -> Iterator[str]:
    """No output is an error or went to stderr, and no tag expects one."""
    for cell_name, cell in named(notebook):
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                yield f"{cell_name} holds an error: {output['ename']}: {output['evalue']}"
            if output.get("name") == "stderr":
                yield f"{cell_name} wrote to stderr: {output['text'][:200]}"
        for tag in sorted(marks(cell) & FORBIDDEN):
            yield f"{cell_name} is tagged {tag}, which no cell may be"


def ignored(name: str, notebook: Notebook) -> Iterator[str]:
    """A cell whose output is not compared asserts something, and few cells are such."""
    total = len(code_cells(notebook))
    cells = [(cell_name, cell) for cell_name, cell in named(notebook) if marks(cell) & IGNORED]
    for cell_name, cell in cells:
        if not ASSERTS.search(cell["source"]):
            yield f"{cell_name} is not compared and asserts nothing"
    if len(cells) > MOST_IGNORED * total:
        yield f"{len(cells)} of {total} code cells are not compared; at most one in ten"


def paths(name: str, notebook: Notebook) -> Iterator[str]:
    """Nothing names the machine it was run on."""
    for cell in notebook["cells"]:
        if path := PATHS.search(cell["source"]):
            yield f"cell {cell.get('id')} names a machine's path: {path[0]}"
    for cell_name, cell in named(notebook):
        for text in texts(cell):
            if machine := PATHS.search(text) or MACHINES.search(text):
                yield f"{cell_name} printed what only this machine has: {machine[0]}"


def first_cell(name: str, notebook: Notebook) -> Iterator[str]:
    """The first code cell is the book's, letter by letter, folded, and prints nothing."""
    cell = code_cells(notebook)[0]
    address = IN_CELL.search(cell["source"])
    if address is None or cell["source"] != first_cell_source(*address.groups()):
        yield "the first code cell is not rope.book.tools.repository.first_cell_source(...)"
    if cell["outputs"]:
        yield "the first code cell printed something"
    if "hide-input" not in marks(cell):
        yield "the first code cell is not tagged hide-input"


def goals(name: str, notebook: Notebook) -> Iterator[str]:
    """One of the first four cells holds the goals, with the minutes and the prerequisites."""
    opening = (cell["source"] for cell in notebook["cells"][:4])
    box = next(filter(GOALS.search, opening), "")
    if not box:
        yield "none of the first four cells holds a `:::{admonition}` of class `goals`"
    if not re.search(r"(minutes|hours)\b", box):
        yield "the box of goals does not say how many minutes"
    if not re.search(r"(?i)prerequisites?\b", box):
        yield "the box of goals does not say the prerequisites"


def lengths(name: str, notebook: Notebook) -> Iterator[str]:
    """Code on the page is short; code that is folded away may be longer."""
    for cell_name, cell in named(notebook):
        lines = len(cell["source"].splitlines())
        limit = LONGEST_HIDDEN_CELL if marks(cell) & HIDDEN else LONGEST_CELL
        if lines > limit:
            yield f"{cell_name} has {lines} lines; at most {limit}"


def words(name: str, notebook: Notebook) -> Iterator[str]:
    """What a chapter shows unfolded is short."""
    seen, (most_words, most_lines) = visible(notebook), limits(name)
    if seen.words + seen.exercises > most_words:
        yield f"it shows {seen.words + seen.exercises} words; at most {most_words}"
    if seen.lines > most_lines:
        yield f"it shows {seen.lines} lines of code; at most {most_lines}"


def exercises(name: str, notebook: Notebook) -> Iterator[str]:
    """At least three exercises, each with a label and a hidden solution that is itself executed."""
    asked: list[str] = []
    solved = set()
    inside: list[str] = []  # the exercises whose solution the cell is in: one, or none
    for cell in notebook["cells"]:
        text = cell["source"]
        if cell["cell_type"] == "code":
            if cell.get("execution_count") and text.strip():
                solved.update(inside)
            continue
        labels = EXERCISE.findall(text)
        asked += labels
        if len(labels) < text.count("{exercise}"):
            yield f"an exercise has no label (cell {cell.get('id')})"
        if "{solution-" in text:
            inside = HIDDEN_SOLUTION.findall(text)
    for label in asked:
        if label not in solved:
            yield f"exercise {label} has no solution-start of `:class: dropdown` with executed code"
    if name != FRONT_PAGE and len(asked) < FEWEST_EXERCISES:
        yield f"{len(asked)} exercises; at least {FEWEST_EXERCISES}"


def summary(name: str, notebook: Notebook) -> Iterator[str]:
    """A chapter has a section called Summary."""
    headings = (re.search(r"^#+ Summary\s*$", text, re.M) for text in prose(notebook))
    if name != FRONT_PAGE and not any(headings):
        yield "there is no heading called Summary"


def form(name: str, notebook: Notebook) -> Iterator[str]:
    """It is as `execute` stores it: an id for each cell, once, no times, no versions."""
    times = Counter(cell.get("id") for cell in notebook["cells"])
    for own, number in times.items():
        if number > 1 or not own:
            yield f"the id {own} stands {number} times; each cell must have one of its own"
    for cell in notebook["cells"]:
        if "execution" in cell["metadata"]:
            yield f"cell {cell.get('id')} holds times of execution"
    if notebook["metadata"] != METADATA:
        yield f"its metadata are not {METADATA}"


def figures(name: str, notebook: Notebook) -> Iterator[str]:
    """Every figure has a caption, and a text for those who do not see it."""
    for cell_name, cell in named(notebook):
        settings = cell["metadata"].get("mystnb", {})
        for output in cell["outputs"]:
            for kind, value in output.get("data", {}).items():
                if kind == "image/svg+xml":
                    title = re.search(r"<title>(.*?)</title>", value, re.DOTALL)
                    description = title[1] if title else ""
                elif kind.startswith("application/vnd.vega"):
                    description = value.get("description", "")
                elif kind.startswith("image/"):
                    description = settings.get("image", {}).get("alt", "")
                else:
                    continue
                if not description.strip():
                    yield f"{cell_name}: its {kind} has no text that says what it shows"
                if not settings.get("figure", {}).get("caption", "").strip():
                    yield f"{cell_name}: no mystnb.figure.caption in its metadata"


def claim(cell: Cell) -> str:
    """What a cell that only checks asserts: its first line, a comment; "" for other cells."""
    found = TICK.match(cell["source"])
    return found[1] if found else ""


def ticks(name: str, notebook: Notebook) -> Iterator[str]:
    """A cell that only checks is folded under the claim that it asserts, and prints nothing."""
    for cell_name, cell in named(notebook):
        if "check" not in marks(cell):
            if claim(cell):
                yield f"{cell_name} has a claim and no tag check"
            continue
        if not claim(cell):
            yield f"{cell_name}: its first line must be `# ✓ ` and 12 to 120 characters"
        folded = cell["metadata"].get("jupyter", {}).get("source_hidden")
        if "hide-input" not in marks(cell) or not folded:
            yield f"{cell_name} is a check and not folded, by hide-input and source_hidden"
        if cell["outputs"] or not ASSERTS.search(cell["source"]):
            yield f"{cell_name} is a check; it must assert, and print nothing"


def numbers(name: str, notebook: Notebook) -> Iterator[str]:
    """A number in a lead, a verdict, a caption, a claim or the summary is printed by a cell."""
    known = printed(notebook)
    for place, text in claims(notebook):
        for number, value in claimed(text):
            if not stands(number, value, known):
                yield f"{number} is printed by no cell ({place}: {text.strip()[:70]})"


def names(name: str, notebook: Notebook) -> Iterator[str]:
    """Who types the open cells misses no name that a tick or the code of a figure made last."""
    folded: dict[str, str] = {}
    for cell_name, cell in named(notebook):
        own: set[str] = set()
        for statement in statements(cell["source"]):
            for missed in () if HIDDEN & marks(cell) else folded.keys() & statement.reads - own:
                yield f"{cell_name} reads {missed}, which was made in {folded[missed]}"
            own |= statement.binds
        apart = "check" in marks(cell) or "figure" in cell["metadata"].get("mystnb", {})
        folded = {key: place for key, place in folded.items() if key not in own}
        folded |= dict.fromkeys(own if apart else (), cell_name)


RULES: dict[str, Callable[[str, Notebook], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        runs, errors, ignored, paths, first_cell, goals, lengths, words, exercises, summary, form,
        figures, ticks, numbers, names,
    )
}  # fmt: skip
