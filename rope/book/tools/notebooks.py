"""Check the chapters' notebooks for the book's own rules, which nbval doesn't know.

nbval compares only stored outputs. A notebook without outputs passes, and so does a cell with a tag
that skips the comparison. Here, each rule yields one sentence per fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from rope.book.tools.minutes import CHECK, ROOT, read
from rope.book.tools.numbers import claimed, claims, is_printed, printed

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
EXERCISE = re.compile(r"^:::\{exercise\}.*\n:label: (\S+)$", re.MULTILINE)
HIDDEN_SOLUTION = re.compile(r"^:::\{solution-start\} (\S+)\n:class: dropdown$", re.MULTILINE)

Cell = dict[str, Any]
Notebook = dict[str, Any]  # as nbformat reads it: each source is one string


def code_cells(notebook: Notebook) -> list[Cell]:
    """Return a notebook's code cells in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def named(notebook: Notebook) -> Iterator[tuple[str, Cell]]:
    """Yield (name, cell) per code cell. A name contains the cell's number, id, and first line."""
    for number, cell in enumerate(code_cells(notebook), start=1):
        first = next(iter(cell["source"].strip().splitlines()), "(empty)")
        yield f"code cell {number} (id {cell.get('id')}, `{first}`)", cell


def texts(cell: Cell) -> Iterator[str]:
    """Yield the text in a code cell's outputs; skip bitmaps."""
    for output in cell["outputs"]:
        yield output.get("text", "")
        for kind, value in output.get("data", {}).items():
            if kind not in ("image/png", "image/jpeg"):
                yield str(value)


def marks(cell: Cell) -> set[str]:
    """Return a cell's tags and the comments that nbval reads as tags."""
    comments = re.findall(r"^\s*#+\s*((?:NBVAL|PYTEST)_[A-Z_]+)\s*$", cell["source"], re.MULTILINE)
    return {*cell["metadata"].get("tags", [])} | {c.lower().replace("_", "-") for c in comments}


def check_label(cell: Cell) -> str:
    """Return the claim in a check cell's first line, or "" for any other cell."""
    match = CHECK.match(cell["source"])
    return match[1] if match else ""


def is_set_up(cell: Cell) -> bool:
    """Return True for a cell that pages omit: a silent fold without a title or about imports."""
    title = cell["metadata"].get("mystnb", {}).get("code_prompt_show", "import")
    silent = "hide-input" in marks(cell) and not (cell["outputs"] or check_label(cell))
    return silent and "import" in title


def runs(name: str, notebook: Notebook) -> Iterator[str]:
    """Require that each code cell was run exactly once, in order, in a new kernel."""
    counts = [cell.get("execution_count") for cell in code_cells(notebook)]
    if counts != [*range(1, len(counts) + 1)]:
        yield f"the execution counts are {counts}; run every code cell once, in order"


def errors(name: str, notebook: Notebook) -> Iterator[str]:
    """Require that no output is an error or stderr text, and that no tag permits an error."""
    for cell_name, cell in named(notebook):
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                yield f"{cell_name} raised an exception: {output['ename']}: {output['evalue']}"
            if output.get("name") == "stderr":
                yield f"{cell_name} wrote to stderr: {output['text'][:200]}"
        for tag in sorted(marks(cell) & FORBIDDEN):
            yield f"{cell_name} has the tag {tag}; remove it, because no cell may have it"


def ignored(name: str, notebook: Notebook) -> Iterator[str]:
    """Require that cells with ignored outputs are few and that each contains an assertion."""
    total = len(code_cells(notebook))
    cells = [(cell_name, cell) for cell_name, cell in named(notebook) if marks(cell) & IGNORED]
    for cell_name, cell in cells:
        if not ASSERTS.search(cell["source"]):
            yield f"{cell_name} has an ignored output, so it must assert something"
    if len(cells) > MOST_IGNORED * total:
        yield f"{len(cells)} of {total} code cells have ignored outputs; at most 10% may have them"


def paths(name: str, notebook: Notebook) -> Iterator[str]:
    """Require that no source or output reveals the machine on which the notebook ran."""
    for cell in notebook["cells"]:
        if path := PATHS.search(cell["source"]):
            yield f"cell {cell.get('id')} contains a path that only one machine has: {path[0]}"
    for cell_name, cell in named(notebook):
        for text in texts(cell):
            if machine := PATHS.search(text) or MACHINES.search(text):
                yield f"{cell_name} printed text that reveals the machine: {machine[0]}"


