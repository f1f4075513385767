"""`python -m rope.book.measured.accuracy` makes the report, in a few minutes: every measurement.

The result goes to accuracy.json in this folder, or to the path that is given. What is done so far
stands beside it as NAME.partial.json; a run that was interrupted goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rope.book.measured.accuracy import DIM, LARGEST, RESULT, peers, tables, vectors
from rope.book.measured.machine import installed
from rope.book.measured.record import measured

#: Raise it when a measurement changes its meaning: results of another version are not resumed.
VERSION = 1
PACKAGES = ("mpmath", "rotary-embedding-torch", "torch", "transformers")


def fingerprint() -> str:
    """A hash of all that is measured; a result with another one is not this program's."""
    pairs = [vectors.PAIR_HEADS, vectors.PAIR_SEED]
    relativity = [vectors.RELATIVITY_SEED, vectors.RELATIVITY_PAIRS, vectors.RELATIVITY_SHIFTS]
    everything = [
        VERSION,
        False,  # it is not the quick report, which former versions had
        [[case.base, case.dim, repr(case.extension)] for case in tables.CASES],
        [LARGEST, peers.HALF_POWERS, peers.PEER_WINDOW, DIM, peers.PEER_BASES, *pairs],
        [DIM, *relativity],
    ]
    return hashlib.sha256(json.dumps(everything).encode()).hexdigest()[:16]


def jobs() -> dict[str, Callable[[], Any]]:
    """Every measurement by its name, which begins with its section."""
    found: dict[str, Callable[[], Any]] = {
        f"tables: {number}, {case.name}": partial(tables.measure_tables, case)
        for number, case in enumerate(tables.CASES)
    }
    for base in peers.PEER_BASES:
        for dtype in vectors.DTYPES:
            found[f"pairs: {dtype}, base {base:.0f}"] = partial(vectors.measure_pairs, base, dtype)
    for base in peers.PEER_BASES:
        found[f"peers: base_{base:.0f}"] = partial(peers.measure_peers, base)
    for dtype in vectors.HALVES:
        found[f"relativity: {dtype}"] = partial(vectors.measure_relativity, dtype)
    return found


def version_of(package: str) -> str:
    """A package's version; which build it is, for a CPU or for CUDA, changes no number here."""
    return installed(package).split("+")[0]


def report(done: dict[str, Any]) -> dict[str, Any]:
    """The report made of all measurements."""
    result: dict[str, Any] = {
        "pairs": [],
        "peers": {"dim": DIM, "positions": peers.HALF_POWERS, "window": peers.PEER_WINDOW},
        "program": fingerprint(),
        "relativity": [],
        "tables": [],
        "versions": {name: version_of(name) for name in PACKAGES},
    }
    for name in jobs():
        section, _, what = name.partition(": ")
        if section == "peers":
            result[section][what] = done[name]
        else:
            result[section] += done[name] if isinstance(done[name], list) else [done[name]]
    return result


def measure(path: Path) -> None:
    """Measure everything, showing a bar, and write the report."""
    measured(path, fingerprint(), jobs(), report)


if __name__ == "__main__":
    try:
        measure(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULT)
    except KeyboardInterrupt:
        sys.exit("\nInterrupted; run it again and it goes on from here.")
