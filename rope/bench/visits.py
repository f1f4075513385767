"""Visits to one case, minutes apart, become its entry: samples of all of them side by side.

A machine that others share has slow moments of seconds, and memory lies elsewhere each time it is
taken; one visit sees one moment and one place.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from rope.bench.timing import summed_up

Line = dict[str, Any]
Visit = dict[str, Any]


def finished(visits: Sequence[Visit]) -> dict[str, Any]:
    """The case's entry of a record, from what `rope.bench.measure.visit` returned each time.

    Who was not timed in one of the visits is not timed; the peak is the highest. `core`: by visit,
    the median of what the fixed arithmetic took, None where it was not asked for.
    """
    first = visits[0]
    lines = {
        name: _line([visit["competitors"][name] for visit in visits])
        for name in first["competitors"]
    }
    copies = {
        name: summed_up([visit["copies"][name] for visit in visits]) for name in first["copies"]
    }
    core = [statistics.median(visit["core"]) for visit in visits]
    return first | {
        "competitors": lines,
        "copies": copies,
        "core": None if any(map(math.isnan, core)) else core,
    }


def _line(lines: Sequence[Line]) -> Line:
    for line in lines:
        if line["status"] != "timed":
            return line
    line = {key: value for key, value in lines[0].items() if key not in ("taken", "graph")}
    line |= summed_up([each["taken"] for each in lines])
    line["peak"] = max(each["peak"] for each in lines)
    if all("graph" in each for each in lines):
        line["graph"] = summed_up([each["graph"] for each in lines])
    return line
