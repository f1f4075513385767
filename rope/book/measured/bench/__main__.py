"""`python -m rope.book.measured.bench` times the rotation and its rivals, and writes a record."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from rope.book.measured.bench import cases
from rope.book.measured.bench.field import FIELD
from rope.book.measured.bench.report import table
from rope.book.measured.bench.run import FULL, QUICK, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases, print the table; 130 when interrupted, as shells have it."""
    parser = argparse.ArgumentParser(prog="python -m rope.book.measured.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few small cases, in under a minute")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="where to run (%(default)s)",
    )
    parser.add_argument(
        "--output", metavar="PATH", type=Path, help="the record to write (bench-DEVICE.json here)"
    )
    options = parser.parse_args(arguments)
    grid, effort = (cases.quick, QUICK) if options.quick else (cases.full, FULL)
    path = options.output or Path(f"bench-{options.device}.json")
    try:
        record = run(path, grid(options.device), FIELD, torch.device(options.device), effort)
    except KeyboardInterrupt:
        print("\nInterrupted; run it again and it goes on from here.", file=sys.stderr)
        return 130
    print(table(record))
    print(f"Wrote {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
