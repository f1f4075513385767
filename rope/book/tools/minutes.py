"""How much of a chapter is seen at once, and how many minutes it takes, by one rule.

`python -m rope.book.tools.minutes` writes them into every chapter's box of goals, and the sums of
the road and of the side roads on the front page. What is folded, or a solution, does not count;
exercises are not in the minutes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
WORDS_A_MINUTE, SECONDS_A_LINE = 130, 5  # a figure that moves takes a minute
# The most words, exercises with them, and lines of code: of a stop of the road, of a side road.
ROAD, SIDE_ROAD, FRONT = (2000, 150), (2600, 200), (1000, 20)
FOLDED = {"check", "hide-input", "hide-cell", "remove-input"}
MOVING = "application/vnd.vegalite.v5+json"
SOLUTION = re.compile(r"^:::\{solution-start\}.*?^:::\{solution-end\}\n:::$", re.M | re.S)
TICK = re.compile(r"# (✓ .{12,120})\n")  # the one line that is seen of a cell that only checks
CELL = re.compile(r"^\[\[code (\d+)\]\]$", re.MULTILINE)
# A formula counts as one word, and so does a name in code type.
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|^```\{math\}.*?^```|`[^`]+`", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[^\W_][\w’'-]*")
TIME = re.compile(r"(?<=\*\*Time:\*\* )[^.]*\.")


@dataclass(frozen=True)
class Visible:
    """What a chapter shows unfolded: words, those of exercises and ticks apart, lines, figures."""

    words: int
    exercises: int
    ticks: int
    lines: int
    moving: int

    @property
    def minutes(self) -> int:
        """The minutes that a reader is told."""
        read = (self.words + self.ticks) / WORDS_A_MINUTE
        return round(read + self.lines * SECONDS_A_LINE / 60 + self.moving)


def visible(notebook: dict[str, Any]) -> Visible:
    """Count what a notebook shows; its sources are strings, as nbformat reads them."""
    cells = notebook["cells"]
    whole = "\n".join(
        cell["source"] if cell["cell_type"] == "markdown" else f"[[code {number}]]"
        for number, cell in enumerate(cells)
    )
    text = "\n".join(unfolded(SOLUTION.sub("", whole)))
    seen = [cells[int(number)] for number in CELL.findall(text)]
    lesson, _, exercises = CELL.sub("", text).partition("\n## Exercises\n")
    titles = (TICK.match(cell["source"]) for cell in seen)
    return Visible(
        words=count(lesson),
        exercises=count(exercises),
        ticks=sum(count(title[1]) for title in titles if title),
        lines=sum(
            len(cell["source"].splitlines())
            for cell in seen
            if not FOLDED.intersection(cell["metadata"].get("tags", ()))
        ),
        moving=sum(MOVING in output.get("data", {}) for cell in seen for output in cell["outputs"]),
    )


def unfolded(text: str) -> Iterator[str]:
    """The lines of Markdown outside boxes of the class dropdown.

    >>> list(unfolded("a\\n:::{admonition} b\\n:class: dropdown\\nc\\n:::\\nd"))
    ['a', 'd']
    """
    end = ""
    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if end:
            end = "" if line == end else end
            continue
        fence = re.match(r"(:{3,})\{", line)
        if fence and re.match(r":class:.*\bdropdown\b", following):
            end = fence[1]
        else:
            yield line


def count(text: str) -> int:
    """The words of Markdown, paragraph by paragraph: a lone dollar ends with its own."""
    return sum(len(WORD.findall(FORMULA.sub(" x ", part))) for part in text.split("\n\n"))


def limits(name: str) -> tuple[int, int]:
    """The most words and lines of code that a chapter shows."""
    road, *_ = chapters(ROOT).values()
    return FRONT if name == "intro" else ROAD if name in road else SIDE_ROAD


def chapters(root: Path) -> dict[str, list[str]]:
    """The notebooks of each part of the book, by the part's caption."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    parts = {
        part["caption"]: [Path(chapter["file"]).name for chapter in part["chapters"]]
        for part in toc["parts"]
    }
    there = {path.stem for path in (root / "chapters").glob("*.ipynb")}
    return {caption: [name for name in names if name in there] for caption, names in parts.items()}


def announced(root: Path) -> dict[str, str]:
    """What each notebook's box of goals says of its time."""
    minutes = {
        path.stem: visible(read(path)).minutes for path in (root / "chapters").glob("*.ipynb")
    }
    said = {name: f"about {number} minutes, exercises apart." for name, number in minutes.items()}
    road, *sides = chapters(root).values()
    there = [name for side in sides for name in side]
    hours = [hours_of(sum(minutes[name] for name in names)) for names in (road, there)]
    said["intro"] = (
        f"about {minutes['intro']} minutes for this page, {hours[0]} for the road, "
        f"{hours[1]} for all side roads."
    )
    return said


def hours_of(minutes: int) -> str:
    """Minutes in hours, up to the next quarter: no sum is longer than what is said of it.

    >>> hours_of(241), hours_of(60)
    ('4 ¼ hours', '1 hour')
    """
    hours, quarters = divmod(-(-minutes // 15), 4)
    number = f"{hours} {' ¼½¾'[quarters]}".strip()
    return f"{number} hour{'s' if (hours, quarters) != (1, 0) else ''}"


def read(path: Path) -> dict[str, Any]:
    """A notebook with each text as one string."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
    return notebook


def main() -> None:
    """Write the times where they are announced."""
    for name, said in announced(ROOT).items():
        path = ROOT / "chapters" / f"{name}.ipynb"
        text = path.read_text(encoding="utf-8")
        written = TIME.sub(said, text, count=1)
        if written != text:
            path.write_text(written, encoding="utf-8")
            print(f"{name}: {said}")


if __name__ == "__main__":
    main()
