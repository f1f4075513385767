"""Measure the loss by position, far beyond the trained context: "Beyond the trained length".

Every method reads the same windows of 16 trained contexts; a bin is a range of positions. Rotary
models also read them with each context extension, both unchanged and after a short training on
longer windows.

Shapes: B batch, S sequence.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rope.book.training.data import IGNORED, Data
from rope.book.training.decoder import Decoder, check_rotary
from rope.book.training.experiment import Experiment
from rope.book.training.loop import Trained, adjusted, token_losses
from rope.book.training.positions import Places
from rope.extensions import NTK, Default, DynamicNTK, Extension, Linear, YaRN

FACTOR = 16  # length of the validation windows / trained context
SHARES = (0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 5 / 4, 3 / 2, 2, 3, 4, 6, 8, 10, 12, 14, 16)
TUNED_FACTOR, TUNED_STEPS = 8, 30


def edges(context: int) -> list[int]:
    """Return the edges of the position bins, from 0 to 16 contexts, with narrow bins first.

    >>> edges(128)[:8], edges(128)[-1]
    ([0, 16, 32, 64, 96, 128, 160, 192], 2048)
    """
    return [int(share * context) for share in SHARES]


def by_position(
    model: Decoder, data: Data, sequences: int, *, prefixes: bool = False
) -> dict[str, list[Any]]:
    """Return the mean loss in each position bin, in nats per token.

    prefixes: for each bin, read only the text up to its end, so that an extension that depends on
    the length scales to that length, not to the full window.
    Returns `edges` and `loss`, with None for bins that the model can't read (learned vectors end at
    the trained context).
    """
    context = model.experiment.context
    bounds = edges(context)
    reach = model.positions.reach or bounds[-1]
    inputs, targets = data.validation(sequences, bounds[-1])
    result: dict[str, list[Any]] = {"edges": bounds, "loss": []}
    whole = None if prefixes else read_each(model, inputs[:, :reach], targets[:, :reach])
    for low, high in pairwise(bounds):
        asked = targets[:, low:high] != IGNORED
        if high > reach or not asked.any():
            result["loss"].append(None)
        else:
            read = whole
            if read is None:
                read = read_each(model, inputs[:, :high], targets[:, :high])
            result["loss"].append(read[:, low:high][asked].double().mean().item())
    return result


def extensions_of(experiment: Experiment) -> dict[str, Extension]:
    """Return the extensions by FACTOR, with the names that `rope.extensions` uses."""
    ratio, context = float(FACTOR), experiment.context
    return {
        "default": Default(),
        "linear": Linear(ratio),
        "ntk": NTK(ratio),
        "dynamic": DynamicNTK(1.0, context),  # adapts to the length itself
        "yarn": YaRN(ratio, context),
    }


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


@contextmanager
def rounded(model: Decoder) -> Iterator[None]:
    """Round positions to bfloat16, which holds only every other integer from 256 on.

    Raises ValueError for a model that is not rotary.

    >>> model = Decoder(Experiment(width=16, heads=2), tokens=5)
    >>> exact = model.positions(torch.tensor([255, 256, 258]))
    >>> with rounded(model):
    ...     coarse = model.positions(torch.tensor([255, 257, 258]))
    >>> torch.equal(coarse.query[0], exact.query[0])
    True
    """
    rotary = check_rotary(model)
    forward = rotary.forward

    def coarse(position_ids: Tensor) -> Places:
        return forward(position_ids.bfloat16().to(position_ids.dtype))

    with patch.object(rotary, "forward", coarse):
        yield


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
                    with rounded(model):
                        coarse = by_position(model, trained.data, sequences)
                    found[name]["tuned, bf16 positions"] = coarse["loss"]
    return found


def read_each(model: Decoder, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return each token's loss, `[B, S]`, on the CPU; read one long sequence at a time."""
    rows = zip(inputs.split(1), targets.split(1), strict=True)
    return torch.cat([token_losses(model, *row).cpu() for row in rows])
