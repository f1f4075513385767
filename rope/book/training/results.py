"""The recorded comparison, read: chapters "What training shows" and those after it.

`recorded()` is the record that `python -m rope.book.training sweep` wrote; `trained()` the model of
its first rotary run; `interval` says what the seeds of a method agree on,
`verdict` what they say of two.
"""

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rope.book.measured.intervals import Interval, false_clears, interval, verdict
from rope.book.training.corpus import Corpus
from rope.book.training.decoder import Decoder
from rope.book.training.experiment import TEXT, Experiment

RECORDED = Path(__file__).parent / "recorded"
FILES = {"first": "sweep.json", "second": "second.json", "third": "third.json"}
Run = dict[str, Any]

__all__ = ["Interval", "Kept", "false_clears", "interval", "recorded", "runs", "steps_to",
           "trained", "verdict"]  # fmt: skip


@cache
def recorded(plan: str = "first") -> dict[str, Any]:
    """The record of the plan "first", "second" or "third": `metadata` and `runs`."""
    return json.loads((RECORDED / FILES[plan]).read_text(encoding="utf-8"))


def runs(of: Experiment = TEXT, *, plan: str = "first", **changed: Any) -> list[Run]:
    """The recorded runs of an experiment, with these fields changed, one for each seed.

    of: `TEXT`, `LIVE` or `LONGER` of `rope.book.training.experiment`; for plan="second" one of
    `rope.book.training.second`. In the order of the seeds. Raises TypeError for a field that
    an `Experiment` has not, ValueError when no such run was recorded.

    >>> [run["experiment"]["seed"] for run in runs(position="alibi")]
    [0, 1, 2, 3, 4]
    """
    wanted = replace(of, **changed)
    found = [
        run
        for run in recorded(plan)["runs"]
        if replace(Experiment(**run["experiment"]), seed=wanted.seed) == wanted
    ]
    if not found:
        raise ValueError(
            f"no recorded run of the {plan} plan is {wanted}: its runs are in "
            "rope.book.training.experiment.PLAN, those of the others in "
            "rope.book.training.second.SECOND and rope.book.training.third.THIRD"
        )
    return sorted(found, key=lambda run: run["experiment"]["seed"])


def steps_to(curve: dict[str, list[float]], loss: float) -> float | None:
    """The step at which a curve first comes down to a loss, on a straight line between two points.

    None when it never does.

    >>> steps_to({"step": [0, 10, 20], "loss": [3.0, 2.0, 1.0]}, 1.5)
    15.0
    >>> steps_to({"step": [0, 10], "loss": [3.0, 2.0]}, 1.5)
    """
    points = list(zip(curve["step"], curve["loss"], strict=True))
    if points[0][1] <= loss:
        return float(points[0][0])
    for (step, before), (later, after) in pairwise(points):
        if after <= loss:
            return step + (before - loss) / (before - after) * (later - step)
    return None


class Kept(NamedTuple):
    """The recorded model with what it takes to read and to write text.

    model: the decoder; corpus: encodes and decodes, its text being `inputs` alone;
    inputs, targets: validation windows of the trained context, int64 `[B, S]`.
    """

    model: Decoder
    corpus: Corpus
    inputs: Tensor
    targets: Tensor


def trained() -> Kept:
    """The rotary model of seed 0, its weights rounded to float16 once and read as float32.

    >>> trained().inputs.shape[1]
    128
    """
    kept = torch.load(RECORDED / "rope.pt", weights_only=True)
    model = Decoder(Experiment(**kept["experiment"]), len(kept["vocabulary"]))
    model.load_state_dict({name: weight.float() for name, weight in kept["weights"].items()})
    inputs, targets = kept["inputs"].long(), kept["targets"].long()
    corpus = Corpus(inputs.flatten(), targets.flatten(), kept["vocabulary"], kept["sha256"])
    return Kept(model.eval(), corpus, inputs, targets)
