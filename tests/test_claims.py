"""Test that every claim on the claims page has a verdict and a cell that asserts the claim."""

import json
import re
from pathlib import Path

import pytest

CHAPTERS = Path(__file__).parents[1] / "chapters"
COUNTS = {"W": 6, "E": 8, "D": 9, "M": 8, "P": 8, "I": 6, "R": 4, "L": 5, "A": 4}
IDS = [f"{letter}{n}" for letter, count in COUNTS.items() for n in range(1, count + 1)]
VERDICTS = (
    "proved symbolically",
    "verified numerically",
    "measured",
    "true only with a condition",
    "false",
    "open",
)
ASSERTS = ("assert", "prove_equal(", "pytest.raises(")
EXACT = ("prove_equal(", "sp.expand(", "sp.Poly(")


def rows() -> dict[str, tuple[str, str]]:
    """Return the verdict and the link target of each row on the claims page."""
    text = (CHAPTERS / "claims.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| \[(\w\d)\]\(#([\w-]+)\) \| .* \| (.*) \|$", text, re.M)
    assert len(found) == len({claim for claim, _, _ in found}), "a claim has two rows"
    return {claim: (verdict, target) for claim, target, verdict in found}


def cells_under(target: str) -> list[dict]:
    """Return the cells from the anchor to the next heading of the same or a higher level."""
    sections = []
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for start, cell in enumerate(cells):
            text = "".join(cell["source"])
            if cell["cell_type"] == "markdown" and f"({target})=" in text:
                sections.append((cells[start:], text.split(f"({target})=", 1)[1]))
    assert len(sections) == 1, f"{target} must occur once, not {len(sections)} times"
    cells, text = sections[0]
    opening = re.match(r"\s*(?:\([\w-]+\)=\s*)*(#+) ", text)
    level = len(opening[1]) if opening else 6
    taken = [cells[0]]
    for cell in cells[1:]:
        heading = re.search(r"^(#+) ", "".join(cell["source"]), re.M)
        if cell["cell_type"] == "markdown" and heading and len(heading[1]) <= level:
            break
        taken.append(cell)
    return taken


@pytest.mark.parametrize("claim", IDS)
def test_a_claim_has_a_verdict_and_a_cell_that_asserts(claim):
    verdict, target = rows()[claim]
    assert verdict.startswith(VERDICTS), f"unknown verdict: {verdict!r}"
    assert target == f"claim-{claim.lower()}"
    code = [cell for cell in cells_under(target) if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in code]
    assert any(word in source for source in sources for word in ASSERTS)
    assert all(cell["execution_count"] for cell in code), "a cell was never run"
    if "proved symbolically" in verdict:
        assert any(word in source for source in sources for word in EXACT), (
            "no symbolic proof in a cell"
        )


def test_each_claim_has_one_row():
    assert sorted(rows()) == sorted(IDS)
