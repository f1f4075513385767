"""A record in numbers and words: ratios within a case, along the lengths, and a table of all."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from rope.book.measured.bench.cases import Case

COPIES = ("copy", "clone")


def times(record: dict[str, Any], case: Case) -> dict[str, dict[str, Any]]:
    """Everybody's line in a case, by name; KeyError for a case that is not in the record."""
    return {Case(**entry["case"]): entry["times"] for entry in record["cases"]}[case]


def ratio(record: dict[str, Any], case: Case, name: str, over: str = "copy") -> float:
    """The median time of one competitor over that of another, or of "copy" or "clone".

    NaN where one of the two was not timed.
    """
    lines = times(record, case)
    if name not in lines or over not in lines:
        return math.nan
    return lines[name]["median"] / lines[over]["median"]


def by_length(
    record: dict[str, Any], case: Case, over: str = "copy"
) -> tuple[list[int], dict[str, list[float]]]:
    """Lengths S, and by competitor the time over a copy's at each, NaN where it was not timed.

    case: what the cases agree on beside the length; the heads may differ as well, as they do where
    the longest sequences would not fit in memory.
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
    """Every case with those who were timed, fastest first, then the others, each with its reason.

    Times in milliseconds; x copy, x clone, x rope: the median over theirs; memory: the most that
    was held over the size of the result; faults: pages that one call takes anew.
    """
    about = record["metadata"]
    device = about["device"].get("gpu", f"{about['cpu']}, {about['device']['threads']} threads")
    absent = [name for name, version in about["versions"].items() if version == "absent"]
    lines = [
        f"{device}, torch {about['versions']['torch']}; {about['rope']}",
        f"Not installed: {', '.join(absent) or 'nothing'}",
    ]
    titles = ("ms", "lower", "upper", "x copy", "x clone", "x rope", "memory", "faults")
    head = " " * 26 + "".join(f"{title:>9}" for title in titles)
    for entry in record["cases"]:
        case = Case(**entry["case"])
        lines += ["", case.name, head]
        for name, line in sorted(entry["times"].items(), key=lambda pair: pair[1]["median"]):
            numbers = [line[key] * 1e3 for key in ("median", "lower", "upper")]
            numbers += [ratio(record, case, name, over) for over in (*COPIES, "rope")]
            numbers += [line["memory"], line.get("faults", 0)]
            lines.append(f"  {name:24}" + "".join(f"{number:9.3g}" for number in numbers))
        lines += [f"  {name}: {why}" for name, why in entry["not timed"].items()]
    return "\n".join(lines)
