"""The page of errata: each entry is dated, names a page, and names a check that is there."""

import json
import re
from datetime import datetime
from pathlib import Path

import pytest

import rope
from rope.book.tools.notebooks import ASSERTS, claim

ROOT = Path(__file__).parents[1]
CHAPTERS = ROOT / "chapters"
TEXT = (CHAPTERS / "errata.md").read_text(encoding="utf-8")
ENTRY = re.compile(
    r"### .+\n\n- \*Said\* (?P<said>.+)\n- \*Right:\* .+\n- \*Held by\* (?P<held>.+)\n*"
)
LINK = re.compile(r"\[[^\]]+\]\((\w+)\.ipynb\)")
SECTIONS = re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", TEXT, re.M)
ENTRIES = {
    entry.partition("\n")[0]: entry
    for _, text in SECTIONS
    for entry in re.split(r"^(?=### )", text, flags=re.M)[1:]
}


def cells(chapter):
    """The cells of a chapter, each with its text in one string."""
    text = (CHAPTERS / f"{chapter}.ipynb").read_text(encoding="utf-8")
    return [{**cell, "source": "".join(cell["source"])} for cell in json.loads(text)["cells"]]


def test_the_dates_are_dates_the_newest_first():
    dates = [datetime.strptime(date, "Corrected on %d %B %Y") for date, _ in SECTIONS]
    assert dates == sorted(set(dates), reverse=True)
    assert len(ENTRIES) == TEXT.count("\n### ") >= 20


@pytest.mark.parametrize("title", ENTRIES)
def test_a_correction_names_a_check_that_is_there(title):
    """And the chapter no longer says what it said."""
    entry = ENTRY.fullmatch(ENTRIES[title])
    assert entry, "it has not a title, what was said, what is right and what holds it"
    (said_in, *_), held_in = LINK.findall(entry["said"]), LINK.findall(entry["held"])
    prose = "\n".join(cell["source"] for cell in cells(said_in) if cell["cell_type"] == "markdown")
    for quoted in re.findall(r'"([^"]+)"', entry["said"]):
        assert quoted.strip(".") not in prose
    checks = re.findall(r"`([^`]+)`", entry["held"])
    assert checks, "no check holds it"
    for check in checks:
        if check.startswith("✓ "):
            claims = {
                claim(cell): cell["source"] for cell in cells(held_in[0] if held_in else said_in)
            }
            assert ASSERTS.search(claims[check])
        else:
            path, _, name = check.partition("::")
            assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_the_page_of_changes_has_every_version_and_the_newest_is_this_one():
    text = (CHAPTERS / "changelog.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## Version (\S+)$", text, re.M)
    assert versions[0] == rope.__version__ and versions[-1] == "0.1.0"
    assert versions == sorted(versions, key=lambda v: [*map(int, v.split("."))], reverse=True)
