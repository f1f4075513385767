"""The whole comparison: train every run of the plan, measure each, and write one record.

`python -m rope.training sweep`. Each run has a folder, and each measurement a file in it; a sweep
that was stopped goes on from there. Runs are trained on one thread each, several at a time, so
that their numbers do not depend on how many there are.
"""

import hashlib
import json
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from rope.measuring.machine import about_here
from rope.measuring.record import rounded, write
from rope.training.config import Experiment
from rope.training.corpus import load_corpus
from rope.training.data import TextData
from rope.training.loop import Trained, train
from rope.training.plan import PLAN, TEXT, experiments

DIGITS = 4  # of a recorded number
#: Raise it when an entry changes its meaning: entries of another version are measured again.
VERSION = 2
#: The files that an entry depends on. Where one of the first changes what a run comes out as, raise
#: `rope.training.checkpoint.VERSION` as well: runs are then trained anew.
MODEL = ("corpus.py", "data.py", "decoder.py", "loop.py", "positions.py")
MEASURES, THOROUGH = ("lengths.py", "measure.py"), ("defects.py", "inside.py")


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
    about = metadata(parts)  # of the code that runs, not of what stands there hours later
    jobs = [(experiment, folder) for experiment in wanted]
    entries: dict[str, dict[str, Any]] = {}
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        with tqdm(total=len(jobs), unit="run") as bar:
            for done in as_completed([pool.submit(_one, job) for job in jobs]):
                key, entry = done.result()  # raises where a worker was killed
                entries[key] = entry
                bar.set_description(f"last {_label(entry['experiment'])}")
                bar.update()
    finally:
        pool.shutdown(cancel_futures=True)
    record = {
        "metadata": about,
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
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # it ends at once; the parent says what is kept
    experiment, folder = job
    return experiment.key(), measured(experiment, folder)


def _label(experiment: dict[str, Any]) -> str:
    return Experiment(**experiment).name


def _program(thoroughly: bool) -> str:
    """A hash of the code that an entry comes from, and of the torch that ran it."""
    digest = hashlib.sha256(f"{VERSION} {torch.__version__}".encode())
    for name in MODEL + MEASURES + thoroughly * THOROUGH:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()


def load(path: Path) -> Trained:
    """A finished run of a sweep, from its folder; ValueError for one that is not finished."""
    kept = torch.load(path / "checkpoint.pt", weights_only=True)
    experiment = Experiment(**kept["experiment"])
    if kept["step"] != experiment.steps:
        raise ValueError(
            f"{path} stands at step {kept['step']}; it must have gone {experiment.steps}: run the "
            "sweep again"
        )
    return train(experiment, folder=path, progress=False)


def keep(folder: Path, output: Path, windows: int = 32) -> None:
    """Write a finished run as the small file that `rope.training.results.trained` reads."""
    run = load(folder)
    assert isinstance(run.data, TextData)
    corpus = run.data.corpus
    inputs, targets = run.data.validation(windows, run.model.experiment.context)
    fresh = output.with_suffix(".new")
    torch.save(
        {
            "experiment": run.model.experiment.as_dict(),
            "weights": {name: weight.half() for name, weight in run.model.state_dict().items()},
            "vocabulary": corpus.vocabulary,
            "sha256": corpus.sha256,
            "inputs": inputs.to(torch.uint8),
            "targets": targets.to(torch.uint8),
        },
        fresh,
    )
    os.replace(fresh, output)
