"""Train and measure the small language models of "What training shows", and write the record.

`python -m rope.book.training sweep` resumes after an interruption. It takes a few hours.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rope.book.training.sweep import sweep


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if it succeeds, and 1 after a printed error."""
    parser = argparse.ArgumentParser(prog="python -m rope.book.training", description=__doc__)
    parser.add_argument("command", choices=["sweep"], help="train and measure every run")
    parser.add_argument("--output", type=Path, default=Path("sweep.json"), help="(%(default)s)")
    options = parser.parse_args(arguments)
    try:
        sweep(options.output)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"Wrote {options.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
