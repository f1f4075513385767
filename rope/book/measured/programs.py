"""Times of the programs of chapter "From maths to PyTorch", at several numbers of vectors.

`python -m rope.book.measured.programs` takes the programs out of the chapter's cells (those tagged
"programs"), times them beside a copy of the same vectors on one thread, and writes
`programs.json` in this folder, which `recorded` reads. The least of many calls is kept: what else
the machine does can only add to it.
"""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rope import layouts
from rope.book.measured.bench.memory import settle_allocator
from rope.book.measured.clock import time_all
from rope.book.measured.machine import about_here
from rope.book.measured.record import rounded, write
from rope.frequencies import inverse_frequencies, rotary_tables

CHAPTER = Path(__file__).parents[3] / "chapters/from_maths_to_pytorch.ipynb"
RESULT = Path(__file__).with_name("programs.json")
COUNTS = (6, 32, 256)  # vectors a position: batch times heads
POSITIONS, DIM, ROUNDS = 256, 128, 300


def recorded() -> dict[str, Any]:
    """The record: "seconds", by count and program, and "metadata", what they depend on.

    >>> sorted(recorded()["seconds"]["6"])
    ['complex_product', 'copy', 'dense', 'doubled', 'halves', 'pairs', 'reordered']
    """
    record: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
    return record


def measure(path: Path, rounds: int = ROUNDS, positions: int = POSITIONS) -> None:
    """Time each program at each count, float32, and write the record."""
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    space: dict[str, Any] = {"torch": torch, "layouts": layouts}
    for cell in cells:
        if "programs" in cell["metadata"].get("tags", []):
            exec("".join(cell["source"]), space)
    torch.set_num_threads(1)
    settle_allocator("kept")
    tables = space["tables"](*rotary_tables(positions, inverse_frequencies(DIM)))
    seconds = {}
    for count in COUNTS:
        x = torch.randn(count, positions, DIM)
        calls = {program.__name__: partial(program, x, *t) for program, *t in tables}
        calls["copy"] = partial(torch.empty_like(x).copy_, x)
        taken, _ = time_all(calls, torch.device("cpu"), rounds=rounds, seconds=0)
        seconds[str(count)] = {name: min(times) for name, times in taken.items()}
    sizes = {"load": os.getloadavg()[0], "positions": positions, "dim": DIM, "rounds": rounds}
    metadata = about_here(["torch"]) | sizes | {"threads": torch.get_num_threads()}
    write(path, rounded({"metadata": metadata, "seconds": seconds}))


if __name__ == "__main__":
    measure(RESULT)