def first_cell(name: str, notebook: Notebook) -> Iterator[str]:
    """Require that the first code cell is that of intro.ipynb, is folded, and prints nothing."""
    cell, (front, *_) = code_cells(notebook)[0], code_cells(read(ROOT / "chapters/intro.ipynb"))
    if cell["source"] != front["source"]:
        yield "the first code cell differs from the one in intro.ipynb; copy that cell"
    if cell["outputs"]:
        yield "the first code cell must not print anything"
    if "hide-input" not in marks(cell):
        yield "the first code cell lacks the tag hide-input"


def lengths(name: str, notebook: Notebook) -> Iterator[str]:
    """Require at most 12 lines per code cell, or 40 if the cell is folded."""
    for cell_name, cell in named(notebook):
        lines = len(cell["source"].splitlines())
        limit = LONGEST_HIDDEN_CELL if marks(cell) & HIDDEN else LONGEST_CELL
        if lines > limit:
            yield f"{cell_name} has {lines} lines; shorten it to at most {limit}"


def exercises(name: str, notebook: Notebook) -> Iterator[str]:
    """Require at least three exercises, each with a label and a folded solution that was run."""
    labels: list[str] = []
    solved = set()
    current: list[str] = []  # the label of the exercise that the current solution solves
    for cell in notebook["cells"]:
        text = cell["source"]
        if cell["cell_type"] == "code":
            if cell.get("execution_count") and text.strip():
                solved.update(current)
            continue
        labels_here = EXERCISE.findall(text)
        labels += labels_here
        if len(labels_here) < text.count("{exercise}"):
            yield f"cell {cell.get('id')} has an exercise without a label; add `:label:`"
        if "{solution-" in text:
            current = HIDDEN_SOLUTION.findall(text)
    for label in labels:
        if label not in solved:
            yield f"exercise {label} has no solution with `:class: dropdown` and executed code"
    if name != FRONT_PAGE and len(labels) < FEWEST_EXERCISES:
        yield f"there are {len(labels)} exercises; a chapter needs at least {FEWEST_EXERCISES}"


def figures(name: str, notebook: Notebook) -> Iterator[str]:
    """Require a caption for every figure. The browser tests require its text alternative."""
    for cell_name, cell in named(notebook):
        kinds = {kind for output in cell["outputs"] for kind in output.get("data", {})}
        drawn = any(kind.startswith(("image/", "application/vnd.vega")) for kind in kinds)
        figure = cell["metadata"].get("mystnb", {}).get("figure", {})
        if drawn and not figure.get("caption", "").strip():
            yield f"{cell_name}: add mystnb.figure.caption to the cell's metadata"


def checks(name: str, notebook: Notebook) -> Iterator[str]:
    """Require that each check cell is labeled and folded, asserts something, and prints nothing."""
    for cell_name, cell in named(notebook):
        if "check" not in marks(cell):
            if check_label(cell):
                yield f"{cell_name} has a check's label but lacks the tag check"
            continue
        if not check_label(cell):
            yield f"{cell_name}: the first line must be `# ✓ ` and a claim of 12 to 200 characters"
        folded = cell["metadata"].get("jupyter", {}).get("source_hidden")
        if "hide-input" not in marks(cell) or not folded:
            yield f"{cell_name} is a check; fold it with hide-input and source_hidden"
        if cell["outputs"] or not ASSERTS.search(cell["source"]):
            yield f"{cell_name} is a check; it must assert something and print nothing"


def numbers(name: str, notebook: Notebook) -> Iterator[str]:
    """Require that cells print every number in leads, verdicts, captions, labels, and summaries."""
    known = printed(notebook)
    for place, text in claims(notebook):
        for number, value in claimed(text):
            if not is_printed(number, value, known):
                yield f"no cell prints {number}, which {place} claims: {text.strip()[:70]}"


RULES: dict[str, Callable[[str, Notebook], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        runs, errors, ignored, paths, first_cell, lengths, exercises, figures, checks, numbers,
    )
}  # fmt: skip
