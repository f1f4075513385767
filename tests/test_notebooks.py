"""The rules for notebooks: every chapter keeps them; each rejects a notebook that does not."""

import copy
from pathlib import Path

import nbformat
import pytest

from rope.book.tools.execute import METADATA
from rope.book.tools.notebooks import RULES
from rope.book.tools.repository import first_cell_source
from rope.book.tools.words import words

CHAPTERS = sorted((Path(__file__).parents[1] / "chapters").glob("*.ipynb"))
NAME = "chapter"
MOST_WORDS = 3000
# The front page is to be shorter.
OWN_LIMITS = {
    "intro": 1000,
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_keeps_the_rule(path, rule):
    notebook = nbformat.read(path, as_version=4)
    faults = RULES[rule](path.stem, notebook)
    assert not faults, f"{path.name}, rule {rule!r}:\n  " + "\n  ".join(faults)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_is_short(path):
    assert words(path) <= OWN_LIMITS.get(path.stem, MOST_WORDS)


def markdown(text):
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def code(text, *tags, outputs=()):
    metadata = {"tags": [*tags]} if tags else {}
    return {"cell_type": "code", "metadata": metadata, "outputs": [*outputs], "source": text}


def printed(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def shown(kind, value):
    return {"output_type": "display_data", "metadata": {}, "data": {kind: value}}


EXERCISE = (
    ":::{exercise}\n:label: ex-N\n\nCount.\n:::\n\n:::{solution-start} ex-N\n:class: dropdown\n:::"
)
GOALS = (
    ":::{admonition} What you will be able to do\n:class: goals\n\n- Count.\n\n"
    "**Time:** about 5 minutes. **Prerequisites:** none.\n:::"
)
SVG = "<svg><title>A circle.</title></svg>"


FOLDED = {"source_hidden": True}


def prompts(claim):
    return {"code_prompt_show": claim, "code_prompt_hide": claim}


@pytest.fixture
def good():
    """A small notebook that keeps every rule."""
    figure = code("draw()", "remove-input", outputs=[shown("image/svg+xml", SVG)])
    figure["metadata"]["mystnb"] = {"figure": {"caption": "A circle.", "name": "fig-circle"}}
    tick = code("assert 6 * 7 == 42", "check", "hide-input")
    tick["metadata"] |= {"mystnb": prompts("✓ six times seven is 42"), "jupyter": FOLDED}
    cells = [
        markdown("# Title"),
        code(first_cell_source("", "v0.1.0"), "hide-input"),
        markdown(GOALS),
        figure,
        *(code(f"print({i})", outputs=[printed(f"{i}\n")]) for i in range(6)),
        tick,
        markdown("## Summary\n\nWe counted."),
    ]
    for number in "123":
        cells += [
            markdown(EXERCISE.replace("N", number)),
            code("assert True"),
            markdown(":::{solution-end}\n:::"),
        ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    for count, cell in enumerate((c for c in cells if c["cell_type"] == "code"), start=1):
        cell["execution_count"] = count
    metadata = copy.deepcopy(METADATA)
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


FIRST, BOX, FIGURE, CODE, TICK, SUMMARY, ASKED, SOLUTION, LAST = 1, 2, 3, 4, 10, 11, 12, 13, 19


@pytest.mark.parametrize("rule", RULES)
def test_good_notebook_keeps_the_rule(good, rule):
    assert RULES[rule](NAME, good) == []


def put(**changes):
    """A change of the good notebook: `cell` is where, the rest replaces what it holds."""
    where = changes.pop("cell")
    return lambda notebook: notebook["cells"][where].update(copy.deepcopy(changes))


def replace(where, old, new):
    def change(notebook):
        cell = notebook["cells"][where]
        assert old in cell["source"]
        cell["source"] = cell["source"].replace(old, new)

    return change


def tag(where, *tags):
    return lambda notebook: notebook["cells"][where]["metadata"].update(tags=[*tags])


VEGA = "application/vnd.vegalite.v5+json"
BAD = {
    "never run": ("runs", put(cell=CODE, execution_count=None)),
    "run out of order": ("runs", put(cell=CODE, execution_count=9)),
    "stored error": (
        "errors",
        put(cell=CODE, outputs=[{"output_type": "error", "ename": "E", "evalue": "e"}]),
    ),
    "stored stderr": ("errors", put(cell=CODE, outputs=[printed("careful", "stderr")])),
    "expects an error": ("errors", tag(CODE, "raises-exception")),
    "skipped": ("errors", tag(CODE, "nbval-skip")),
    "skipped by a comment": ("errors", put(cell=CODE, source="# NBVAL_SKIP\nprint(0)")),
    "ignored without an assertion": ("ignored", tag(CODE, "nbval-ignore-output")),
    "ignored by a comment": ("ignored", put(cell=CODE, source="# NBVAL_IGNORE_OUTPUT\nprint(0)")),
    "ignored, asserting in a comment": (
        "ignored",
        put(cell=CODE, source="# NBVAL_IGNORE_OUTPUT\n# assert it"),
    ),
    "more than one in ten ignored": (
        "ignored",
        lambda notebook: [tag(at, "nbval-ignore-output")(notebook) for at in (SOLUTION, LAST)],
    ),
    "a home in the source": ("paths", put(cell=CODE, source="open('/home/someone/x')")),
    "a home in the prose": ("paths", put(cell=0, source="# Title\n\nSee /Users/someone.")),
    "a folder in an output": ("paths", put(cell=CODE, outputs=[printed("/tmp/x.py:3: oh\n")])),
    "a folder of Windows": ("paths", put(cell=CODE, outputs=[printed("C:\\Users\\me\n")])),
    "an address in memory": ("paths", put(cell=CODE, outputs=[printed("<A object at 0x7f00>")])),
    "a device": ("paths", put(cell=CODE, outputs=[shown("text/plain", "device='cuda:0'")])),
    "no first cell": ("first_cell", put(cell=FIRST, source="import rope")),
    "an altered first cell": ("first_cell", replace(FIRST, "import rope\n", "import rope  # !\n")),
    "a first cell that prints": ("first_cell", put(cell=FIRST, outputs=[printed("hello")])),
    "a first cell in full view": ("first_cell", tag(FIRST)),
    "no goals": ("goals", put(cell=BOX, source="Goals: count. 5 minutes. Prerequisites: none.")),
    "goals without minutes": ("goals", replace(BOX, "5 minutes", "short")),
    "goals without prerequisites": ("goals", replace(BOX, "Prerequisites", "Before")),
    "a long cell": ("lengths", put(cell=CODE, source="x = 1\n" * 13)),
    "a long hidden cell": ("lengths", put(cell=FIGURE, source="x = 1\n" * 41)),
    "two exercises": ("exercises", lambda notebook: notebook["cells"].pop(ASKED)),
    "an exercise without a label": ("exercises", replace(ASKED, ":label: ex-1\n", "")),
    "an exercise without a solution": (
        "exercises",
        replace(ASKED, "{solution-start} ex-1", "{note} x"),
    ),
    "a solution in full view": ("exercises", replace(ASKED, ":class: dropdown\n", "")),
    "a solution without code": ("exercises", put(cell=SOLUTION, cell_type="markdown")),
    "a solution that was not run": ("exercises", put(cell=SOLUTION, execution_count=None)),
    "a solution in one block": ("exercises", replace(ASKED, "{solution-start}", "{solution}")),
    "no summary": ("summary", replace(SUMMARY, "## Summary", "## The end")),
    "no id": ("form", put(cell=CODE, id=None)),
    "an id twice": ("form", put(cell=CODE, id="cell-3")),
    "times": ("form", lambda notebook: notebook["cells"][CODE]["metadata"].update(execution={})),
    "a version of Python": (
        "form",
        lambda notebook: notebook["metadata"]["language_info"].update(version="3.11.7"),
    ),
    "no caption": ("figures", lambda notebook: notebook["cells"][FIGURE]["metadata"].clear()),
    "an SVG without alt text": (
        "figures",
        put(cell=FIGURE, outputs=[shown("image/svg+xml", "<svg/>")]),
    ),
    "a chart without alt text": (
        "figures",
        put(cell=FIGURE, outputs=[shown(VEGA, {"mark": "line"})]),
    ),
    "a tick that says nothing": (
        "ticks",
        lambda notebook: notebook["cells"][TICK]["metadata"].update(mystnb=prompts("✓ checked")),
    ),
    "a claim without a tag": ("ticks", tag(TICK, "hide-input")),
    "a tick in full view": ("ticks", tag(TICK, "check")),
    "a tick open in JupyterLab": (
        "ticks",
        lambda notebook: notebook["cells"][TICK]["metadata"].pop("jupyter"),
    ),
    "a tick that asserts nothing": ("ticks", put(cell=TICK, source="6 * 7")),
    "a tick that prints": ("ticks", put(cell=TICK, outputs=[printed("42")])),
    "a PNG without alt text": ("figures", put(cell=FIGURE, outputs=[shown("image/png", "aa")])),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_notebook_is_rejected_by_its_rule(good, case):
    rule, spoil = BAD[case]
    spoil(good)
    assert RULES[rule](NAME, good), f"rule {rule!r} lets it pass: {case}"


def test_every_rule_is_tested():
    assert {rule for rule, _ in BAD.values()} == set(RULES)


def test_hidden_code_may_be_longer_and_an_ignored_cell_may_assert(good):
    put(cell=FIGURE, source="x = 1\n" * 40)(good)
    tag(SOLUTION, "nbval-ignore-output")(good)
    assert RULES["lengths"](NAME, good) == RULES["ignored"](NAME, good) == []


def test_front_page_has_no_exercises(good):
    del good["cells"][SUMMARY:]
    assert RULES["exercises"]("intro", good) == RULES["summary"]("intro", good) == []
