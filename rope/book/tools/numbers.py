"""Find the numbers that a chapter claims and the numbers that its cells print.

Each number in a lead, verdict, caption, check label, or summary must appear in a cell's output or
code, rounded to the claimed digits. A fraction may appear as a percentage, and vice versa. The
rules skip formulas, numbers spelled as words, and integers up to 12.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from rope.book.tools.minutes import unfolded

SMALLEST = 13  # the smallest integer that is checked
# Skip formulas, code, link targets, reading times, and reference and version numbers.
SKIPPED = re.compile(
    r"^```.*?^```|\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|(?<=\])\([^)]*\)|^\*\*Time:.*?$"
    r"|\b(?:equation|figure|page|release|section|transformers|PyTorch|Python|Triton) [\d.]+",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
CLAIMED = re.compile(r"(?<![\w.,^/-])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w^]|[.,]\d)")
SUMMARY = re.compile(r"^## (?:Summary|Three .*)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"(?<![\w.])\d[\d_,]*(?:\.\d+)?(?:e[+-]?\d{1,2})?(?!\w)")


def decimals(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, Decimal]]:
    """Yield each number that a pattern matches, as text and as a Decimal."""
    for match in pattern.finditer(text):
        yield match[0], Decimal(re.sub(r"[,_](?=\d)|[,_]$", "", match[0]))


def claimed(text: str) -> Iterator[tuple[str, Decimal]]:
    """Yield each number in Markdown that a cell must print, as text and as a Decimal.

    >>> [number for number, _ in claimed("Of 16,384 scores $12.5$ lie 3 to 0.40 apart.")]
    ['16,384', '0.40']
    """
    for number, value in decimals(CLAIMED, SKIPPED.sub(" ", text)):
        if "." in number or value >= SMALLEST:
            yield number, value


def printed(notebook: dict[str, Any]) -> list[Decimal]:
    """Return the distinct numbers in a notebook's outputs and code, except in check labels."""
    texts = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            texts.append(re.sub(r"^# ✓.*", "", cell["source"]))
            for output in cell["outputs"]:
                texts += [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
    return [*{value for _, value in decimals(PRINTED, "\n".join(texts))}]


def is_printed(number: str, value: Decimal, numbers: list[Decimal]) -> bool:
    """Return True if any of `numbers` rounds to this number; 97% may be printed as 0.97.

    >>> [is_printed("0.41", Decimal("0.41"), [Decimal(x)]) for x in ("0.4123", "41.2", "0.42")]
    [True, True, False]
    """
    half = Decimal(1).scaleb(-len(number.partition(".")[2])) / 2
    bounds = [((value - half) * unit, (value + half) * unit) for unit in (Decimal("0.01"), 1, 100)]
    return any(low <= other <= high for low, high in bounds for other in numbers)


def claims(notebook: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (cell's name, text) for each lead, verdict, caption, check label, and summary."""
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
        for summary in SUMMARY.findall(text):
            yield place, summary
