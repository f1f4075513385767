"""The page of errata: each entry is dated, names a page, and names a check that is there."""

import ast
import json
import re
from datetime import datetime
from pathlib import Path

import pytest

import rope
from rope.book.tools.notebooks import ASSERTS

ROOT = Path(__file__).parents[1]
CHAPTERS = ROOT / "chapters"
TEXT = (CHAPTERS / "errata.md").read_text(encoding="utf-8")
ENTRY = re.compile(
    r"### (?P<title>.+)\n\n- \*Said\* (?P<said>.+)\n- \*Right:\* (?P<right>.+)\n"
    r"- \*Held by\* (?P<held>.+)\n"
)
LINK = re.compile(r"\[[^\]]+\]\((\w+)\.ipynb\)")


def chapter(name):
    """The cells of a chapter, each with its text in one string."""
    cells = json.loads((CHAPTERS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in cells]


def ticks(name):
    """What a chapter's folded checks claim, and each one's code."""
    return {
        cell["metadata"].get("mystnb", {}).get("code_prompt_show"): cell["source"]
        for cell in chapter(name)
    }


def names_of(path):
    """The names of the tests in a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def faults(text):
    """What is wrong with the text of an entry."""
    entry = ENTRY.fullmatch(text)
    if entry is None:
        return ["it has not a title, what was said, what is right and what holds it"]
    found = []
    (said_in, *_), held_in = LINK.findall(entry["said"]) or [""], LINK.findall(entry["held"])
    if not (CHAPTERS / f"{said_in}.ipynb").exists():
        return ["it does not say where it was said"]
    prose = "\n".join(c["source"] for c in chapter(said_in) if c["cell_type"] == "markdown")
    for quoted in re.findall(r'"([^"]+)"', entry["said"]):
        if quoted.strip(".") in prose:
            found.append(f"{said_in} still says {quoted!r}")
    checks = re.findall(r"`([^`]+)`", entry["held"])
    if not checks:
        found.append("no check holds it")
    for check in checks:
        path, _, name = check.partition("::")
        if check.startswith("✓ "):
            code = ticks(held_in[0] if held_in else said_in).get(check)
            if code is None or not ASSERTS.search(code):
                found.append(f"no such check: {check}")
        elif not (ROOT / path).is_file() or name not in names_of(path):
            found.append(f"no such test: {check}")
    return found


SECTIONS = re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", TEXT, re.M)
ENTRIES = {
    entry.partition("\n")[0]: entry.rstrip("\n") + "\n"
    for _, text in SECTIONS
    for entry in re.split(r"^(?=### )", text, flags=re.M)[1:]
}


def test_the_dates_are_dates_the_newest_first():
    dates = [datetime.strptime(date, "Corrected on %d %B %Y") for date, _ in SECTIONS]
    assert dates == sorted(set(dates), reverse=True)
    assert all(text.strip().startswith("### ") for _, text in SECTIONS)
    assert len(ENTRIES) == TEXT.count("\n### ") >= 20


@pytest.mark.parametrize("title", ENTRIES)
def test_a_correction_names_a_check_that_is_there(title):
    assert faults(ENTRIES[title]) == []


GOOD = """### The first token is right

- *Said* in [Two layouts](two_layouts.ipynb): "Because at position 0 no layout turns anything."
- *Right:* It attends to itself.
- *Held by* the same chapter: `{tick}`; and by `tests/test_claims.py::test_each_claim_has_one_row`
"""


@pytest.mark.parametrize(
    ("there", "worse", "said"),
    [
        ("", "", None),
        ("- *Right:* It attends to itself.\n", "", "it has not a title"),
        ("two_layouts.ipynb", "no_layouts.ipynb", "does not say where"),
        (
            "Because at position 0 no layout turns anything.",
            "Because the first token attends",
            "still says",
        ),
        ("; and by `tests", "; and by `testing", "no such test"),
        ("::test_each_claim", "::test_no_claim", "no such test"),
        ("✓ token 0", "✓ token 1", "no such check"),
        ("the same chapter", "[Properties](properties.ipynb)", "no such check"),
    ],
)
def test_what_an_entry_lacks_is_said(there, worse, said):
    good = GOOD.format(
        tick=next(tick for tick in ticks("two_layouts") if tick and "token 0" in tick)
    )
    assert there in good
    found = faults(good.replace(there, worse, 1))
    assert found == [] if said is None else any(said in fault for fault in found)


def test_the_page_of_changes_has_every_version_and_the_newest_is_this_one():
    text = (CHAPTERS / "changelog.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## Version (\S+)$", text, re.M)
    assert versions[0] == rope.__version__ and versions[-1] == "0.1.0"
    assert versions == sorted(versions, key=lambda v: [*map(int, v.split("."))], reverse=True)
