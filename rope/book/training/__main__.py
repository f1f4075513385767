"""Train and measure the small language models of "What training shows", and write the record.

`python -m rope.book.training sweep` runs every experiment in `PLAN`, which takes a few hours.
Repeat an interrupted sweep to continue it. Every loss is a mean over text that training didn't see.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from rope.book.measured.machine import about_here
from rope.book.measured.record import run_jobs
from rope.book.training.corpus import load_corpus
from rope.book.training.data import TextData
from rope.book.training.decoder import Decoder
from rope.book.training.experiment import PLAN, PROMPT, TEXT, WRITERS
from rope.book.training.loop import Trained, token_losses, train, validation_loss, written

SHARES = (0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 5 / 4, 3 / 2, 2, 3, 4, 6, 8, 10, 12, 14, 16)
DIGITS = 4  # significant digits in a recorded number
LONG_WINDOWS = 16
Entry = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command on one thread, so that sums are added in the same order on every machine."""
    parser = argparse.ArgumentParser(prog="python -m rope.book.training", description=__doc__)
    parser.add_argument("command", choices=["sweep"], help="train and measure every run")
    parser.add_argument("--output", type=Path, default=Path("sweep.json"), help="(%(default)s)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    corpus = load_corpus()
    about = about_here(("torch",)) | {
        "command": "python -m rope.book.training sweep",
        "threads": 1,
        "corpus": {
            "characters": len(corpus.training) + len(corpus.validation),
            "kinds": len(corpus.vocabulary),
            "sha256": corpus.sha256,
        },
    }
    jobs = {json.dumps(asdict(run)): lambda run=run: measure(train(run)) for run in PLAN}
    assemble = lambda done: {"metadata": about, "runs": [*done.values()]}
    run_jobs(options.output, json.dumps(about), jobs, assemble, DIGITS)


def measure(trained: Trained) -> Entry:
    """Return the entry of a run: experiment, parameter count, loss curve, and final loss.

    Entries of runs that differ from TEXT only in base and seed also have the loss by position.
    Entries of WRITERS also have a text.
    """
    model, data = trained.model, trained.data
    experiment = model.experiment
    entry = {
        "experiment": asdict(experiment),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "curve": {name: [line[name] for line in trained.metrics] for name in ("step", "loss")},
        "loss": validation_loss(model, data, data.window_count(experiment.context)),
    }
    if replace(experiment, base=TEXT.base, seed=TEXT.seed) == TEXT:
        entry["by_position"] = by_position(model, data)
    if experiment in WRITERS:
        entry["text"] = written(model, data.corpus, PROMPT)
    return entry


def by_position(model: Decoder, data: TextData) -> dict[str, list[Any]]:
    """Return the mean loss, in nats per token, in bins of positions up to 16 context lengths."""
    bounds = [int(share * model.experiment.context) for share in SHARES]
    inputs, targets = data.validation(LONG_WINDOWS, bounds[-1])
    rows = zip(inputs.split(1), targets.split(1), strict=True)
    losses = torch.cat([token_losses(model, *row) for row in rows]).double()  # [B, S]
    means = [losses[:, low:high].mean().item() for low, high in pairwise(bounds)]
    return {"edges": bounds, "loss": means}


if __name__ == "__main__":
    main()
