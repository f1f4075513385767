"""Read the recorded comparison: chapter "What training shows" and the following chapters.

`recorded()` returns the record that `python -m rope.book.training sweep` wrote. `interval`
summarizes one method's seeds, and `verdict` compares two methods.
"""

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from rope.book.measured.intervals import Interval, false_clears, interval, verdict
from rope.book.training.experiment import TEXT, Experiment

RECORDED = Path(__file__).parent / "recorded"
FILES = {"first": "sweep.json", "second": "second.json", "third": "third.json"}
Run = dict[str, Any]

__all__ = ["Interval", "false_clears", "interval", "recorded", "runs", "steps_to", "verdict"]


@cache
def recorded(plan: str = "first") -> dict[str, Any]:
    """Return a plan's record, with `metadata` and `runs`; plan: "first", "second", or "third"."""
    return json.loads((RECORDED / FILES[plan]).read_text(encoding="utf-8"))


def runs(of: Experiment = TEXT, *, plan: str = "first", **changed: Any) -> list[Run]:
    """Return an experiment's recorded runs, with these fields changed, sorted by seed.

    of: `TEXT`, `LIVE`, or `LONGER` from `rope.book.training.experiment`; for the other plans, an
    experiment from `rope.book.training.plans`. Raises TypeError for an unknown field, and
    ValueError if no such run was recorded.

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
            f"no recorded run of the {plan} plan is {wanted}: the first plan's runs are in "
            "rope.book.training.experiment.PLAN, the other plans' runs in "
            "rope.book.training.plans.SECOND and THIRD"
        )
    return sorted(found, key=lambda run: run["experiment"]["seed"])


def steps_to(curve: dict[str, list[float]], loss: float) -> float | None:
    """Return the step at which a curve first reaches a loss, interpolated linearly.

    Returns None if the curve never reaches the loss.

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
