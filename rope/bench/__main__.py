"""`python -m rope.bench` times the rotation, ours and the field's, and writes a record."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from rope.bench import cases
from rope.bench.competitors import competitors
from rope.bench.record import run
from rope.bench.report import ratios, summary
from rope.bench.timing import QUICK, REPEATED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases, print the table; 130 when interrupted, as shells have it."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device is cuda and torch finds no such device: leave it out, or pass cpu")
    if options.threads is not None and options.threads < 1:
        parser.error(f"--threads is {options.threads}; it must be at least 1: leave it out for all")
    grid = "quick" if options.quick else "bars" if options.bars else "full"
    every = {"quick": cases.quick, "bars": cases.bars, "full": cases.full}[grid](options.device)
    chosen = [case for case in every if options.only in case.name]
    if not chosen:
        parser.error(
            f"--only is {options.only!r} and no case of the {grid} grid has it in its name; one is "
            f"named {every[0].name!r}: pass a part of a name"
        )
    if options.plot is not None and find_spec("matplotlib") is None:
        parser.error("--plot needs Matplotlib, which is not installed: leave it out")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    output = options.output or Path(f"bench-{grid}-{options.device}.json")
    try:
        record = run(
            output,
            chosen,
            competitors(),
            device=torch.device(options.device),
            effort=QUICK if options.quick else REPEATED,
            command=_command(options),
        )
    except KeyboardInterrupt:
        print("\nInterrupted; run it again and it goes on from here.", file=sys.stderr)
        return 130
    print(summary(record))
    print(f"Wrote {output}", file=sys.stderr)
    if options.plot is not None:
        from rope.figures.speed import against_copy

        options.plot.write_text(against_copy(ratios(record)).svg, encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rope.bench", description=__doc__)
    grid = parser.add_mutually_exclusive_group()
    grid.add_argument("--quick", action="store_true", help="a few small cases, in under a minute")
    grid.add_argument("--bars", action="store_true", help="only the cases that the bars name")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="where to run (%(default)s)",
    )
    parser.add_argument(
        "--output",
        metavar="PATH",
        type=Path,
        help="the record to write (bench-GRID-DEVICE.json here)",
    )
    parser.add_argument(
        "--plot", metavar="PATH", type=Path, help="draw the times over a copy's, as SVG, as well"
    )
    parser.add_argument(
        "--only",
        metavar="SUBSTRING",
        default="",
        help="only cases whose name has this in it, such as 'decode' or 'bfloat16 half, forward'",
    )
    parser.add_argument(
        "--threads", metavar="N", type=int, help="of the CPU; torch's choice if not"
    )
    return parser


def _command(options: argparse.Namespace) -> str:
    """What was asked for, without where it was written."""
    words = ["python -m rope.bench", f"--device {options.device}"]
    words += [f"--{name}" for name in ("quick", "bars") if getattr(options, name)]
    if options.only:
        words.append(f"--only {options.only!r}")
    if options.threads is not None:
        words.append(f"--threads {options.threads}")
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(main())
