"""The benchmark: how fast the rotation is, ours and the field's, against a plain copy.

`python -m rope.bench` measures a grid of cases and writes a record; `--bars` measures the cases
that this package's bars name, `--quick` a handful in under a minute. The records of the machines
that the book reports on are in `recorded/`; `recorded("cpu")` reads one.

A rotation reads each element once and writes it once, and so does a copy: the time over that of a
copy of the same tensors, in the same run, says how far from the least possible a piece of code is.
A full run comes to each case three times, and counts the rounds in which the machine had its full
speed, by work that belongs to no competitor. A record that is shipped is the first complete run of
its commit, whatever it says.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

import json
from pathlib import Path
from typing import Any

#: The folder of the records that the package ships.
RECORDED = Path(__file__).with_name("recorded")


def recorded(name: str) -> dict[str, Any]:
    """A record that the package ships: `metadata` and `cases`.

    Raises ValueError for a name that is none of them.
    """
    known = sorted(path.stem for path in RECORDED.glob("*.json") if "." not in path.stem)
    if name not in known:
        raise ValueError(
            f"name is {name!r}; it must be one of {known}: run python -m rope.bench to make a "
            "record of this machine"
        )
    record: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return record
