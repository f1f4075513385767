"""Repeat the training runs recorded for "What training shows", and write a new record.

`python -m rope.book.training` repeats every run in `recorded/sweep.json`, which takes a few hours.
To continue an interrupted run, repeat the command. Each loss is a mean over unseen text.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from rope.book.measured.machine import about_here
from rope.book.measured.record import run_jobs
from rope.book.training.experiment import Experiment
from rope.book.training.loop import token_losses, train, validation_loss
from rope.book.training.results import recorded

LONG_WINDOWS = 16


def repeated(run: dict[str, Any]) -> dict[str, Any]:
    """Train a recorded run's model again, and return the new entry, with the same keys."""
    trained = train(Experiment(**run["experiment"]))
    model, data = trained.model, trained.data
    entry = {
        "experiment": run["experiment"],
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "curve": {name: [line[name] for line in trained.metrics] for name in ("step", "loss")},
        "loss": validation_loss(model, data, data.window_count(model.experiment.context)),
    }
    if "by_position" in run:
        edges = run["by_position"]["edges"]
        rows = zip(*(x.split(1) for x in data.validation(LONG_WINDOWS, edges[-1])), strict=True)
        losses = torch.cat([token_losses(model, *row) for row in rows]).double()  # [B, S]
        means = [losses[:, low:high].mean().item() for low, high in pairwise(edges)]
        entry["by_position"] = {"edges": edges, "loss": means}
    return entry


if __name__ == "__main__":
    torch.set_num_threads(1)  # so that sums are added in the same order on every machine
    about = about_here(("torch",))
    jobs = {
        json.dumps(run["experiment"]): lambda run=run: repeated(run) for run in recorded()["runs"]
    }
    assemble = lambda done: {"metadata": about, "runs": [*done.values()]}
    run_jobs(Path("sweep.json"), json.dumps(about), jobs, assemble, digits=4)
