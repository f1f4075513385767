"""Train small language models that differ in how they know positions.

`python -m rope.training train --position rope` trains one; `sweep` makes the recorded comparison;
`cost` times a step and an attention layer. A sweep, and a training with a folder, go on where they
were stopped.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from rope.training.config import ATTENTIONS, TASKS, Experiment
from rope.training.positions import POSITIONS

CHOICES = {"task": TASKS, "attention": ATTENTIONS, "position": tuple(POSITIONS)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked; 130 when interrupted, as shells have it, 1 with a sentence when not."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except KeyboardInterrupt:
        kept = getattr(options, "folder", None) is not None
        after = "run it again and it goes on from here" if kept else "nothing was kept"
        print(f"\nInterrupted; {after}.", file=sys.stderr)
        return 130
    except (ValueError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _train(options: argparse.Namespace) -> int:
    from rope.training.corpus import corpus_of
    from rope.training.loop import train

    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device is cuda and torch finds no such device: leave it out")
    experiment = Experiment(
        **{field.name: getattr(options, field.name) for field in fields(Experiment)}
    )
    corpus = None
    if options.corpus is not None:
        corpus = corpus_of(_text(options.corpus))
    run = train(
        experiment,
        corpus=corpus,
        folder=options.folder,
        device=options.device,
        compiled=options.compile,
    )
    print(json.dumps({"experiment": experiment.as_dict(), **run.metrics[-1]}))
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--corpus {path} cannot be read: {error}") from error


def _sweep(options: argparse.Namespace) -> int:
    from rope.training.sweep import sweep

    if options.workers < 1:
        raise ValueError(f"--workers is {options.workers}; it must be at least 1")
    sweep(options.output, options.folder, parts=options.parts, workers=options.workers)
    print(f"Wrote {options.output}", file=sys.stderr)
    return 0


def _cost(options: argparse.Namespace) -> int:
    from rope.measuring.machine import about_here
    from rope.measuring.record import rounded, write
    from rope.training.cost import costs

    found: dict[str, Any] = {"metadata": about_here(("torch",)), **costs()}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write(options.output, rounded(found))
    print(f"Wrote {options.output}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    from rope.training.plan import PLAN

    parser = argparse.ArgumentParser(
        prog="python -m rope.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="train | sweep | cost")

    one = commands.add_parser("train", help="train one model and print its last line of metrics")
    one.set_defaults(command=_train)
    usual = Experiment()
    for field in fields(Experiment):
        default = getattr(usual, field.name)
        name = "--" + field.name.replace("_", "-")
        if isinstance(default, bool):
            one.add_argument(name, action=argparse.BooleanOptionalAction, default=default)
        else:
            one.add_argument(
                name,
                type=type(default),
                default=default,
                choices=CHOICES.get(field.name),
                help="(%(default)s)",
            )
    one.add_argument("--corpus", type=Path, metavar="FILE", help="a text to train on, in UTF-8")
    one.add_argument("--folder", type=Path, help="keep checkpoints and metrics here, and resume")
    one.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(%(default)s)")
    one.add_argument("--compile", action="store_true", help="train through torch.compile")

    whole = commands.add_parser("sweep", help="train and measure every run of the plan")
    whole.set_defaults(command=_sweep)
    whole.add_argument("--output", type=Path, default=Path("sweep.json"), help="(%(default)s)")
    whole.add_argument("--folder", type=Path, default=Path("runs"), help="(%(default)s)")
    whole.add_argument("--workers", type=int, default=2, help="processes (%(default)s)")
    whole.add_argument("--parts", nargs="+", choices=tuple(PLAN), default=tuple(PLAN))

    cost = commands.add_parser("cost", help="time a training step and an attention layer")
    cost.set_defaults(command=_cost)
    cost.add_argument("--output", type=Path, default=Path("cost.json"), help="(%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
