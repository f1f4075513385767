"""A record in words: a table of every case, who was not timed and why, and the bars."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rope.bench.bars import Bar, bars, over_copy, seconds
from rope.bench.cases import Case

HEAD = ("", "a call", "quartiles", "× copy", "GB/s", "× ours", "peak")
REASONS = ("absent", "failed", "wrong", "refused")


def table(record: dict[str, Any]) -> str:
    """Every case with those who were timed, fastest first; then the others, each with its reason.

    × copy: the time for each byte over that of copy_() into memory at hand; × ours: over the
    fastest of this package; peak: memory held at the worst moment, over the size of the results.
    Times are of rounds at full speed, by fixed work of its own beside them, where there were three.
    """
    device = record["metadata"]["device"]
    name = device.get("gpu", f"{device['cpu']}, {device['threads']} threads")
    lines = [f"{name}, torch {record['metadata']['versions']['torch']}"]
    for entry in record["cases"]:
        lines += ["", entry["name"] + _rounds(entry["rounds"]), *_rows(entry)]
    return "\n".join([*lines, "", *_untimed(record)])


def _rounds(rounds: dict[str, int | None]) -> str:
    """How many rounds the machine had its full speed in, where that was asked.

    >>> _rounds({"all": 9, "at full speed": 7}), _rounds({"all": 9, "at full speed": None})
    (' (7 of 9 rounds at full speed)', '')
    """
    fast = rounds["at full speed"]
    return "" if fast is None else f" ({fast} of {rounds['all']} rounds at full speed)"


def verdicts(found: list[Bar]) -> str:
    """One line a bar, and how many bars are about cases that the record does not hold.

    >>> bars = [
    ...     Bar("eager over clone()", 1.2, 1.3, True, "prefill"),
    ...     Bar("compiled over clone()", None, 1.3, None, ""),
    ... ]
    >>> print(verdicts(bars))
    holds         1.2   bound 1.3   eager over clone() (prefill)
    1 bar on cases that this run did not have: see --bars
    """
    words = {True: "holds", False: "MISSED", None: "not measured"}
    lines = [
        f"{words[bar.holds]:12}  {'' if bar.measured is None else format(bar.measured, '.3g'):5} "
        f"bound {bar.bound:<5g} {bar.sentence} ({bar.where})"
        for bar in found
        if bar.where
    ]
    left = len(found) - len(lines)
    if left:
        bar = "1 bar" if left == 1 else f"{left} bars"
        lines.append(f"{bar} on cases that this run did not have: see --bars")
    return "\n".join(lines)


def summary(record: dict[str, Any]) -> str:
    """The table and the bars."""
    return f"{table(record)}\n\n{verdicts(bars(record))}"


def ratios(record: dict[str, Any], only: str = "") -> dict[str, dict[str, float]]:
    """By case, then by competitor, the time over a copy's: what the figure `against_copy` draws.

    only: a part of the names of the cases that are wanted. A case is called by what tells it from
    the others of them.
    """
    entries = [entry for entry in record["cases"] if only in entry["name"]]
    words = [_words(Case(**entry["case"])) for entry in entries]
    telling = [place for place, column in enumerate(zip(*words, strict=True)) if len({*column}) > 1]
    found = {}
    for entry, row in zip(entries, words, strict=True):
        pairs = ((name, over_copy(entry, name)) for name in entry["competitors"])
        label = ", ".join(row[place] for place in telling) or entry["name"]
        found[label] = {name: ratio for name, ratio in pairs if ratio is not None}
    return found


def _words(case: Case) -> tuple[str, ...]:
    """The parts of a name."""
    rotated = f"rotated {case.rotary_dim}"
    parts = case.kind, case.sizes, rotated, case.dtype, case.layout
    return (*parts, case.direction, case.mode, case.storage)


def by_length(record: dict[str, Any], case: Case) -> tuple[list[int], dict[str, list[float]]]:
    """Lengths S, and by competitor the time over a copy's at each, NaN where it was not timed.

    case: what the cases agree on beside the length; the heads may differ as well, as they do where
    the longest sequences would not fit in memory.
    """
    free = {"seq", "heads", "kv_heads"}
    wanted = {key: value for key, value in asdict(case).items() if key not in free}
    found = {
        entry["case"]["seq"]: entry
        for entry in record["cases"]
        if all(entry["case"][key] == value for key, value in wanted.items())
    }
    lengths = sorted(found)
    names = dict.fromkeys(name for seq in lengths for name in found[seq]["competitors"])
    curves = {
        name: [
            math.nan if (ratio := over_copy(found[seq], name)) is None else ratio for seq in lengths
        ]
        for name in names
    }
    return lengths, {
        name: curve for name, curve in curves.items() if not all(map(math.isnan, curve))
    }


def _rows(entry: dict[str, Any]) -> list[str]:
    timed = {name: line for name, line in entry["competitors"].items() if line["status"] == "timed"}
    ours = seconds(entry, [name for name in timed if name.startswith("rope ")])
    rows = [HEAD]
    for name, line in sorted(timed.items(), key=lambda pair: pair[1]["median"]):
        ratio = over_copy(entry, name)
        note = " (overwrites its input)" if _surprising(entry, line) else ""
        if "lost" in line:
            note += f" (failed in {line['lost']} of the visits)"
        rows.append(
            (
                name + note,
                _time(line["median"]),
                f"{_time(line['lower'])} … {_time(line['upper'])}",
                f"{ratio:.2f}",
                f"{entry['bytes'] / line['median'] / 1e9:.1f}",
                "" if ours is None else f"{line['median'] / ours:.2f}",
                f"{line['peak'] / entry['output']:.2f}",
            )
        )
        if "graph" in line:
            graph = line["graph"]["median"]
            kernels = f"in a CUDA graph, {line['launches']} kernels"
            rows.append((f"  {kernels}", _time(graph), "", "", "", "", ""))
        if "graph_why" in line:
            rows.append((f"  in no CUDA graph: {line['graph_why'][:60]}", "", "", "", "", "", ""))
    for name, line in entry["copies"].items():
        spread = f"{_time(line['lower'])} … {_time(line['upper'])}"
        rows.append((name, _time(line["median"]), spread, "", "", "", ""))
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _surprising(entry: dict[str, Any], line: dict[str, Any]) -> bool:
    """Whether it writes where it was not asked to."""
    return bool(line["overwrites"] and entry["case"]["mode"] != "in place")


def _untimed(record: dict[str, Any]) -> list[str]:
    """Everyone who was not timed, by reason, with the number of cases."""
    counts: dict[tuple[str, str, str], int] = {}
    for entry in record["cases"]:
        for name, line in entry["competitors"].items():
            if line["status"] != "timed":
                key = line["status"], name, line["why"]
                counts[key] = counts.get(key, 0) + 1
    ordered = sorted(counts.items(), key=lambda pair: (REASONS.index(pair[0][0]), pair[0][1:]))
    total = len(record["cases"])
    return ["Not timed:" if ordered else "Everyone was timed in every case."] + [
        f"  {name}, {status} in {count} of {total} cases: {why}"
        for (status, name, why), count in ordered
    ]


def _time(value: float) -> str:
    """Seconds in a readable unit.

    >>> _time(0.0123), _time(4.56e-6)
    ('12.3 ms', '4.56 µs')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"
