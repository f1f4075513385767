"""Read a benchmark record: ratios of median times, curves over the length, and a text table.

The book shows ratios of two times measured in the same case, such as rotation over copy.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from rope.book.measured.bench.cases import Case

COPIES = ("copy", "clone")


def times(record: dict[str, Any], case: Case) -> dict[str, dict[str, Any]]:
    """Return a case's times, keyed by name. Raise KeyError if the record lacks the case."""
    return {Case(**entry["case"]): entry["times"] for entry in record["cases"]}[case]


def ratio(record: dict[str, Any], case: Case, name: str, over: str = "copy") -> float:
    """Return `name`'s median time divided by `over`'s median time, or NaN if either is missing."""
    lines = times(record, case)
    if name not in lines or over not in lines:
        return math.nan
    return lines[name]["median"] / lines[over]["median"]


def by_length(
    record: dict[str, Any], case: Case, over: str = "copy"
) -> tuple[list[int], dict[str, list[float]]]:
    """Return the lengths S and, for each baseline, the `ratio` at each length (NaN if not timed).

    The cases used match `case` except in length and number of heads. The longest sequences have
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
        name: [ratio(record, other, name, over) for other in alike]
        for name in names
        if name not in COPIES
    }


def table(record: dict[str, Any]) -> str:
    """Return a text that lists, for each case, the timed calls, fastest first, and all failures.

    Times are in milliseconds. `x copy`, `x clone`, and `x rope` are quotients: the median time over
    the median time of the copy, of the clone, and of this package.
    """
    about = record["metadata"]
    device = about["device"].get("gpu", f"{about['cpu']}, {about['device']['threads']} threads")
    absent = [name for name, version in about["versions"].items() if version == "absent"]
    lines = [
        f"{device}, torch {about['versions']['torch']}; {about['rope']}",
        f"Not installed: {', '.join(absent) or 'nothing'}",
    ]
    head = " " * 26 + "".join(f"{title:>9}" for title in ("ms", "x copy", "x clone", "x rope"))
    for entry in record["cases"]:
        case = Case(**entry["case"])
        lines += ["", case.name, head]
        for name, line in sorted(entry["times"].items(), key=lambda pair: pair[1]["median"]):
            numbers = [ratio(record, case, name, over) for over in (*COPIES, "rope")]
            numbers.insert(0, line["median"] * 1e3)
            lines.append(f"  {name:24}" + "".join(f"{number:9.3g}" for number in numbers))
        lines += [f"  {name}: {reason}" for name, reason in entry["not timed"].items()]
    failures = record.get("not measured", {}).items()
    return "\n".join(lines + [f"{job}: {reason}" for job, reason in failures])
