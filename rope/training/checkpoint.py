"""What a run keeps in its folder: `metrics.jsonl`, and `checkpoint.pt`, from which it goes on.

Each file is written beside its place and moved there whole, so that a run killed at any moment
leaves the last whole one. A folder is one run's at a time.
"""

import errno
import json
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rope.training.config import Experiment
from rope.training.data import Data, TextData
from rope.training.decoder import Decoder

#: Raise it when the same experiment comes out otherwise: runs of another version are refused.
VERSION = 1
PARTS = ("experiment", "model", "optimizer", "metrics", "step")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; the system lets go of it when the process ends, in any way.

    Raises ValueError while another process holds it. Where the system or the disk has no such
    locks, nothing is held.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of a kind that no child inherits
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise ValueError(
                    f"{folder} is another run's just now; one folder holds one: wait for it, or "
                    "name another folder"
                ) from error
        yield


def resume(
    folder: Path,
    experiment: Experiment,
    model: Decoder,
    optimizer: torch.optim.Optimizer,
    data: Data,
) -> tuple[int, list[dict[str, Any]]]:
    """Load the last checkpoint into model and optimizer; its step and metrics, 0 and [] for none.

    Raises ValueError for what is no checkpoint, or one of another experiment or corpus.
    """
    path = folder / "checkpoint.pt"
    if not path.exists():
        return 0, []
    try:
        kept = torch.load(path, map_location=model.embedding.weight.device, weights_only=True)
        of, weights, state, metrics, step = (kept[part] for part in PARTS)
    except (EOFError, OSError, RuntimeError, LookupError, TypeError, pickle.PickleError) as error:
        raise ValueError(
            f"{path} is broken ({type(error).__name__}); it must be a whole checkpoint: remove it, "
            "and the run starts anew"
        ) from error
    if of != experiment.as_dict():
        raise ValueError(
            f"{folder} holds the run of another experiment, {of}; one folder holds one: name "
            "another folder, or remove this one"
        )
    if kept.get("version", VERSION) != VERSION:
        raise ValueError(
            f"{folder} holds a run of version {kept['version']}; this code trains version "
            f"{VERSION}, whose numbers differ: name another folder, or remove this one"
        )
    if kept.get("corpus", corpus_hash(data)) != corpus_hash(data):
        raise ValueError(
            f"{folder} holds a run on another corpus, of sha256 {kept['corpus']}; one folder holds "
            "one: pass that corpus, name another folder, or remove this one"
        )
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    return int(step), list(metrics)


def keep(
    folder: Path,
    model: Decoder,
    optimizer: torch.optim.Optimizer,
    data: Data,
    metrics: list[dict[str, Any]],
    step: int,
) -> None:
    """Write the metrics, then the checkpoint, each replaced in one move: the later one vouches."""
    experiment = model.experiment.as_dict()
    lines = [json.dumps(line, allow_nan=False) for line in (experiment, *metrics)]
    fresh = folder / "metrics.new"
    fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(fresh, folder / "metrics.jsonl")
    state = {
        "version": VERSION,
        "experiment": experiment,
        "corpus": corpus_hash(data),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "metrics": metrics,
        "step": step,
    }
    fresh = folder / "checkpoint.new"
    torch.save(state, fresh)
    os.replace(fresh, folder / "checkpoint.pt")


def corpus_hash(data: Data) -> str | None:
    """The hash of the text that a run is trained on; the recall task has none.

    >>> from rope.training.data import RecallData
    >>> corpus_hash(RecallData(Experiment(task="recall"))) is None
    True
    """
    return data.corpus.sha256 if isinstance(data, TextData) else None
