"""Define the second round of runs and its measurements: controls, longer texts, another corpus.

Chapters "What training shows", "What the model uses", and "Beyond the trained length". `SECOND`
lists every run once, in the order of execution, so that an interrupted sweep has completed the
first runs. Command: `python -m rope.book.training sweep --plan second`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import product
from typing import Any

from rope.book.training.context import (
    Change,
    as_it_is,
    by_clamp,
    by_extension,
    by_ratio,
    following,
    last_keys,
    mass_by_ratio,
)
from rope.book.training.data import IGNORED, LookupData, RecallData, TextData
from rope.book.training.decoder import Decoder
from rope.book.training.defects import check_rotary
from rope.book.training.experiment import BASES, TEXT, Experiment, seeded
from rope.book.training.inside import by_distance as scores_by_distance
from rope.book.training.inside import by_plane, frozen, position_share, weights
from rope.book.training.lengths import EXTENSIONS, by_distance, by_position, read_each
from rope.book.training.library import shared
from rope.book.training.loop import EVALUATED, Trained, adjusted, token_losses, validation_loss
from rope.book.training.positions import POSITIONS
from rope.book.training.reading import profiled, profiles, windowed, without_head

LONGEST = Experiment(context=512, batch=4)
CODE = Experiment(task="code", batch=8, steps=3000, evaluate_every=100)
SHUFFLED = replace(TEXT, task="shuffled")
RECALLED = Experiment(task="recall", layers=2, width=64, heads=2, steps=3000, evaluate_every=100)
LOOKUP = replace(RECALLED, task="lookup")

FEW = (1, 2, 4)  # numbers of questions: below, at and above the two profiles that a bias has
FINDERS = ("none", "learned", "rope", "xpos", "alibi", "t5", "p-rope")
SMALL_FINDERS = ("none", "learned", "rope", "alibi", "t5")
CODE_METHODS = (*POSITIONS, "p-rope")
VARIANTS = ("learned-small", "t5-plain", "p-rope")
WINDOWS = 512  # at most so many windows of validation text
FAR = (31, 63, 95, 119, 127, 191, 255, 383, 511, 767, 1023, 1535, 2039)  # lookup distances
SEQUENCES = 64  # evaluated sequences per task
LONG_SEQUENCES = 32
COPIED = 32  # characters in a stretch that also occurs in the training text
ADJUSTING_STEPS = 100
PROFILE_WINDOWS = 256  # windows of training text from which profiles are computed


def _finding(task: Experiment) -> list[Experiment]:
    """Return the task's runs with every method in FINDERS and every base."""
    bases = [base for base in BASES if base != task.base]
    return [*(replace(task, position=name) for name in FINDERS),
            *(replace(task, base=base) for base in bases)]  # fmt: skip


_LONG = [replace(LONGEST, position=name) for name in POSITIONS]
_FEW = [replace(RECALLED, questions=n, position=name) for n in FEW for name in SMALL_FINDERS]
_RECALLS, _LOOKUPS = _finding(RECALLED), _finding(LOOKUP)
_CODE = [replace(CODE, position=name) for name in CODE_METHODS]
#: The first round's text models, for further measurements; their variants; shuffled text.
_TEXT = [*(replace(TEXT, position=name) for name in dict.fromkeys(("rope", *POSITIONS, *VARIANTS))),
         SHUFFLED]  # fmt: skip

SECOND = (
    *seeded([*_LONG, *_FEW, *_RECALLS, *_LOOKUPS, *_TEXT], [0]),
    *seeded(_LOOKUPS, [1, 2]),
    *seeded(_RECALLS, [1, 2]),
    *seeded(_TEXT, [1, 2]),
    *seeded(_LONG, [1, 2]),
    *seeded(_CODE, [0, 1, 2]),
    *seeded(_TEXT, [3, 4]),
    *seeded(_LONG, [3, 4]),
    *seeded(_FEW, [1, 2]),
)


def measure(trained: Trained) -> dict[str, Any]:
    """Return a run's entry in the second record, without its experiment; keys depend on the task.

    `loss` is always there: the validation loss; for text, over WINDOWS windows without overlap, or
    over as many as the text has.
    """
    model, data = trained.model, trained.data
    if isinstance(data, RecallData):
        return _of_recall(model, data)
    if isinstance(data, LookupData):
        return _of_lookup(model, data)
    context = model.experiment.context
    windows = min(WINDOWS, data.window_count(context))
    entry: dict[str, Any] = {"loss": validation_loss(model, data, windows)}
    if model.experiment.task == "shuffled":
        entry |= _scores(model, data)
    if model.experiment.task == "text" and context == TEXT.context:
        entry |= _of_text(trained, data)
    return entry


def _of_text(trained: Trained, data: TextData) -> dict[str, Any]:
    """Return loss and attention after 1 to 16 contexts, with heads removed; more for RoPE."""
    model = trained.model
    entry: dict[str, Any] = {
        "by_ratio": {"as it is": by_ratio(model, data)},
        "attention": mass_by_ratio(model, data),
        "heads": heads(model, data),
        "copied": by_novelty(model, data),
    }
    if model.positions.reach is None:
        entry["by_ratio"]["window"] = by_ratio(model, data, last_keys)
    if model.experiment.position == "rope":
        entry["extensions"] = by_extension(model, data)
        entry["clamped"] = by_clamp(model, data)
        entry["offsets"] = offsets_forced(trained)
        inputs, _ = data.validation(EVALUATED, model.experiment.context)
        entry["by_plane"] = by_plane(model, inputs).mean(dim=(1, 2)).tolist()
    return entry


