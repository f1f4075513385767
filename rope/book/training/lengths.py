"""Measure the loss by position, far beyond the trained context: "Beyond the trained length".

Every method reads the same windows of 16 trained contexts; a bin is a range of positions. Rotary
models also read them with each context extension, both unchanged and after a short training on
longer windows.

Shapes: B batch, S sequence.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rope.book.training.data import IGNORED, SYMBOLS, Data, RecallData
from rope.book.training.decoder import Decoder
from rope.book.training.defects import check_rotary, defect
from rope.book.training.experiment import Experiment
from rope.book.training.loop import Trained, adjusted, token_losses
from rope.extensions import NTK, Default, DynamicNTK, Extension, Linear, YaRN

FACTOR = 16  # length of the validation windows / trained context
SHARES = (0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 5 / 4, 3 / 2, 2, 3, 4, 6, 8, 10, 12, 14, 16)
TUNED_FACTOR, TUNED_STEPS = 8, 30
OFFSETS = (0, 64, 128, 256, 512, 1024, 2048, 4096, 16_384, 65_536)

#: The compared extensions, as functions of the length ratio s and the trained context.
EXTENSIONS: dict[str, Callable[[float, int], Extension]] = {
    "linear": lambda s, context: Linear(s),
    "ntk": lambda s, context: NTK(s),
    "ntk, twice the ratio": lambda s, context: NTK(2 * s),
    "dynamic": lambda s, context: DynamicNTK(1.0, context),  # adapts to the length itself
    "yarn": lambda s, context: YaRN(s, context),
    "yarn, no temperature": lambda s, context: YaRN(s, context, attention_factor=1.0),
}


def edges(context: int) -> list[int]:
    """Return the edges of the position bins, from 0 to 16 contexts, with narrow bins first.

    >>> edges(128)[:8], edges(128)[-1]
    ([0, 16, 32, 64, 96, 128, 160, 192], 2048)
    """
    return [int(share * context) for share in SHARES]


def by_position(
    model: Decoder, data: Data, sequences: int, *, prefixes: bool = False
) -> dict[str, list[Any]]:
    """Return the mean loss (nats per token) and the share of right answers in each position bin.

    prefixes: for each bin, read only the text up to its end, so that an extension that depends on
    the length scales to that length, not to the full window.
    Returns `edges`, `loss`, and `right`, with None for bins that the model can't read (learned
    vectors end at the trained context).
    """
    context = model.experiment.context
    bounds = edges(context)
    reach = model.positions.reach or bounds[-1]
    inputs, targets = data.validation(sequences, bounds[-1])
    result: dict[str, list[Any]] = {"edges": bounds, "loss": [], "right": []}
    read = None if prefixes else read_each(model, inputs[:, :reach], targets[:, :reach])
    for low, high in pairwise(bounds):
        asked = targets[:, low:high] != IGNORED
        if high > reach or not asked.any():
            result["loss"].append(None)
            result["right"].append(None)
        else:
            loss, right = read or read_each(model, inputs[:, :high], targets[:, :high])
            result["loss"].append(_mean(loss[:, low:high][asked]))
            result["right"].append(_mean(right[:, low:high][asked]))
    return result


def by_distance(model: Decoder, data: RecallData, sequences: int) -> list[float | None]:
    """Return the share of right answers for each distance 1, 2, ... in the trained context.

    The share is None for a distance that no question asks for.
    """
    inputs, targets = data.validation(sequences, model.experiment.context)
    _, right = read_each(model, inputs, targets)
    distance = inputs - SYMBOLS + 1
    every = range(1, model.experiment.questions + 1)
    answers = [right[(targets != IGNORED) & (distance == d)] for d in every]
    return [_mean(answer) if len(answer) else None for answer in answers]


def shifted(model: Decoder, data: Data, sequences: int = 32) -> list[float]:
    """Return the loss in the trained context with all positions shifted by each of OFFSETS.

    Scores depend only on differences, so an exact rotation doesn't change the loss.
    """
    context = model.experiment.context
    inputs, targets = data.validation(sequences, context)
    return [
        _mean(token_losses(model, inputs, targets, torch.arange(context) + offset))
        for offset in OFFSETS
    ]


def extensions_of(experiment: Experiment) -> dict[str, Extension]:
    """Return the extensions by FACTOR, with the names that `rope.extensions` uses."""
    names = ("linear", "ntk", "dynamic", "yarn")
    ratio, context = float(FACTOR), experiment.context
    return {"default": Default()} | {name: EXTENSIONS[name](ratio, context) for name in names}


@contextmanager
def extended(model: Decoder, extension: Extension) -> Iterator[Decoder]:
    """Extend a rotary model's spectrum; raise ValueError for a model that is not rotary.

    >>> model = Decoder(Experiment(width=16, heads=2), tokens=5)
    >>> with extended(model, Linear(2.0)):
    ...     model.positions.frequencies(4, torch.device("cpu"))
    tensor([0.5000, 0.0500, 0.0050, 0.0005], dtype=torch.float64)
    """
    with patch.object(check_rotary(model), "extension", extension):
        yield model


def tuned(trained: Trained, extension: Extension) -> Decoder:
    """Return a copy trained for TUNED_STEPS more on windows of 8 contexts with the extension."""
    experiment = trained.model.experiment
    return adjusted(
        trained,
        lambda model: extended(model, extension),
        TUNED_STEPS,
        context=TUNED_FACTOR * experiment.context,
        batch=max(1, experiment.batch // TUNED_FACTOR),
    )


def by_extension(trained: Trained, sequences: int) -> dict[str, dict[str, list[Any]]]:
    """Return the loss by position with each extension, before and after a short training."""
    found: dict[str, dict[str, list[Any]]] = {}
    for name, extension in extensions_of(trained.model.experiment).items():
        follows = extension.length_dependent
        with extended(trained.model, extension) as model:
            plain = by_position(model, trained.data, sequences, prefixes=follows)
        found[name] = {"loss": plain["loss"]}
        if not follows:  # training at one length would see only one spectrum
            with extended(tuned(trained, extension), extension) as model:
                found[name]["tuned"] = by_position(model, trained.data, sequences)["loss"]
                if name == "yarn":
                    with defect(model, "bf16 positions"):
                        rounded = by_position(model, trained.data, sequences)
                    found[name]["tuned, bf16 positions"] = rounded["loss"]
    return found


def read_each(model: Decoder, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return each token's loss and correctness, `[B, S]`; read one long sequence at a time."""
    losses, right = [], []
    for row, wanted in zip(inputs.split(1), targets.split(1), strict=True):
        with torch.no_grad():
            logits = model(row.to(model.embedding.weight.device)).float().cpu()
        losses.append(cross_entropy(logits.mT, wanted, ignore_index=IGNORED, reduction="none"))
        right.append(logits.argmax(-1) == wanted)
    return torch.cat(losses), torch.cat(right)


def _mean(values: Tensor) -> float:
    return values.double().mean().item()
