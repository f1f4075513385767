"""Return times and ratios of median times from a benchmark record.

The book shows the ratio of two times from the same case, such as a rotation's and a copy's.
"""

from __future__ import annotations

import math
from typing import Any

from rope.book.measured.bench.cases import Case


def times(record: dict[str, Any], case: Case) -> dict[str, dict[str, Any]]:
    """Return a case's times, keyed by name. Raise KeyError if the record lacks the case."""
    return {Case(**entry["case"]): entry["times"] for entry in record["cases"]}[case]


def ratio(record: dict[str, Any], case: Case, name: str, over: str = "copy") -> float:
    """Return `name`'s median time divided by `over`'s median time, or NaN if either is missing."""
    lines = times(record, case)
    if name not in lines or over not in lines:
        return math.nan
    return lines[name]["median"] / lines[over]["median"]
