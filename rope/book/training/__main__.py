"""Train small language models that differ in how they encode positions.

`python -m rope.book.training train --position rope` trains one model. `sweep` produces the recorded
comparison and resumes after an interruption.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from rope.book.training.experiment import CHOICES, Experiment


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if it succeeds, 1 after a printed error, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except KeyboardInterrupt:
        print("\nInterrupted; only a sweep can resume: run the command again.", file=sys.stderr)
        return 130
    except (ValueError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _train(options: argparse.Namespace) -> None:
    from rope.book.training.loop import train

    chosen = {field.name: getattr(options, field.name) for field in fields(Experiment)}
    experiment = Experiment(**chosen)
    trained = train(experiment, device=options.device)
    print(json.dumps({"experiment": asdict(experiment), **trained.metrics[-1]}))


def _sweep(options: argparse.Namespace) -> None:
    from rope.book.training.sweep import sweep

    sweep(options.output, options.workers)
    print(f"Wrote {options.output}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rope.book.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="train | sweep")

    one = commands.add_parser("train", help="train one model and print its last line of metrics")
    one.set_defaults(command=_train)
    for field in fields(Experiment):
        name, default = "--" + field.name.replace("_", "-"), field.default
        if isinstance(default, bool):
            one.add_argument(name, action=argparse.BooleanOptionalAction, default=default)
        else:
            choices, kind = CHOICES.get(field.name), type(default)
            one.add_argument(
                name, default=default, type=kind, choices=choices, help="(%(default)s)"
            )
    one.add_argument("--device", default="cpu", help="(%(default)s)")

    whole = commands.add_parser("sweep", help="train and measure every run of the comparison")
    whole.set_defaults(command=_sweep)
    whole.add_argument("--output", type=Path, default=Path("sweep.json"), help="(%(default)s)")
    whole.add_argument("--workers", type=int, default=2, help="number of processes (%(default)s)")

    return parser


if __name__ == "__main__":
    sys.exit(main())
