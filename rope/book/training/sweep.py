"""Run the full comparison: train and measure every run in `PLAN`, and write one record.

Command: `python -m rope.book.training sweep`. The record is rewritten after each run, and an
interrupted sweep resumes with the missing runs. Each run uses one thread, so its numbers don't
depend on how many run at the same time. Every number is a mean over text that training didn't see.
"""

import json
import os
import signal
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from itertools import pairwise
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from tqdm import tqdm

from rope.book.measured.machine import about_here, commit, cpu_model
from rope.book.measured.record import rounded, write
from rope.book.training.corpus import load_corpus
from rope.book.training.data import IGNORED, Data, TextData
from rope.book.training.decoder import Decoder
from rope.book.training.experiment import PLAN, Experiment
from rope.book.training.loop import Trained, token_losses, train, validation_loss

FACTOR = 16  # length of the validation windows / trained context
SHARES = (0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 5 / 4, 3 / 2, 2, 3, 4, 6, 8, 10, 12, 14, 16)
DIGITS = 4  # significant digits in a recorded number
LONG_WINDOWS = 16
Entry = dict[str, Any]


def sweep(output: Path, workers: int = 2) -> Entry:
    """Train and measure the runs in PLAN; write and return the record.

    workers: the number of processes. Each run records its commit and CPU, which may differ within
    one record. Finished runs survive any interruption, KeyboardInterrupt included, and runs that
    output already holds are not repeated. A bar on standard error counts the runs.
    Raises ValueError if output has other metadata.
    """
    about = metadata()
    here = {"commit": commit(), "cpu": cpu_model()}  # read now, before the tree can change
    done = _finished(output, about)
    missing = [experiment for experiment in PLAN if experiment not in done]
    output.parent.mkdir(parents=True, exist_ok=True)

    def record() -> Entry:
        return {"metadata": about, "runs": [done[key] for key in PLAN if key in done]}

    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_prepare)
    try:
        running = {pool.submit(run, key): key for key in missing}
        ended = as_completed(running)
        for future in tqdm(ended, total=len(PLAN), initial=len(PLAN) - len(missing), unit="run"):
            entry = future.result()  # raises if a worker was killed
            done[running[future]] = entry | here
            write(output, record())
    finally:
        pool.shutdown(cancel_futures=True)
    return record()


def run(experiment: Experiment) -> Entry:
    """Train and measure one run."""
    return rounded(measure(train(experiment, progress=False)), DIGITS)


def metadata() -> Entry:
    """Return the metadata that all runs share: corpus, versions, and command."""
    corpus = load_corpus()
    here = about_here(("torch",))
    for several in ("commit", "cpu", "platform"):
        del here[several]
    return {
        "command": "python -m rope.book.training sweep",
        "threads": 1,
        "corpus": {
            "characters": len(corpus.training) + len(corpus.validation),
            "kinds": len(corpus.vocabulary),
            "sha256": corpus.sha256,
        },
        **here,
    }


def measure(trained: Trained) -> Entry:
    """Return a run's entry: experiment, parameter count, curve, final loss, loss by position."""
    model, data = trained.model, trained.data
    assert isinstance(data, TextData)
    context = model.experiment.context
    long = min(LONG_WINDOWS, data.window_count(FACTOR * context))
    return {
        "experiment": asdict(model.experiment),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "curve": {name: [line[name] for line in trained.metrics] for name in ("step", "loss")},
        "loss": validation_loss(model, data, data.window_count(context)),
        "by_position": by_position(model, data, long),
    }


def edges(context: int) -> list[int]:
    """Return the edges of the position bins, from 0 to 16 contexts, with narrow bins first.

    >>> edges(128)[:8], edges(128)[-1]
    ([0, 16, 32, 64, 96, 128, 160, 192], 2048)
    """
    return [int(share * context) for share in SHARES]


def by_position(model: Decoder, data: Data, sequences: int) -> dict[str, list[Any]]:
    """Return the mean loss in each position bin, in nats per token.

    Returns `edges` and `loss`, with None for bins that the model can't read (learned vectors end at
    the trained context).
    """
    context = model.experiment.context
    bounds = edges(context)
    reach = model.positions.reach or bounds[-1]
    inputs, targets = data.validation(sequences, bounds[-1])
    rows = zip(inputs[:, :reach].split(1), targets[:, :reach].split(1), strict=True)
    losses = torch.cat([token_losses(model, *row).cpu() for row in rows])  # [B, S]
    result: dict[str, list[Any]] = {"edges": bounds, "loss": []}
    for low, high in pairwise(bounds):
        asked = targets[:, low:high] != IGNORED
        readable = high <= reach and bool(asked.any())
        part = losses[:, low:high][asked].double().mean().item() if readable else None
        result["loss"].append(part)
    return result


def _finished(output: Path, about: Entry) -> dict[Experiment, Entry]:
    """Return the runs in the record of an earlier sweep with the same metadata."""
    if not output.exists():
        return {}
    found = json.loads(output.read_text(encoding="utf-8"))
    for name, here in about.items():
        if (there := found["metadata"].get(name)) != here:
            raise ValueError(
                f"{output} was written with {name} {there!r}, but this sweep has {here!r}; a "
                "record must have only one: pass another output, or delete this one"
            )
    return {Experiment(**entry["experiment"]): entry for entry in found["runs"]}


def _prepare() -> None:
    """Set up a worker: one thread, and an immediate end on an interrupt or with its parent."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_end_with, args=(parent_process(),), daemon=True).start()


def _end_with(parent: Any) -> None:
    """Wait until the parent ends, then exit, because nobody would record the run."""
    parent.join()
    os._exit(1)
