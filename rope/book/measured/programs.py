"""Time the programs in the chapter "From maths to PyTorch" for several numbers of vectors.

`python -m rope.book.measured.programs` takes the programs from the chapter's cells tagged
"programs", times them and a copy of the same vectors on one thread, and writes the record. Each
result is the shortest of many times, because other work on the machine only lengthens a run.
"""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rope import layouts
from rope.book.measured.machine import about_here
from rope.book.measured.meters import settle_allocator, time_all
from rope.book.measured.record import RECORDED, rounded, write
from rope.frequencies import inverse_frequencies, rotary_tables

CHAPTER = Path(__file__).parents[3] / "chapters/from_maths_to_pytorch.ipynb"
COUNTS = (6, 32, 256)  # vectors per position: batch times heads
POSITIONS, DIM, ROUNDS = 256, 128, 300


def measure(path: Path, rounds: int = ROUNDS, positions: int = POSITIONS) -> None:
    """Time each program for each count of vectors in float32, and write the record.

    The record has two keys. "seconds" maps each count and program to its time. "metadata" describes
    the machine and the settings.
    """
    namespace: dict[str, Any] = {"torch": torch, "layouts": layouts}
    for cell in json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]:
        if "programs" in cell["metadata"].get("tags", []):
            exec("".join(cell["source"]), namespace)
    torch.set_num_threads(1)
    settle_allocator("kept")
    tables = namespace["tables"](*rotary_tables(positions, inverse_frequencies(DIM)))
    seconds = {}
    for count in COUNTS:
        x = torch.randn(count, positions, DIM)
        calls = {program.__name__: partial(program, x, *t) for program, *t in tables}
        calls["copy"] = partial(torch.empty_like(x).copy_, x)
        times, _ = time_all(calls, torch.device("cpu"), rounds=rounds, seconds=0)
        seconds[str(count)] = {name: min(taken) for name, taken in times.items()}
    sizes = {"load": os.getloadavg()[0], "positions": positions, "dim": DIM, "rounds": rounds}
    metadata = about_here(["torch"]) | sizes | {"threads": torch.get_num_threads()}
    write(path, rounded({"metadata": metadata, "seconds": seconds}))


if __name__ == "__main__":
    measure(RECORDED / "programs.json")
