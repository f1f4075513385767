"""Compute each chapter's reading time from the text, code, and figures that aren't folded.

`python -m rope.book.tools.minutes` writes each time into its chapter's box of learning goals. On
the front page, it writes the total times for the core and the further chapters. Folded text, folded
code, solutions, and exercises are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import yaml

ROOT = Path(__file__).parents[3]
WORDS_PER_MINUTE, SECONDS_PER_LINE = 90, 8
MINUTES_PER_THEOREM, MINUTES_PER_FIGURE = 2, 1  # in addition to the time for the words
THEOREM = re.compile(r"^:{3,}\{prf:(?:theorem|lemma|proposition|corollary)\}", re.MULTILINE)
FOLDED = {"check", "hide-input", "hide-cell", "remove-input"}
SOLUTION = re.compile(r"^:::\{solution-start\}.*?^:::\{solution-end\}\n:::$", re.M | re.S)
CHECK = re.compile(r"# (✓ .{12,200})\n")  # the label of a check cell
CELL = re.compile(r"^\[\[code (\d+)\]\]$", re.MULTILINE)
# Count each formula and each piece of inline code as one word.
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|^```\{math\}.*?^```|`[^`]+`", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[^\W_][\w’'-]*")
TIME = re.compile(r"(?<=\*\*Time:\*\* )[^.]*\.")


def minutes(notebook: dict[str, Any]) -> int:
    """Return a notebook's reading time in minutes. Each cell's source must be one string."""
    cells = notebook["cells"]
    whole = "\n".join(
        cell["source"] if cell["cell_type"] == "markdown" else f"[[code {number}]]"
        for number, cell in enumerate(cells)
    )
    text = "\n".join(unfolded(SOLUTION.sub("", whole)))
    visible = [cells[int(number)] for number in CELL.findall(text)]
    words = count(CELL.sub("", text).partition("\n## Exercises\n")[0])
    lines = sum(
        len(cell["source"].splitlines())
        for cell in visible
        if not FOLDED.intersection(cell["metadata"].get("tags", ()))
    )
    figures = sum("figure" in cell["metadata"].get("mystnb", {}) for cell in visible)
    extra = MINUTES_PER_THEOREM * len(THEOREM.findall(text)) + MINUTES_PER_FIGURE * figures
    return round(words / WORDS_PER_MINUTE + lines * SECONDS_PER_LINE / 60 + extra)


def unfolded(text: str) -> Iterator[str]:
    """Yield the lines of Markdown text that are outside boxes with the class `dropdown`.

    >>> list(unfolded("a\\n:::{admonition} b\\n:class: dropdown\\nc\\n:::\\nd"))
    ['a', 'd']
    """
    end = ""
    lines = text.splitlines()
    for line, next_line in zip(lines, [*lines[1:], ""], strict=True):
        if end:
            end = "" if line == end else end
            continue
        fence = re.match(r"(:{3,})\{", line)
        if fence and re.match(r":class:.*\bdropdown\b", next_line):
            end = fence[1]
        else:
            yield line


def count(text: str) -> int:
    """Return the number of words in Markdown. An unpaired $ affects only its own paragraph."""
    return sum(len(WORD.findall(FORMULA.sub(" x ", part))) for part in text.split("\n\n"))


def chapters(root: Path) -> dict[str, list[str]]:
    """Return a dict that maps each part's caption to the names of the part's notebooks."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return {
        part["caption"]: [
            Path(chapter["file"]).name
            for chapter in part["chapters"]
            if (root / f"{chapter['file']}.ipynb").exists()
        ]
        for part in toc["parts"]
    }


def announcements(root: Path) -> dict[str, str]:
    """Return a dict that maps each notebook's name to the sentence about its reading time."""
    times = {path.stem: minutes(read(path)) for path in (root / "chapters").glob("*.ipynb")}
    sentences = {
        name: f"about {time} minutes, not counting exercises." for name, time in times.items()
    }
    core, *others = chapters(root).values()
    further = [name for names in others for name in names]
    sums = [hours(sum(times[name] for name in names)) for names in (core, further)]
    sentences["intro"] = (
        f"about {times['intro']} minutes for this page, {sums[0]} for the core chapters, "
        f"{sums[1]} for all the others, not counting exercises."
    )
    return sentences


def hours(minutes: int) -> str:
    """Return a time as text in hours, rounded up to a quarter of an hour.

    >>> hours(241), hours(60)
    ('4 ¼ hours', '1 hour')
    """
    whole, quarters = divmod(-(-minutes // 15), 4)
    number = f"{whole} {' ¼½¾'[quarters]}".strip()
    return f"{number} hour{'s' if (whole, quarters) != (1, 0) else ''}"


def read(path: Path) -> dict[str, Any]:
    """Read a notebook, with each cell's source as one string."""
    return nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)


def main() -> None:
    """Write the reading times into the chapters and print each change."""
    for name, sentence in announcements(ROOT).items():
        path = ROOT / "chapters" / f"{name}.ipynb"
        text = path.read_text(encoding="utf-8")
        updated = TIME.sub(sentence, text, count=1)
        if updated != text:
            path.write_text(updated, encoding="utf-8")
            print(f"{name}: {sentence}")


if __name__ == "__main__":
    main()
