"""The whole comparison: train every run of the plan, measure each, and write one record.

`python -m rope.training sweep`. Each run has a folder, and each measurement a file in it; a sweep
that was stopped goes on from there. Runs are trained on one thread each, several at a time, so
that their numbers do not depend on how many there are.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from rope._machine import about_here
from rope._record import rounded, write
from rope.training.config import Experiment
from rope.training.corpus import load_corpus
from rope.training.loop import Trained, train
from rope.training.plan import PLAN, TEXT, experiments
from rope.training.results import keep

DIGITS = 4  # of a recorded number
#: Raise it when an entry changes its meaning: entries of another version are measured again.
VERSION = 1


def sweep(
    output: Path, folder: Path, *, parts: Sequence[str] = tuple(PLAN), workers: int = 2
) -> dict[str, Any]:
    """Train and measure the runs of these parts of the plan; returns the record, written to output.

    The model of the first rotary run is written beside it, small, as rope.pt.

    folder: holds a folder a run, with its checkpoint, metrics and measurements. workers: processes.
    Whatever stops it, KeyboardInterrupt included, all that is done is kept. Progress goes to
    standard error. Raises ValueError for a part that the plan has not.
    """
    from tqdm import tqdm

    strange = [part for part in parts if part not in PLAN]
    if strange:
        raise ValueError(f"parts holds {strange[0]!r}; the plan has {', '.join(PLAN)}")
    wanted = experiments(tuple(parts))
    load_corpus()  # a missing one is named before any work begins
    jobs = [(experiment, folder) for experiment in wanted]
    entries: dict[str, dict[str, Any]] = {}
    with get_context("spawn").Pool(workers) as pool, tqdm(total=len(jobs), unit="run") as bar:
        for key, entry in pool.imap_unordered(_one, jobs):
            entries[key] = entry
            bar.set_description(f"last {_label(entry['experiment'])}")
            bar.update()
    record = {
        "metadata": metadata(parts),
        "runs": [entries[experiment.key()] for experiment in wanted],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    write(output, record)
    if TEXT in wanted:
        keep(run_folder(TEXT, folder), output.with_name("rope.pt"))
    return record


def metadata(parts: Sequence[str]) -> dict[str, Any]:
    """What the numbers depend on and can be known: corpus, versions, machine, command."""
    corpus = load_corpus()
    return {
        "command": "python -m rope.training sweep"
        + ("" if tuple(parts) == tuple(PLAN) else " --parts " + " ".join(parts)),
        "corpus": {
            "characters": len(corpus.training) + len(corpus.validation),
            "kinds": len(corpus.vocabulary),
            "sha256": corpus.sha256,
        },
        "parts": list(parts),
        "threads": 1,
        **about_here(("torch",)),
    }


def measured(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """The entry of one run: read, where it was measured before, or else trained and measured."""
    from rope.training.measure import measure

    place = run_folder(experiment, folder)
    kept = place / "measured.json"
    thoroughly = _thoroughly(experiment)
    program = _program(thoroughly)
    if kept.exists():
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["program"] == program:
            return found["entry"]
    trained = train(experiment, folder=place, progress=False, every=50)
    entry = rounded(measure(trained, thoroughly=thoroughly), DIGITS)
    write(kept, {"program": program, "entry": entry})
    return entry


def run_folder(experiment: Experiment, folder: Path) -> Path:
    """Where a run of the sweep keeps its files."""
    return folder / f"{experiment.name}-{experiment.key()}"


def _thoroughly(experiment: Experiment) -> bool:
    """Whether it is one of the plain rotary text models, seed aside."""
    return replace(experiment, seed=0) == Experiment()


def _one(job: tuple[Experiment, Path]) -> tuple[str, dict[str, Any]]:
    torch.set_num_threads(1)
    experiment, folder = job
    try:
        return experiment.key(), measured(experiment, folder)
    except KeyboardInterrupt:  # the parent says so; a traceback from each worker says no more
        sys.exit(130)


def _label(experiment: dict[str, Any]) -> str:
    return Experiment(**experiment).name


def _program(thoroughly: bool) -> str:
    """A hash of the code that an entry comes from."""
    digest = hashlib.sha256(str(VERSION).encode())
    names = ["measure.py", "lengths.py"] + thoroughly * ["inside.py", "defects.py"]
    for name in names:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()


def load(path: Path) -> Trained:
    """A finished run of a sweep, from its folder."""
    kept = torch.load(path / "checkpoint.pt", weights_only=True)
    return train(Experiment(**kept["experiment"]), folder=path, progress=False)
