"""Which runs the recorded comparison consists of: chapter "What training shows".

Each part of the plan answers one question and names every experiment that it needs; parts share
runs. The order is that of the questions: a sweep that is stopped has answered the first ones.
"live" is small enough to be trained on the page, where the chapter does so with one seed.
"""

from dataclasses import replace

from rope.training.config import Experiment
from rope.training.positions import POSITIONS

SEEDS = tuple(range(5))
BASES = (100.0, 1e3, 1e4, 1e6)
RATES = (1e-3, 3e-3, 6e-3)
LINEAR = ("none", "sinusoidal", "rope")

TEXT = Experiment()
RECALL = Experiment(task="recall", layers=2, width=64, heads=2, batch=32)
LONGER = Experiment(context=256, batch=8)
LIVE = Experiment(
    layers=2, width=64, heads=2, context=64, steps=200, learning_rate=6e-3, evaluate_every=10
)
LIVE_WAYS = ("none", "sinusoidal", "learned", "rope")


def _seeds(*experiments: Experiment) -> list[Experiment]:
    return [replace(experiment, seed=seed) for seed in SEEDS for experiment in experiments]


#: The experiments of each part, by its name.
PLAN: dict[str, list[Experiment]] = {
    "positions": _seeds(*(replace(TEXT, position=name) for name in POSITIONS)),
    "live": _seeds(*(replace(LIVE, position=name) for name in LIVE_WAYS)),
    "recall": _seeds(*(replace(RECALL, position=name) for name in POSITIONS)),
    "base": _seeds(*(replace(TEXT, base=base) for base in BASES)),
    "linear": _seeds(*(replace(TEXT, position=name, attention="linear") for name in LINEAR)),
    "rate": [
        replace(TEXT, position=name, learning_rate=rate) for rate in RATES for name in POSITIONS
    ],
    "context": _seeds(*(replace(LONGER, position=name) for name in POSITIONS)),
}


def experiments(parts: tuple[str, ...] = tuple(PLAN)) -> list[Experiment]:
    """Every experiment of the parts, each once, in the order of the plan.

    >>> len(experiments(("positions",))), len(experiments()) < sum(map(len, PLAN.values()))
    (40, True)
    """
    return list(dict.fromkeys(experiment for part in parts for experiment in PLAN[part]))
