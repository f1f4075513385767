"""The third round of runs, each a control for a cause that the first two rounds only suggest.

Chapters "What training shows" and the three on evidence. `THIRD` holds every run once, in the order
in which they are made. `python -m rope.book.training sweep --plan third`.
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

#: Is it the length of a training or the end of its schedule that shrinks a lead?
CODE_SHORT = replace(CODE, steps=300)
#: Does a base fail at distances, or at those that training hardly ever asked for?
EVEN = replace(LOOKUP, task="even lookup")
#: Is it the buckets that a bias lacks, or a choice? And what can one layer answer?
EXACT = replace(RECALLED, position="t5-exact")
ONE_LAYER = [
    replace(RECALLED, layers=1, questions=4, position=name) for name in ("rope", "t5-exact")
]
SHORT_METHODS = ("rope", "none", "sinusoidal", "learned")  # and those it leads most
GROUPS = ("none", "unfinished", "finished", "all")
RANGES = ((0, 16), (16, 64), (64, 128))  # of distances, whose mean scores are compared

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
    """A run's entry in the third record, but for its experiment; what it has depends on the task.

    Always `loss`, of validation, over all of the text without an overlap, or WINDOWS of it.
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
    """The loss when groups of planes take another distance for a far one, by GROUPS.

    "last": the farthest below it; "random": one drawn from those below it, for each key. Of the
    characters after CLAMPED contexts, for both halves of the text, the far distances being those
    that training had not; "within": of windows of the context, where none is new, and from half of
    it on all are replaced, which is what the replacing itself costs.
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
    """The loss with one profile of offsets a head, trained with the weights for ADJUSTING_STEPS.

    It begins as the one that `rope.book.training.second.offsets_forced` forces on the model.
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
    """The mean score in each of RANGES, `[layers, H, ranges]`, and what distance explains of it."""
    inputs, _ = data.validation(EVALUATED, model.experiment.context)
    score, _ = scores_by_distance(model, inputs)
    means = [score[..., low:high].mean(dim=-1) for low, high in RANGES]
    return {"score": torch.stack(means, dim=-1).tolist(),
            "position_share": position_share(model, inputs).tolist()}  # fmt: skip


def _of_lookup(model: Decoder, data: LookupData) -> dict[str, Any]:
    """The share found at each distance of FAR, and the loss by place up to 16 contexts."""
    return {
        "loss": validation_loss(model, data, SEQUENCES),
        "right": [answered(model, data, distance) for distance in FAR],
        "by_position": by_position(model, data, LONG_SEQUENCES)["loss"],
    }
