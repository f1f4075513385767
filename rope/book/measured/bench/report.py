"""Read a benchmark record: ratios of median times, and curves against the length.

The book shows the ratio of two times from the same case, such as a rotation's and a copy's.
"""

from __future__ import annotations

import math
from dataclasses import replace
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


def by_length(record: dict[str, Any], case: Case) -> tuple[list[int], dict[str, list[float]]]:
    """Return the lengths S and, for each baseline, the `ratio` at each length (NaN if not timed).

    The cases match `case` except in their lengths and numbers of heads. The longest sequences have
    fewer heads, so that they fit in memory.
    """
    every = [Case(**entry["case"]) for entry in record["cases"]]
    alike = [
        other
        for other in sorted(every, key=lambda other: other.seq)
        if replace(other, seq=case.seq, heads=case.heads, kv_heads=case.kv_heads) == case
    ]
    names = dict.fromkeys(name for other in alike for name in times(record, other))
    return [other.seq for other in alike], {
        name: [ratio(record, other, name) for other in alike] for name in names if name != "copy"
    }
