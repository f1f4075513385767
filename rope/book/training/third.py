"""Define the third round of runs: controls for causes that the first two rounds only suggest.

Chapters "What training shows" and the three on evidence. `THIRD` lists every run once, in the order
of execution. Command: `python -m rope.book.training sweep --plan third`.
"""

from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import nn

from rope.book.training.context import CLAMPED, ending_loss, endings, groups_of_planes
from rope.book.training.data import LookupData, RecallData, TextData
from rope.book.training.decoder import Decoder
from rope.book.training.experiment import BASES, TEXT, seeded
from rope.book.training.inside import by_distance as scores_by_distance
from rope.book.training.inside import position_share
from rope.book.training.lengths import by_distance, by_position
from rope.book.training.loop import EVALUATED, Trained, adjusted, validation_loss
from rope.book.training.reading import clamped, profiled, profiles
from rope.book.training.second import (
    ADJUSTING_STEPS,
    CODE,
    FAR,
    FINDERS,
    LONG_SEQUENCES,
    LOOKUP,
    PROFILE_WINDOWS,
    RECALLED,
    SEQUENCES,
    WINDOWS,
    answered,
)

#: Does a longer training shrink a lead, or does the end of its schedule?
CODE_SHORT = replace(CODE, steps=300)
#: Does a base fail at large distances, or at distances that training rarely asked for?
EVEN = replace(LOOKUP, task="even lookup")
#: Does a bias fail because of its buckets? And what can one layer answer?
EXACT = replace(RECALLED, position="t5-exact")
ONE_LAYER = [
    replace(RECALLED, layers=1, questions=4, position=name) for name in ("rope", "t5-exact")
]
SHORT_METHODS = ("rope", "none", "sinusoidal", "learned")  # RoPE and the methods it leads most
GROUPS = ("none", "unfinished", "finished", "all")
RANGES = ((0, 16), (16, 64), (64, 128))  # ranges of distances whose mean scores are compared

_BY_BASE = [replace(EVEN, base=base) for base in BASES]
_SHORT = [replace(CODE_SHORT, position=way) for way in SHORT_METHODS]
_FINDERS = [replace(LOOKUP, position=name) for name in FINDERS]

THIRD = (
    *seeded([TEXT]),
    *seeded([EXACT, *ONE_LAYER], [0, 1, 2]),
    *seeded(_BY_BASE, [0, 1, 2]),
    *seeded([replace(TEXT, position="none")]),
    *seeded(_SHORT, [0, 1, 2]),
    *seeded(_FINDERS, [0]),
    *seeded(_FINDERS, [1, 2]),
)


def measure(trained: Trained) -> dict[str, Any]:
    """Return a run's entry in the third record, without its experiment; keys depend on the task.

    `loss` is always there: the validation loss; for text, over WINDOWS windows without overlap, or
    over as many as the text has.
    """
    model, data = trained.model, trained.data
    if isinstance(data, RecallData):
        return {"loss": validation_loss(model, data, SEQUENCES),
                "by_distance": by_distance(model, data, SEQUENCES)}  # fmt: skip
    if isinstance(data, LookupData):
        return _of_lookup(model, data)
    context = model.experiment.context
    entry: dict[str, Any] = {
        "loss": validation_loss(model, data, min(WINDOWS, data.window_count(context)))
    }
    if model.experiment.task == "text":
        entry |= _scores(model, data)
        if model.experiment.position == "rope":
            entry["replaced"] = replaced(model, data)
            entry["profile trained"] = profile_trained(trained)
    return entry


def replaced(model: Decoder, data: TextData) -> dict[str, dict[str, Any]]:
    """Return the loss when each of GROUPS sees another distance in place of each far distance.

    "last" uses the farthest distance that isn't far. "random" draws such a distance per key.
    "far" is the loss after CLAMPED contexts for each half of the text; far distances are the
    untrained ones. "within" is the loss in windows of one context, where distances from half the
    context on are replaced; it measures the cost of replacing trained distances.
    """
    context, groups = model.experiment.context, groups_of_planes(model)
    inputs, targets = (part[:, -CLAMPED * context :] for part in endings(data, context))
    found: dict[str, dict[str, Any]] = {}
    for (name, draw), group in product((("last", None), ("random", 0)), GROUPS):
        with clamped(model, groups[group], draw=draw):
            far = ending_loss(model, inputs, targets)
        with clamped(model, groups[group], context // 2, draw=draw):
            within = validation_loss(model, data)
        found.setdefault(name, {})[group] = {"far": far, "within": within}
    return found


def profile_trained(trained: Trained) -> float:
    """Return the loss with one offset profile per head, trained with the weights.

    Training takes ADJUSTING_STEPS and starts from the profile that
    `rope.book.training.second.offsets_forced` uses.
    """
    model, data = trained.model, trained.data
    assert isinstance(data, TextData)
    drawn = TextData(replace(model.experiment, batch=PROFILE_WINDOWS), data.corpus)
    profile = profiles(model, drawn.training(0)[0])
    model.register_parameter("profile", nn.Parameter(torch.zeros_like(profile.float())))

    def change(model: Decoder) -> AbstractContextManager[None]:
        return profiled(model, profile, model.get_parameter("profile"))

    after = adjusted(trained, change, ADJUSTING_STEPS)
    del model.profile
    with change(after):
        return validation_loss(after, data)


def _scores(model: Decoder, data: TextData) -> dict[str, Any]:
    """Return the mean score in each of RANGES, `[layers, H, ranges]`, and `position_share`."""
    inputs, _ = data.validation(EVALUATED, model.experiment.context)
    score, _ = scores_by_distance(model, inputs)
    means = [score[..., low:high].mean(dim=-1) for low, high in RANGES]
    return {"score": torch.stack(means, dim=-1).tolist(),
            "position_share": position_share(model, inputs).tolist()}  # fmt: skip


def _of_lookup(model: Decoder, data: LookupData) -> dict[str, Any]:
    """Return the share of right answers at each distance in FAR, and the loss by position."""
    return {
        "loss": validation_loss(model, data, SEQUENCES),
        "right": [answered(model, data, distance) for distance in FAR],
        "by_position": by_position(model, data, LONG_SEQUENCES)["loss"],
    }
