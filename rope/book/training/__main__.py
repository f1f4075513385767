"""Train and measure the small language models of "What training shows", and write the record.

`python -m rope.book.training sweep` resumes after an interruption. It takes a few hours.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rope.book.training.sweep import sweep


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m rope.book.training", description=__doc__)
    parser.add_argument("command", choices=["sweep"], help="train and measure every run")
    parser.add_argument("--output", type=Path, default=Path("sweep.json"), help="(%(default)s)")
    sweep(parser.parse_args(arguments).output)


if __name__ == "__main__":
    main()
