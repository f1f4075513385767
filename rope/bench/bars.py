"""The bars: what this package promises of its speed, each judged on a record.

A bar is a sentence, what was measured, the bound, and whether it holds: None where the record does
not hold the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from rope.bench.cases import CPU_BAR, GPU_BAR, NEW_PAGES, Case, both_layouts

LUCIDRAINS = ("rotary-embedding-torch", "rotary-embedding-torch module")
#: On a CPU every bar is asked of both.
OURS = ("rope eager", "rope compile")
#: From so many tokens on a GPU is busy with memory alone.
BUSY = 8192

Entry = dict[str, Any]


class Bar(NamedTuple):
    """One promise; `where` names the case it is about, "" where the record has no such case."""

    sentence: str
    measured: float | None
    bound: float
    holds: bool | None
    where: str


def bars(record: dict[str, Any]) -> list[Bar]:
    """Every promise for the kind of device that the record is of."""
    entries = {entry["name"]: entry for entry in record["cases"]}
    return _cuda(entries) if record["metadata"]["device"]["kind"] == "cuda" else _cpu(entries)


def seconds(entry: Entry, names: Iterable[str]) -> float | None:
    """The least median of those that were timed, None when none was."""
    lines = (entry["competitors"].get(name, {}) for name in names)
    return min((line["median"] for line in lines if line.get("status") == "timed"), default=None)


def over_copy(entry: Entry, name: str, copy: str = "copy_") -> float | None:
    """A competitor's time for each byte over a plain copy's, None when it was not timed."""
    found = seconds(entry, [name])
    if found is None:
        return None
    copied = entry["output"] / (2 if entry["case"]["direction"] == "both" else 1) * 2
    return (found / entry["bytes"]) / (entry["copies"][copy]["median"] / copied)


def others(entry: Entry) -> list[str]:
    """The names of the competitors that are not this package."""
    return [name for name in entry["competitors"] if not name.startswith("rope ")]


def _at_most(
    sentence: str, bound: float, case: Case, entries: dict[str, Entry], of: Callable[[Entry], Any]
) -> Bar:
    entry = entries.get(case.name)
    if entry is None:
        return Bar(sentence, None, bound, None, "")
    measured = of(entry)
    holds = None if measured is None else measured <= bound
    return Bar(sentence, measured, bound, holds, case.name)


def _at_least(
    sentence: str, bound: float, case: Case, entries: dict[str, Entry], of: Callable[[Entry], Any]
) -> Bar:
    bar = _at_most(sentence, bound, case, entries, of)
    return bar._replace(holds=None if bar.measured is None else bar.measured >= bound)


def _worst(
    sentence: str, bound: float, entries: Sequence[Entry], of: Callable[[Entry], float | None]
) -> Bar:
    """At most the bound in each of these entries: the worst is named."""
    found = [(value, entry["name"]) for entry in entries if (value := of(entry)) is not None]
    if not found:
        return Bar(sentence, None, bound, None, entries[0]["name"] if entries else "")
    measured, where = max(found)
    return Bar(sentence, measured, bound, measured <= bound, where)


def _cpu(entries: dict[str, Entry]) -> list[Bar]:
    found = []
    for case in both_layouts(CPU_BAR):
        narrow = replace(case, dtype="bfloat16")
        found += [
            _at_most(
                f"{way.dtype}, {way.layout}, {way.mode}: {name} over {copy}()",
                bound,
                way,
                entries,
                partial(over_copy, name=name, copy=copy),
            )
            for way, copy, bounds in (
                (replace(case, mode=NEW_PAGES), "clone", (1.3, 1.3)),
                (narrow, "copy_", (6.0, 3.0)),
                (replace(case, mode="in place"), "copy_", (3.0, 1.5)),
                (replace(case, mode="into a buffer"), "copy_", (3.0, 1.5)),
            )
            for name, bound in zip(OURS, bounds, strict=True)
        ]
        found += [
            _at_least(
                f"{way.dtype}, {way.layout}, {way.mode}: time of {names[0]} over that of {ours}",
                bound,
                way,
                entries,
                partial(_over, names=names, than=[ours]),
            )
            for way in (replace(case, mode=NEW_PAGES), narrow)
            for names, bound in ((("transformers",), 3.0), (LUCIDRAINS, 5.0))
            if way.interleaved or names != LUCIDRAINS
            for ours in OURS
        ]
        found += [
            _at_most(
                f"{way.dtype}, {way.layout}: memory of {ours} beside the output, a share of it",
                0.05,
                way,
                entries,
                partial(_beside, name=ours),
            )
            for way in (case, narrow)
            for ours in OURS
        ]
    found += [
        _worst(
            f"every case: time of {ours} over that of {names[0]}, the worst",
            1.0,
            list(entries.values()),
            partial(_over, names=[ours], than=names),
        )
        for names in (("transformers",), LUCIDRAINS)
        for ours in OURS
    ]
    return found


def _cuda(entries: dict[str, Entry]) -> list[Bar]:
    found = [
        _at_least(
            f"bfloat16, {case.layout}, {case.direction}: bytes a second, rope triton over copy_()",
            0.92,
            case,
            entries,
            lambda entry: _share(over_copy(entry, "rope triton")),
        )
        for case in both_layouts(GPU_BAR, direction=("forward", "backward"))
    ]
    busy, decoded = [], []
    for entry in entries.values():
        case = Case(**entry["case"])
        if case.kind == "decode":
            decoded.append(entry)
        elif case.tokens >= BUSY:
            busy.append(entry)
    found += [
        _worst(
            f"{what}: time of rope triton over the fastest peer's, the worst",
            1.0,
            chosen,
            lambda entry: _over(entry, ["rope triton"], others(entry)),
        )
        for what, chosen in ((f"{BUSY:,} tokens or more", busy), ("decode", decoded))
    ]
    found.append(
        _worst(
            "decode: kernels in rope triton's CUDA graph",
            1.0,
            decoded,
            lambda entry: entry["competitors"].get("rope triton", {}).get("launches"),
        )
    )
    return found


def _share(ratio: float | None) -> float | None:
    """Of a copy's bytes a second, from the times."""
    return None if ratio is None else 1 / ratio


def _over(entry: Entry, names: Iterable[str], than: Iterable[str]) -> float | None:
    """The fastest of some over the fastest of others."""
    upper, lower = seconds(entry, names), seconds(entry, than)
    return None if upper is None or lower is None else upper / lower


def _beside(entry: Entry, name: str) -> float | None:
    """Peak memory that is not the output, as a share of the output."""
    peak = entry["competitors"].get(name, {}).get("peak")
    return None if peak is None else peak / entry["output"] - 1
