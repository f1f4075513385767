"""A trained model that goes on training while it is read otherwise: what does it come to miss?

Chapter "What the model uses". A model that is changed at once does worse because it was trained for
something else; one that has adjusted does worse because of what it lacks.
"""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from rope.book.training.data import TextData
from rope.book.training.decoder import Decoder
from rope.book.training.defects import check_rotary
from rope.book.training.inside import frozen
from rope.book.training.lengths import TUNED_RATE, TUNED_SEEDS
from rope.book.training.loop import Trained, make_optimizer, training_step, validation_loss
from rope.book.training.reading import profiled, profiles

STEPS = 100
PROFILE_WINDOWS = 256  # of the training text, from which profiles are taken


def adjusted(
    trained: Trained, change: Callable[[Decoder], AbstractContextManager[Any]], steps: int = STEPS
) -> Decoder:
    """A copy trained for so many steps more within the change, on the text that it knows.

    As the first training was, on batches that it did not see, with a tenth of its rate at most.
    """
    model = copy.deepcopy(trained.model)
    short = model.experiment
    longer = replace(
        short, steps=steps, warmup=5, learning_rate=TUNED_RATE, seed=TUNED_SEEDS + short.seed
    )
    assert isinstance(trained.data, TextData)
    data = TextData(longer, trained.data.corpus)
    optimizer = make_optimizer(model, longer)
    with change(model):
        for step in range(1, steps + 1):
            training_step(model, optimizer, data, longer, step)
    return model


def offsets_forced(trained: Trained) -> dict[str, dict[str, float]]:
    """The loss of a rotary model, of one with one profile of offsets a head, of one with none.

    "as it is", "profile" (`rope.book.training.reading.profiled`, of the model as trained) and "no
    offsets" (every plane stopped); each `at once`, and `adjusted` by STEPS more of training.
    """
    model, data = trained.model, trained.data
    assert isinstance(data, TextData)
    drawn = TextData(replace(model.experiment, batch=PROFILE_WINDOWS), data.corpus)
    profile = profiles(model, drawn.training(0)[0])
    planes = range(check_rotary(model).dim // 2)
    changes: dict[str, Callable[[Decoder], AbstractContextManager[Any]]] = {
        "as it is": lambda model: nullcontext(),
        "profile": lambda model: profiled(model, profile),
        "no offsets": lambda model: frozen(model, planes),
    }
    found = {}
    for name, change in changes.items():
        with change(model):
            found[name] = {"at once": validation_loss(model, data)}
        after = adjusted(trained, change)
        with change(after):
            found[name]["adjusted"] = validation_loss(after, data)
    return found
