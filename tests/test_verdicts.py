"""A page of evidence says "clear" where `rope.book.training.results.verdict` does.

Each sentence of such a page, and each tick, that compares (see COMPARES) stands in
`tests/verdicts/<page>.txt`, and under it what supports it:

    > xPos ends clearly below RoPE on 512.
    xpos     -0.049 ± 0.019, clear, 5 seeds
    ~ a reason why there is nothing to support: a definition, a theorem, another's result

A line without a mark is printed by a cell of that page, spaces aside. A sentence that says "not
clear" needs a line that does, one that says "clear" a line that says so without the "not".
"""

import json
import re
from pathlib import Path

import pytest
from scipy.stats import t as student

from rope.book.measured.intervals import EQUALS_CLEAR, T_95, false_clears, interval, verdict

CHAPTERS = Path(__file__).parents[1] / "chapters"
LEDGERS = sorted((Path(__file__).parent / "verdicts").glob("*.txt"))
COMPARES = re.compile(r"\b(clear|clearly|higher|lower|falls?|fell|levels? with|the same as)\b")
NOT_CLEAR = re.compile(r"\bnot (\w+ )?clear|\bno\w* (\w+ )*clear|\bneither .*\bclear")


def plain(text):
    return " ".join(text.split())


def sentences(page):
    """Those that compare, from text and ticks; formulas, tables and fenced options left out."""
    for cell in json.loads((CHAPTERS / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]:
        lines = "".join(cell["source"]).splitlines()
        if cell["cell_type"] == "code":
            lines = [line for line in lines[:1] if line.startswith("# ✓")]
        for line in map(plain, lines):
            if COMPARES.search(line) and not line.startswith((":", "|", "$")):
                yield line


def printed(page):
    notebook = json.loads((CHAPTERS / f"{page}.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            yield from map(plain, "".join(output.get("text", "")).splitlines())


def ledger(path):
    """Sentence by sentence the lines that support it."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("> "):
            found[plain(line[2:])] = support = []
        elif line:
            support.append(plain(line))
    return found


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.stem)
def test_each_comparison_is_one_that_the_page_prints(path):
    page, said = path.stem, ledger(path)
    assert set(said) == set(sentences(page))
    lines = set(printed(page))
    for sentence, support in said.items():
        assert support, sentence
        shown = [line for line in support if not line.startswith("~")]
        assert set(shown) <= lines, (sentence, set(shown) - lines)
        negative = [line for line in shown if "not clear" in line]
        positive = [line for line in shown if "clear" in line and line not in negative]
        if shown and re.search(r"\bclear", sentence):
            without = NOT_CLEAR.sub("", sentence)
            assert not NOT_CLEAR.search(sentence) or negative, sentence
            assert not re.search(r"\bclear", without) or positive, sentence


def test_the_rule_of_what_is_clear():
    """Of equals with normal differences about one in 200 is called clear, with five seeds."""
    assert verdict([1.0, 1.1, 1.2], [0.0, 0.0, 0.0]) == "+1.10 ± 0.25, clear, 3 seeds"
    assert verdict([2.0, 2.0], [2.0, 2.0]) == "+0.00 ± 0.00, not clear, 2 seeds"
    for count in range(2, 12):
        edge = 2 * student.ppf(0.975, count - 1)
        assert abs(T_95[count - 2] - edge / 2) < 0.001
        assert EQUALS_CLEAR[count - 2] == round(2 * student.sf(edge, count - 1), 4)
    assert "0.11" in false_clears(21, interval([0.0, 1.0, 2.0, 3.0, 4.0]).seeds)
