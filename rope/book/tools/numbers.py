"""The numbers that a chapter claims, and those that its cells print.

A reader who carries a number away from a lead, a verdict, a caption, a tick or a summary must find
it in the output or the code of a cell: to the digits that are claimed, as a share or as per cent.
Words for numbers and whole numbers up to twelve are counted in the text; formulas are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from rope.book.tools.minutes import unfolded

SMALLEST = 13
# What is not read: formulas, code, the targets of links; references and releases by number.
UNREAD = re.compile(
    r"^```.*?^```|\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|(?<=\])\([^)]*\)|^\*\*Time:.*?$"
    r"|\b(?:equation|figure|page|release|section|transformers|PyTorch|Python|Triton) [\d.]+",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
CLAIMED = re.compile(r"(?<![\w.,^/-])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w^]|[.,]\d)")
PRINTED = re.compile(r"(?<![\w.])\d[\d_,]*(?:\.\d+)?(?:e[+-]?\d{1,2})?(?!\w)")


def decimals(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, Decimal]]:
    """Each number that a pattern finds, as it stands and as a number."""
    for found in pattern.finditer(text):
        yield found[0], Decimal(re.sub(r"[,_](?=\d)|[,_]$", "", found[0]))


def claimed(text: str) -> Iterator[tuple[str, Decimal]]:
    """The numbers of a piece of Markdown that need a cell.

    >>> [number for number, _ in claimed("Of 16,384 scores $12.5$ lie 3 to 0.40 apart.")]
    ['16,384', '0.40']
    """
    for number, value in decimals(CLAIMED, UNREAD.sub(" ", text)):
        if "." in number or value >= SMALLEST:
            yield number, value


def printed(notebook: dict[str, Any]) -> list[Decimal]:
    """The numbers in the outputs and the code of a notebook, ticks' sentences apart."""
    texts = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            texts.append(re.sub(r"^# ✓.*", "", cell["source"]))
            for output in cell["outputs"]:
                shown = output.get("data", {})
                texts += [output.get("text", ""), shown.get("text/plain", "")]
    return [*{value for _, value in decimals(PRINTED, "\n".join(texts))}]


def stands(number: str, value: Decimal, among: list[Decimal]) -> bool:
    """Whether a number is one of those, rounded to its own digits; 97 % may stand as 0.97.

    >>> [stands("0.41", Decimal("0.41"), [Decimal(x)]) for x in ("0.4123", "41.2", "0.42")]
    [True, True, False]
    """
    half = Decimal(1).scaleb(-len(number.partition(".")[2])) / 2
    bounds = [((value - half) * unit, (value + half) * unit) for unit in (Decimal("0.01"), 1, 100)]
    return any(low <= other <= high for low, high in bounds for other in among)


def claims(notebook: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What a reader carries away, each with the cell it is in."""
    for number, cell in enumerate(notebook["cells"]):
        place = f"cell {cell.get('id')}"
        if cell["cell_type"] == "code":
            first = cell["source"].partition("\n")[0]
            yield place, first if first.startswith("# ✓") else ""
            yield place, cell["metadata"].get("mystnb", {}).get("figure", {}).get("caption", "")
            continue
        text = "\n".join(unfolded(cell["source"]))
        if number == 0:
            yield place, text.partition(":::{admonition}")[0]
        yield place, "\n".join(re.findall(r"^\*\*.*", text, re.MULTILINE))
        for summary in re.findall(r"^## Summary\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
            yield place, summary
