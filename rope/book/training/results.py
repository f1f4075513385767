"""Read the recorded comparison for "What training shows" and the following chapters."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rope.book.training.experiment import TEXT, Experiment

RECORDED = Path(__file__).parent / "recorded"
FILES = {"first": "sweep.json", "second": "second.json", "third": "third.json"}


@cache
def recorded(plan: str = "first") -> dict[str, Any]:
    """Return a plan's record, with `metadata` and `runs`; plan: "first", "second", or "third"."""
    return json.loads((RECORDED / FILES[plan]).read_text(encoding="utf-8"))


def runs(of: Experiment = TEXT, *, plan: str = "first", **changed: Any) -> list[dict[str, Any]]:
    """Return the recorded runs of an experiment with these fields changed, sorted by seed.

    of: an experiment from `rope.book.training.experiment`, or from `rope.book.training.plans` for
    the other plans. Raises TypeError for an unknown field, and ValueError if no such run was
    recorded.

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
        raise ValueError(f"the {plan} plan has no recorded run of {wanted}; change a field")
    return sorted(found, key=lambda run: run["experiment"]["seed"])
