"""What the tests left out, and why: the last lines of `make test`.

Read from the results that pytest wrote as JUnit's XML, one file for each part of the tests.
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def left_out(files: list[Path]) -> str:
    """A line for each reason, with the number of tests; the reason names the way out.

    Raises FileNotFoundError for a part that has left no results.
    """
    skipped = [test for file in files for test in ElementTree.parse(file).iter("skipped")]
    if not skipped:
        return "Nothing was left out."
    reasons = Counter(test.get("message", "").strip() for test in skipped)
    lines = [f"  {number} of them: {reason}" for reason, number in reasons.most_common()]
    return "\n".join([f"Left out were {len(skipped)} tests.", *lines])


if __name__ == "__main__":
    print(left_out([Path(name) for name in sys.argv[1:]]))
