"""The rules for notebooks: every chapter keeps them; each rejects a chapter that does not."""

import re
from pathlib import Path

import pytest
from nbformat.v4 import reads as read  # which mends nothing: nbformat.read gives lost ids anew

from rope.book.tools import minutes
from rope.book.tools.notebooks import RULES

FOLDER = Path(__file__).parents[1] / "chapters"
CHAPTERS = sorted(FOLDER.glob("*.ipynb"))
# For each rule what a chapter's file holds, and what to put there once to break the rule.
SPOILT = {
    "runs": ('"execution_count": 2,', '"execution_count": null,'),
    "errors": ('"check",', '"nbval-skip",'),
    "ignored": ('"import cmath\\n"', '"# NBVAL_IGNORE_OUTPUT\\n", "# assert it\\n"'),
    "paths": ('"import cmath\\n"', "\"open('/home/someone/x')\\n\""),
    "first_cell": ('"import rope\\n"', '"import rope  # !\\n"'),
    "goals": ("minutes", "pages"),
    "lengths": ('"import cmath\\n",', '"import cmath\\n",' * 12),
    "words": ("State what it means", "means " * 3000),
    "exercises": ("{solution-start}", "{solution}"),
    "summary": ("## Summary", "## The end"),
    "form": ('"id": "68b0ff16"', '"id": "8aefb6a0"'),
    "figures": ('"caption": "', '"captions": "'),
    "numbers": ('"## Summary\\n"', '"## Summary\\n", "One in 7,919 is prime.\\n"'),
    "names": ('"assert change_of', '"cmath = 1\\n", "assert change_of'),
    "ticks": ('"source_hidden": true', '"source_hidden": false'),
}


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_keeps_the_rules(path, subtests):
    notebook = read(path.read_text(encoding="utf-8"))
    for name, rule in RULES.items():
        with subtests.test(rule=name):
            assert [*rule(path.stem, notebook)] == []


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_rejects_a_chapter_that_breaks_it(rule):
    text = (FOLDER / "rotation_in_two_dimensions.ipynb").read_text(encoding="utf-8")
    right, wrong = SPOILT[rule]
    assert right in text
    notebook = read(text.replace(right, wrong, 1))
    assert [*RULES[rule]("rotation_in_two_dimensions", notebook)]


def test_times_are_those_of_the_rule():
    """`python -m rope.book.tools.minutes` writes them."""
    for name, said in minutes.announced(FOLDER.parent).items():
        text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
        assert minutes.TIME.search(text)[0] == said, name


@pytest.mark.parametrize("part", [*minutes.chapters(FOLDER.parent)][:-1])
def test_a_stop_needs_those_before_it_and_a_side_road_the_road(part):
    parts = minutes.chapters(FOLDER.parent)
    road = next(iter(parts.values()))
    for name in parts[part]:
        text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
        box = re.search(r"\*\*Prerequisites:\*\*.*?\.[ \\]", text)[0]
        needed = re.findall(r"\((\w+)\.ipynb", box)
        before = road[: road.index(name)] if name in road else road
        assert set(needed) <= {*before}, name
