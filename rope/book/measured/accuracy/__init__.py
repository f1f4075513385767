"""The error report: how far tables and rotations lie from the truth, ours and the field's.

Chapter "How exact must it be?". `python -m rope.book.measured.accuracy` measures everything, in a
few minutes, and writes `accuracy.json` in this folder, which `committed` reads. The truth comes
from mpmath, with 50 digits.

Shapes: P positions, R rotated width.
"""

import json
from pathlib import Path
from typing import Any

#: The full report, as it was last measured.
RESULT = Path(__file__).with_name("accuracy.json")
#: Positions 0 ... LARGEST are measured; heads of width DIM where there is nothing to choose.
LARGEST, DIM = 2**20, 128


def committed() -> dict[str, Any]:
    """The full report that the package ships: sections tables, pairs, peers, relativity, versions.

    >>> sorted(committed())
    ['pairs', 'peers', 'program', 'relativity', 'tables', 'versions']
    """
    report: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
    return report
