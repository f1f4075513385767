"""Run the full comparison: train and measure every run in `PLAN`, and write one record.

Command: `python -m rope.book.training sweep`. The record is rewritten after each run, and an
interrupted sweep resumes with the missing runs. Each run uses one thread, so its numbers don't
depend on how many run at the same time. Every number is a mean over text that training didn't see.
"""

import json
import os
import signal
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from tqdm import tqdm

from rope.book.measured.machine import about_here, commit, cpu_model
from rope.book.measured.record import rounded, write
from rope.book.training.corpus import load_corpus
from rope.book.training.data import TextData
from rope.book.training.experiment import PLAN, TEXT, Experiment
from rope.book.training.lengths import FACTOR, by_extension, by_position
from rope.book.training.loop import Trained, train, validation_loss

DIGITS = 4  # significant digits in a recorded number
LONG_WINDOWS = 16
Entry = dict[str, Any]


def sweep(output: Path, workers: int = 2) -> Entry:
    """Train and measure the runs in PLAN; write and return the record.

    The model from the first rotary run is written next to the record, as rope.pt. workers: the
    number of processes. Each run records its commit and CPU, which may differ within one record.
    Finished runs survive any interruption, KeyboardInterrupt included, and runs that output already
    holds are not repeated. A bar on standard error counts the runs.
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
        weights = output.with_name("rope.pt")
        running = {pool.submit(run, key, weights): key for key in missing}
        ended = as_completed(running)
        for future in tqdm(ended, total=len(PLAN), initial=len(PLAN) - len(missing), unit="run"):
            entry = future.result()  # raises if a worker was killed
            done[running[future]] = entry | here
            write(output, record())
    finally:
        pool.shutdown(cancel_futures=True)
    return record()


def run(experiment: Experiment, weights: Path) -> Entry:
    """Train and measure one run. If it is TEXT, also write its model to the path `weights`."""
    trained = train(experiment, progress=False)
    if experiment == TEXT:
        keep(trained, weights)
    entry = measure(trained, extensions=replace(experiment, seed=0) == TEXT)
    return rounded(entry, DIGITS)


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


def measure(trained: Trained, *, extensions: bool = False) -> Entry:
    """Return a run's entry: experiment, parameter count, curve, final loss, loss by position.

    extensions: for a rotary model, also measure the context extensions.
    """
    model, data = trained.model, trained.data
    assert isinstance(data, TextData)
    context = model.experiment.context
    long = min(LONG_WINDOWS, data.window_count(FACTOR * context))
    entry: Entry = {
        "experiment": asdict(model.experiment),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "curve": {name: [line[name] for line in trained.metrics] for name in ("step", "loss")},
        "loss": validation_loss(model, data, data.window_count(context)),
        "by_position": by_position(model, data, long),
    }
    if extensions:
        entry["extensions"] = by_extension(trained, long)
    return entry


def keep(trained: Trained, output: Path, windows: int = 32) -> None:
    """Write a model of text as the small file that `rope.book.training.results.trained` reads."""
    model, data = trained.model, trained.data
    assert isinstance(data, TextData)
    inputs, targets = data.validation(windows, model.experiment.context)
    fresh = output.with_suffix(".new")
    torch.save(
        {
            "experiment": asdict(model.experiment),
            "weights": {name: weight.half() for name, weight in model.state_dict().items()},
            "vocabulary": data.corpus.vocabulary,
            "sha256": data.corpus.sha256,
            "inputs": inputs.to(torch.uint8),
            "targets": targets.to(torch.uint8),
        },
        fresh,
    )
    os.replace(fresh, output)


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
