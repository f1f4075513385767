"""Download SmolLM2-135M, or measure it.

`python -m rope.book.model` downloads the model if necessary and prints the file's path. `losses`
measures what each named change of the rotation costs. `lengths` measures methods for texts longer
than the trained length. Repeat an interrupted measurement to continue it.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rope.book.model.weights import ModelMissing, model_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 after printing why there is no model."""
    parser = argparse.ArgumentParser(
        prog="python -m rope.book.model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=("losses", "lengths"))
    parser.add_argument("names", nargs="*", help="names of changes or methods (all of them)")
    parser.add_argument("--output", type=Path, default=Path("measured.json"), help="(%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        print(model_file())
        if options.command:
            _measure(options)
    except (ModelMissing, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _measure(options: argparse.Namespace) -> None:
    from rope.book.model import lengths, losses
    from rope.book.model.changes import CHANGES

    if options.command == "losses":
        names = options.names or CHANGES
        losses.measure(options.output, names=names, workers=options.workers)
    else:
        names, places = options.names or lengths.METHODS, [(text,) for text in losses.TEXTS]
        losses.measure(options.output, lengths.block_losses, names, places, options.workers)


if __name__ == "__main__":
    sys.exit(main())
