"""One command on a GPU: the kernel checked there, its tiles tried, its times beside a copy's.

`make gpu` runs `python -m rope.book.measured.gpu`: `checks`, `tiles`, `decoding` and the benchmark
of `rope.book.measured.bench`, into one record a device, `recorded/gpu-NAME.json` there.
It needs torch and Triton, goes on where it stopped, and says what is missing.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

import json
from typing import Any

from rope.book.measured.bench import RECORDED


class OutOfTime(Exception):
    """The minutes given are over; what is measured is kept."""


def records() -> dict[str, dict[str, Any]]:
    """The records of GPUs that the package ships, by the name of the device.

    >>> all(record["device"] == name for name, record in records().items())
    True
    """
    paths = [path for path in sorted(RECORDED.glob("gpu-*.json")) if ".partial" not in path.name]
    found = [json.loads(path.read_text("utf-8")) for path in paths]
    return {record["device"]: record for record in found}
