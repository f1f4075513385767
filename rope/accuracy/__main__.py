"""`python -m rope.accuracy` writes accuracy.json here; `--quick PATH` a part of it to PATH."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rope.accuracy import RESULT
from rope.accuracy.report import measure


def main(arguments: list[str] | None = None) -> int:
    """Run the measurements; 130 when interrupted, as shells have it."""
    parser = argparse.ArgumentParser(prog="python -m rope.accuracy", description=__doc__)
    parser.add_argument(
        "--quick",
        metavar="PATH",
        type=Path,
        help="measure the tables at sampled positions alone and write to PATH",
    )
    path = parser.parse_args(arguments).quick
    try:
        measure(path or RESULT, quick=path is not None)
    except KeyboardInterrupt:
        print("\nInterrupted; run it again and it goes on from here.", file=sys.stderr)
        return 130
    print(f"Wrote {path or RESULT}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