def by_novelty(model: Decoder, data: TextData) -> dict[str, float]:
    """Return the validation loss inside and outside stretches that the training text also holds.

    A stretch has at least COPIED characters. Windows of the context cover the validation text. The
    keys are `inside`, `outside`, and `share`.
    """
    context, text = model.experiment.context, data.corpus.validation
    last = data.window_count(context) * context
    loss = token_losses(model, *(text[i : last + i].view(-1, context) for i in (0, 1))).flatten()
    inside = shared(text, data.corpus.training, COPIED)[1 : last + 1]
    share = inside.double().mean().item()
    return {"inside": loss[inside].mean().item(), "outside": loss[~inside].mean().item(),
            "share": share}  # fmt: skip


def heads(model: Decoder, data: TextData) -> dict[str, Any]:
    """Return each head's mean weight on the previous character, and the loss without that head.

    `previous` and `rise` (of the loss, in nats) are `[layers, H]`, over EVALUATED validation
    windows.
    """
    experiment = model.experiment
    inputs, _ = data.validation(EVALUATED, experiment.context)
    previous = [
        weights(model, inputs, layer).diagonal(-1, 2, 3).double().mean(dim=(0, -1)).tolist()
        for layer in range(experiment.layers)
    ]
    rise: list[list[float]] = [[] for _ in range(experiment.layers)]
    plain = validation_loss(model, data)
    for layer, head in product(range(experiment.layers), range(experiment.heads)):
        with without_head(model, layer, head):
            rise[layer].append(validation_loss(model, data) - plain)
    return {"previous": previous, "rise": rise}


def offsets_forced(trained: Trained) -> dict[str, dict[str, float]]:
    """Return a rotary model's loss unchanged, with one offset profile per head, and with none.

    The changes are "as it is", "profile" (see `rope.book.training.reading.profiled`), and "no
    offsets" (no plane rotates). The loss "at once" also rises because the model was trained for
    something else; "adjusted" trains ADJUSTING_STEPS more steps with the change.
    """
    model, data = trained.model, trained.data
    assert isinstance(data, TextData)
    drawn = TextData(replace(model.experiment, batch=PROFILE_WINDOWS), data.corpus)
    profile = profiles(model, drawn.training(0)[0])
    planes = range(check_rotary(model).dim // 2)
    changes: dict[str, Callable[[Decoder], AbstractContextManager[Any]]] = {
        "as it is": nullcontext,
        "profile": lambda model: profiled(model, profile),
        "no offsets": lambda model: frozen(model, planes),
    }
    losses = {}
    for name, change in changes.items():
        after = adjusted(trained, change, ADJUSTING_STEPS)
        with change(model), change(after):
            losses[name] = {
                "at once": validation_loss(model, data),
                "adjusted": validation_loss(after, data),
            }
    return losses


def _scores(model: Decoder, data: TextData) -> dict[str, Any]:
    """Return each head's mean score by distance, and the share that distance explains."""
    inputs, _ = data.validation(EVALUATED, model.experiment.context)
    score, _ = scores_by_distance(model, inputs)
    return {"score": score.tolist(), "position_share": position_share(model, inputs).tolist()}


def _of_recall(model: Decoder, data: RecallData) -> dict[str, Any]:
    """Return right answers by distance and by position, with all keys and with a window."""
    entry: dict[str, Any] = {
        "loss": validation_loss(model, data, SEQUENCES),
        "by_distance": by_distance(model, data, SEQUENCES),
        "right": by_position(model, data, LONG_SEQUENCES)["right"],
    }
    if model.positions.reach is None:
        with windowed(model):
            entry["right, window"] = by_position(model, data, LONG_SEQUENCES)["right"]
    return entry


def _of_lookup(model: Decoder, data: LookupData) -> dict[str, Any]:
    """Return the share of right answers at each distance in FAR; for RoPE also with extensions."""
    context = model.experiment.context
    changes: dict[str, Change] = {"as it is": as_it_is}
    if model.experiment.position == "rope":
        changes |= {name: following(make, context) for name, make in EXTENSIONS.items()}
    right = {name: [answered(model, data, distance, change) for distance in FAR]
             for name, change in changes.items()}  # fmt: skip
    return {"loss": validation_loss(model, data, SEQUENCES), "distance": list(FAR), "right": right}


def answered(
    model: Decoder, data: LookupData, distance: int, change: Change = as_it_is
) -> float | None:
    """Return the share of right answers at a distance; None if a method runs out of positions."""
    inputs, targets = data.far(SEQUENCES, distance)
    length = inputs.shape[1]
    if length > (model.positions.reach or length):
        return None
    with change(model, max(1.0, length / model.experiment.context)):
        _, right = read_each(model, inputs, targets)
    return right[targets != IGNORED].double().mean().item()
