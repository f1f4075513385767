"""Run the full comparison: train and measure every run in a plan, and write one record.

Command: `python -m rope.book.training sweep`, with `--plan second` or `third`. The record is
rewritten after each run, and an interrupted sweep resumes with the missing runs. Each run uses one
thread, so its numbers don't depend on how many run at the same time. Every number is a mean over
text or questions that training didn't see.
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
from rope.book.training import second, third
from rope.book.training.corpus import Corpus, load_corpus
from rope.book.training.data import TextData
from rope.book.training.defects import DEFECTS, check_rotary, defect
from rope.book.training.experiment import PLAN, TEXT, Experiment
from rope.book.training.inside import by_distance as scores_by_distance
from rope.book.training.inside import erased, frozen, plane_norms, position_share
from rope.book.training.lengths import FACTOR, OFFSETS, by_extension, by_position, shifted
from rope.book.training.library import library_files, load_library
from rope.book.training.loop import EVALUATED, Trained, train, validation_loss

PLANS = {"first": PLAN, "second": second.SECOND, "third": third.THIRD}
DIGITS = 4  # significant digits in a recorded number
LONG_WINDOWS, BANDS = 16, 4
Entry = dict[str, Any]


def sweep(output: Path, workers: int = 2, plan: str = "first") -> Entry:
    """Train and measure the runs in a plan (a key of PLANS); write and return the record.

    The model from the first plan's first rotary run is written next to the record, as rope.pt.
    workers: the number of processes. Each run records its commit and CPU, which may differ within
    one record. Every plan but the first also records the sizes of the library's files. Finished
    runs survive any interruption, KeyboardInterrupt included, and runs that output already holds
    are not repeated. A bar on standard error counts the runs.
    Raises ValueError if output has other metadata.
    """
    runs, about = PLANS[plan], metadata(plan)
    here = {"commit": commit(), "cpu": cpu_model()}  # read now, before the tree can change
    done = _finished(output, about)
    missing = [experiment for experiment in runs if experiment not in done]
    output.parent.mkdir(parents=True, exist_ok=True)

    def record() -> Entry:
        whole: Entry = {"metadata": about, "runs": [done[key] for key in runs if key in done]}
        if plan != "first":
            whole["files"] = {name: len(text) for name, text in library_files().items()}
        return whole

    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_prepare)
    try:
        weights = output.with_name("rope.pt")
        running = {pool.submit(run, key, weights, plan): key for key in missing}
        ended = as_completed(running)
        for future in tqdm(ended, total=len(runs), initial=len(runs) - len(missing), unit="run"):
            entry = future.result()  # raises if a worker was killed
            done[running[future]] = entry | here
            write(output, record())
    finally:
        pool.shutdown(cancel_futures=True)
    return record()


def run(experiment: Experiment, weights: Path, plan: str = "first") -> Entry:
    """Train and measure one run. If it is TEXT, also write its model to the path `weights`."""
    trained = train(experiment, progress=False)
    if plan == "second":
        return rounded(basics(trained) | second.measure(trained), DIGITS)
    if plan == "third":
        return rounded(basics(trained) | third.measure(trained), DIGITS)
    if experiment == TEXT:
        keep(trained, weights)
    thoroughly = replace(experiment, seed=0) == TEXT
    return rounded(measure(trained, thoroughly=thoroughly), DIGITS)


def metadata(plan: str = "first") -> Entry:
    """Return the metadata that all runs share: corpora, versions, and command."""

    def about(corpus: Corpus) -> Entry:
        return {
            "characters": len(corpus.training) + len(corpus.validation),
            "kinds": len(corpus.vocabulary),
            "sha256": corpus.sha256,
        }

    command, found = "python -m rope.book.training sweep", {"corpus": about(load_corpus())}
    if plan != "first":
        command += f" --plan {plan}"
        library = {"files": len(library_files()), "validation": len(load_library().validation)}
        found["library"] = about(load_library()) | library
    here = about_here(("torch",))
    for several in ("commit", "cpu", "platform"):
        del here[several]
    return {"command": command, "threads": 1, **found, **here}


def basics(trained: Trained) -> Entry:
    """Return the start of every entry: the experiment, the parameter count, the loss curve."""
    model = trained.model
    return {
        "experiment": asdict(model.experiment),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "curve": {name: [line[name] for line in trained.metrics] for name in ("step", "loss")},
    }


def measure(trained: Trained, *, thoroughly: bool = False) -> Entry:
    """Return a run's entry in the first record: curve, final loss, loss by position.

    thoroughly: for a rotary model, also measure its planes, the cost of known mistakes, and the
    context extensions.
    """
    model, data = trained.model, trained.data
    assert isinstance(data, TextData)
    context = model.experiment.context
    long = min(LONG_WINDOWS, data.window_count(FACTOR * context))
    entry: Entry = {
        **basics(trained),
        "loss": validation_loss(model, data, data.window_count(context)),
        "by_position": by_position(model, data, long),
    }
    if thoroughly:
        entry["inside"] = _inside(trained)
        entry["defects"] = {"none": validation_loss(model, data)}
        entry["shifted"] = {"offset": list(OFFSETS), "loss": {"exact": shifted(model, data)}}
        for name in DEFECTS:
            with defect(model, name):
                entry["defects"][name] = validation_loss(model, data)
                if name.startswith(("bf16", "float32")):  # rounding errors grow with positions
                    entry["shifted"]["loss"][name] = shifted(model, data)
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


def _inside(trained: Trained) -> Entry:
    """Return norms, scores by distance, and the rise in loss without each plane, in nats."""
    model, data = trained.model, trained.data
    inputs, _ = data.validation(EVALUATED, model.experiment.context)
    q_norm, k_norm = plane_norms(model, inputs)
    score, weight = scores_by_distance(model, inputs)
    planes = range(check_rotary(model).dim // 2)
    width = len(planes) // BANDS
    bands = [planes[start : start + width] for start in planes[::width]]
    plain = validation_loss(model, data)
    found: Entry = {
        "q_norm": q_norm.tolist(),
        "k_norm": k_norm.tolist(),
        "score": score.tolist(),
        "weight": weight.tolist(),
        "position_share": position_share(model, inputs).tolist(),
    }
    for name, change in (("frozen", frozen), ("erased", erased)):
        for suffix, groups in (("", [[plane] for plane in planes]), ("_bands", bands)):
            found[name + suffix] = losses = []
            for group in groups:
                with change(model, group):
                    losses.append(validation_loss(model, data) - plain)
    return found
