"""Measure the loss on the same characters after longer and longer preceding text.

Chapter "Beyond the trained length". The windows span 16 trained contexts, don't overlap, and come
from both halves of the validation text. The last JUDGED characters of each window are scored with
inputs cut to the last 1, 2, 4, 8, or 16 contexts. We record their loss and where attention goes. A
difference between two lengths is therefore not a difference between two texts.

Shapes: B batch, H heads, S sequence.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from rope.book.training.data import TextData
from rope.book.training.decoder import Decoder
from rope.book.training.defects import check_rotary
from rope.book.training.inside import calls
from rope.book.training.lengths import EXTENSIONS, extended
from rope.book.training.loop import token_losses
from rope.book.training.reading import clamped, windowed
from rope.extensions import Extension

RATIOS = (1, 2, 4, 8, 16)  # length of the input / trained context
CLAMPED = 8  # the ratio at which planes are clamped
JUDGED = 64  # characters at the end of each window
DISTANCES = (0, 1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)  # edges of ranges
Change = Callable[[Decoder, float], AbstractContextManager[Any]]  # takes the model and a ratio


def endings(data: TextData, context: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets `[B, S]`: an even number of windows of 16 contexts each.

    The windows cover the validation text; the first half of the rows comes from its first half.
    """
    length = RATIOS[-1] * context
    return data.validation(data.window_count(length) // 2 * 2, length)


def as_it_is(model: Decoder, ratio: float) -> AbstractContextManager[Any]:
    """Leave the model unchanged."""
    return nullcontext()


def last_keys(model: Decoder, ratio: float) -> AbstractContextManager[Any]:
    """Restrict attention to a window of the trained context at every ratio."""
    return windowed(model)


def by_ratio(model: Decoder, data: TextData, change: Change = as_it_is) -> list[list[Any]]:
    """Return the loss on the judged characters: for each half of the text, a list along RATIOS.

    change: the change to the model at each ratio. An entry is None where a method runs out of
    positions.
    """
    inputs, targets = endings(data, model.experiment.context)
    losses: list[Sequence[Any]] = []
    for ratio in RATIOS:
        length = ratio * model.experiment.context
        if length > (model.positions.reach or length):
            losses.append((None, None))
            continue
        with change(model, float(ratio)):
            losses.append(ending_loss(model, inputs[:, -length:], targets[:, -length:]))
    return [list(half) for half in zip(*losses, strict=True)]


def ending_loss(model: Decoder, inputs: Tensor, targets: Tensor) -> list[float]:
    """Return the mean loss on the last JUDGED characters for each half of the rows."""
    losses = torch.cat(
        [
            token_losses(model, row, wanted)[:, -JUDGED:]
            for row, wanted in zip(inputs.split(1), targets.split(1), strict=True)
        ]
    )
    return [half.double().mean().item() for half in losses.chunk(2)]


def following(make: Callable[[float, int], Extension], context: int) -> Change:
    """Return the change that sets an extension's ratio to the ratio of the lengths."""
    return lambda model, ratio: extended(model, make(ratio, context))


def by_extension(model: Decoder, data: TextData) -> dict[str, dict[str, Any]]:
    """Return `by_ratio` for a rotary model with each of EXTENSIONS.

    Returns two results per extension name: in "ratio", the extension's ratio equals the ratio of
    the lengths; in "served", it is the largest ratio at every length, as in a deployed model.
    """
    context = model.experiment.context
    found: dict[str, dict[str, Any]] = {}
    for name, make in EXTENSIONS.items():
        found[name] = {"ratio": by_ratio(model, data, following(make, context))}
        if not make(1.0, context).length_dependent:
            with extended(model, make(float(RATIOS[-1]), context)):
                found[name]["served"] = by_ratio(model, data)
    return found


def groups_of_planes(model: Decoder) -> dict[str, list[int]]:
    """Return named groups of planes; an unfinished plane makes less than one turn per context."""
    context, rotary = model.experiment.context, check_rotary(model)
    turns = context * rotary.frequencies(context, torch.device("cpu")) / (2 * math.pi)
    unfinished = [plane for plane, count in enumerate(turns.tolist()) if count < 1]
    every = range(len(turns))
    return {
        "none": [],
        "unfinished": unfinished,
        "finished": [plane for plane in every if plane not in unfinished],
        "first two unfinished": unfinished[:2],
        "other unfinished": unfinished[2:],
        "all": list(every),
    }


def by_clamp(model: Decoder, data: TextData) -> dict[str, Any]:
    """Return the loss on the judged characters when groups of planes see no untrained distance.

    Returns a dict. `planes` holds the groups from `groups_of_planes`. `ratio` is CLAMPED. `loss`
    maps each group to the loss on each half of the text.
    """
    context, groups = model.experiment.context, groups_of_planes(model)
    inputs, targets = (part[:, -CLAMPED * context :] for part in endings(data, context))
    losses = {}
    for name, planes in groups.items():
        with clamped(model, planes):
            losses[name] = ending_loss(model, inputs, targets)
    return {"planes": groups, "ratio": CLAMPED, "loss": losses}


@torch.no_grad()
def attention_mass(model: Decoder, inputs: Tensor) -> Tensor:
    """Return the share of attention weight in each range of distances: `[layers, H, ranges]`.

    A range runs from one entry of DISTANCES to just before the next. The result is the mean over
    the last JUDGED queries of each row, in float64. inputs: int64 `[B, S]`. Raises ValueError for
    linear attention.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(width=16, heads=2), tokens=5)
    >>> mass = attention_mass(model, torch.zeros(1, 64, dtype=torch.long))
    >>> mass.shape, bool(torch.allclose(mass.sum(dim=-1), torch.ones(4, 2).double()))
    (torch.Size([4, 2, 8]), True)
    """
    length = inputs.shape[1]
    edges = torch.tensor([edge for edge in DISTANCES if edge < length])
    at = torch.arange(length)
    kind = torch.bucketize(at[-JUDGED:, None] - at, edges, right=True) - 1  # -1 for later keys
    ranges = torch.nn.functional.one_hot(kind + 1, len(edges) + 1)[..., 1:].double()
    total = torch.zeros(model.experiment.layers, model.experiment.heads, len(edges)).double()
    for row in inputs.split(1):
        for layer, (attention, x, places) in enumerate(calls(model, row)):
            q, k, _ = attention.heads(x)
            weight = attention.scores(q, k, places, last=JUDGED).softmax(dim=-1)[0].double()
            total[layer] += torch.einsum("hmn,mnr->hr", weight, ranges) / weight.shape[1]
    return total / len(inputs)


def mass_by_ratio(model: Decoder, data: TextData) -> dict[str, Any]:
    """Return the distribution of attention over distances at each ratio that the method can read.

    Returns a dict. `distance` holds the edges of the ranges. `mass` has, for each ratio, the mean
    over layers and heads in each range. `beyond` has, for each ratio above 1, the share `[layers,
    H]` that goes to keys at least one trained context away.
    """
    context = model.experiment.context
    inputs, _ = endings(data, context)
    found: dict[str, Any] = {"distance": list(DISTANCES), "mass": [], "beyond": []}
    for ratio in RATIOS:
        length = ratio * context
        if length > (model.positions.reach or length):
            break
        mass = attention_mass(model, inputs[:, -length:])
        found["mass"].append(mass.mean(dim=(0, 1)).tolist())
        if ratio > 1:
            far = torch.tensor(DISTANCES[: mass.shape[-1]]) >= context
            found["beyond"].append(mass[..., far].sum(dim=-1).tolist())
    return found
