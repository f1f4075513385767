"""How long a chapter is: the words of its prose, exercises and their solutions among them.

`python -m rope.book.tools.words` prints the count of each chapter.
"""

import re
from pathlib import Path

from rope.book.tools.execute import CHAPTERS, read

# A formula counts as one word, and so does a name in code type.
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|^```\{math\}.*?^```|`[^`]+`", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[^\W_][\w’'-]*")


def words(path: Path) -> int:
    """The words of a notebook's prose."""
    prose = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
    return sum(len(WORD.findall(FORMULA.sub(" x ", text))) for text in prose)


if __name__ == "__main__":
    counts = {path.stem: words(path) for path in sorted(CHAPTERS.glob("*.ipynb"))}
    for chapter, count in counts.items():
        print(f"{chapter:28} {count:6,}")
    print(f"{'in all':28} {sum(counts.values()):6,}")
