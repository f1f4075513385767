"""The benchmark: how fast the rotation is, ours and the field's, beside a plain copy.

`python -m rope.book.measured.bench` checks and times every case and writes a record; `--quick`
takes a handful, in under a minute. The records that the book reports on are in `recorded/`:
`recorded("cpu")`.

A rotation reads each element once and writes it once, and so does a copy of the same tensors: the
time over that of a copy, in the same run, says how far from the least possible a piece of code is.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

import json
from pathlib import Path
from typing import Any

#: The folder of the records that the package ships.
RECORDED = Path(__file__).with_name("recorded")


def recorded(name: str) -> dict[str, Any]:
    """A record that the package ships, of the form that `bench.run.run` describes."""
    record: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return record
