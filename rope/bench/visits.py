"""Visits to one case, some time apart, become its entry: samples of all of them side by side.

A machine that others share has slow moments of seconds, and a tensor lies elsewhere each time it
is made; one visit sees one moment and one place.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from rope.bench.pace import Look, faster, slow
from rope.bench.timing import summed_up

Line = dict[str, Any]
Visit = dict[str, Any]
#: So many rounds at full speed are enough to leave out all others.
ENOUGH = 3


def best(visits: Iterable[Visit]) -> Look:
    """The least that the fixed work of `rope.bench.pace` took in any of these visits."""
    least = (float("inf"), float("inf"))
    for visit in visits:
        for look in visit["looks"]:
            least = faster(least, look)
    return least


def finished(visits: Sequence[Visit], least: Look) -> dict[str, Any]:
    """The case's entry of a record, from what `rope.bench.measure.visit` returned each time.

    Rounds in which the machine had not its full speed, by `least`, are left out of the medians if
    enough are left. `rounds`: all, and those at full speed, None where nobody looked; `any`, in a
    line, is the median with none left out. Who was wrong once is wrong; who failed is timed by the
    other visits, and their line says in how many it was `lost`; the peak is the highest.
    """
    first = visits[0]
    fast = [[not slow(look, least) for look in visit["looks"]] for visit in visits]
    number = sum(map(sum, fast))
    chosen = fast if number >= ENOUGH else [[True] * len(each) for each in fast]
    lines = {
        name: _line([visit["competitors"][name] for visit in visits], chosen)
        for name in first["competitors"]
    }
    copies = {
        name: _summed_up([visit["copies"][name] for visit in visits], chosen)
        for name in first["copies"]
    }
    asked = math.isfinite(least[0])
    rounds = {"all": sum(map(len, fast)), "at full speed": number if asked else None}
    entry = {key: value for key, value in first.items() if key != "looks"}
    return entry | {"competitors": lines, "copies": copies, "rounds": rounds}


def _line(lines: Sequence[Line], chosen: Sequence[Sequence[bool]]) -> Line:
    timed = [line["status"] == "timed" for line in lines]
    for line in lines:
        if line["status"] == "wrong" or not any(timed):
            return line
    kept = [line for line, there in zip(lines, timed, strict=True) if there]
    rounds = [each for each, there in zip(chosen, timed, strict=True) if there]
    line = {key: value for key, value in kept[0].items() if key not in ("taken", "graph")}
    line |= _summed_up([each["taken"] for each in kept], rounds)
    line["peak"] = max(each["peak"] for each in kept)
    if len(kept) < len(lines):
        line["lost"] = len(lines) - len(kept)
    why = next((each["graph_why"] for each in kept if "graph_why" in each), None)
    if why is not None:
        line.pop("launches", None)
        line["graph_why"] = why
    elif all("graph" in each for each in kept):
        line["graph"] = _summed_up([each["graph"] for each in kept], rounds)
    return line


def _summed_up(visits: Sequence[Line], chosen: Sequence[Sequence[bool]]) -> Line:
    """Over the chosen rounds, or over all where none of these visits has one that is chosen."""
    some = [
        visit
        | {
            key: [value for value, keep in zip(visit[key], rounds, strict=True) if keep]
            for key in ("pages", "seconds")
        }
        for visit, rounds in zip(visits, chosen, strict=True)
        if any(rounds)
    ]
    every = [value for visit in visits for value in visit["seconds"]]
    if sum(len(visit["seconds"]) for visit in some) < 2:  # too few for quartiles
        some = list(visits)
    return summed_up(some) | {"any": statistics.median(every)}
