"""Test that every chapter follows the rules for notebooks."""

import re
from pathlib import Path

import pytest
from nbformat.v4 import reads as read  # unlike nbformat.read, adds no missing ids

from rope.book.tools import minutes
from rope.book.tools.notebooks import RULES

FOLDER = Path(__file__).parents[1] / "chapters"
CHAPTERS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_keeps_the_rules(path, subtests):
    notebook = read(path.read_text(encoding="utf-8"))
    for name, rule in RULES.items():
        with subtests.test(rule=name):
            assert [*rule(path.stem, notebook)] == []


def test_times_are_those_of_the_rule():
    """Check the reading times, which `python -m rope.book.tools.minutes` writes."""
    for name, sentence in minutes.announcements(FOLDER.parent).items():
        text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
        assert minutes.TIME.search(text)[0] == sentence, name
    assert not [path.stem for path in CHAPTERS if minutes.minutes(minutes.read(path)) > 40]


@pytest.mark.parametrize("part", [*minutes.chapters(FOLDER.parent)][:-1])
def test_core_chapters_need_earlier_ones_and_further_chapters_only_the_core(part):
    parts = minutes.chapters(FOLDER.parent)
    core = next(iter(parts.values()))
    for name in parts[part]:
        text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
        box = re.search(r"\*\*Prerequisites:\*\*.*?\.[ \\]", text)[0]
        needed = re.findall(r"\((\w+)\.ipynb", box)
        before = core[: core.index(name)] if name in core else core
        assert set(needed) <= {*before}, name
