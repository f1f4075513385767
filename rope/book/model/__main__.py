"""Download SmolLM2-135M, or measure it.

`python -m rope.book.model` downloads the model if necessary and prints the file's path. `losses`
measures the cost of each change to the rotation. `scores` measures one head's scores and bounds by
distance. `keys` measures the errors of moved keys. The other commands read texts longer than the
trained length: `lengths` measures each method's loss, `far_keys` measures the effect of moving far
keys, and `retrieval` asks for words read long ago. To continue an interrupted measurement, repeat
the command.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rope.book.model.weights import ModelMissing, model_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return 0, or print an error and return 1."""
    parser = argparse.ArgumentParser(
        prog="python -m rope.book.model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = ("losses", "scores", "keys", "lengths", "far_keys", "retrieval")
    parser.add_argument("command", nargs="?", choices=commands)
    parser.add_argument("names", nargs="*", help="what to measure (default: all)")
    parser.add_argument("--output", type=Path, help="(default: the record's name, in this folder)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: %(default)s)")
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
    from rope.book.model import far_keys, heads, lengths, losses, retrieval, reuse
    from rope.book.model.changes import CHANGES

    texts = [(text,) for text in losses.TEXTS]
    programs: dict[str, Any] = {
        "losses": (losses.window_loss, CHANGES, losses.PLACES),
        "scores": (heads.scores_and_bounds, ["16, 0"], texts),
        "keys": (reuse.measured, reuse.NAMES, texts),
        "lengths": (lengths.block_losses, lengths.METHODS, texts),
        "far_keys": (far_keys.far_loss, far_keys.NAMES, texts),
        "retrieval": (
            retrieval.found,
            retrieval.NAMES,
            [(text, draw) for draw in range(2) for text in losses.TEXTS],
        ),
    }
    function, names, places = programs[options.command]
    record = "real_model" if options.command == "losses" else f"real_model_{options.command}"
    output = options.output or Path(f"{record}.json")
    losses.measure(output, function, options.names or names, places, options.workers)


if __name__ == "__main__":
    sys.exit(main())
