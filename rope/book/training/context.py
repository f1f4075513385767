"""The same characters, read after more and more of what stands before them.

Chapter "Beyond the trained length". Windows of 16 trained contexts, without an overlap, from both
halves of the text that was kept from training; of each the last JUDGED characters are judged, and
read after what is left of 1, 2, 4, 8 or 16 contexts: their loss, and where attention goes for it.
So a difference between two lengths is no difference between two texts.

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

RATIOS = (1, 2, 4, 8, 16)  # of what is read to the trained context
CLAMPED = 8  # the ratio at which planes are clamped
JUDGED = 64  # characters at the end of each window
DISTANCES = (0, 1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)  # edges, from 0 on
Change = Callable[[Decoder, float], AbstractContextManager[Any]]  # for a ratio


def endings(data: TextData, context: int) -> tuple[Tensor, Tensor]:
    """As many windows of 16 contexts as the validation text holds, an even number: `[B, S]` each.

    The first half of them comes from the first half of the text.
    """
    length = RATIOS[-1] * context
    return data.validation(data.window_count(length) // 2 * 2, length)


def as_it_is(model: Decoder, ratio: float) -> AbstractContextManager[Any]:
    """No change."""
    return nullcontext()


def last_keys(model: Decoder, ratio: float) -> AbstractContextManager[Any]:
    """A window of the trained context, whatever the ratio."""
    return windowed(model)


def by_ratio(model: Decoder, data: TextData, change: Change = as_it_is) -> list[list[Any]]:
    """The loss of the judged characters: for each half of the text a list along RATIOS.

    change: what the model is read through at each ratio. None where a method has no positions left.
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
    """The mean loss of the last JUDGED characters, of the first half of the rows and the second."""
    losses = torch.cat(
        [
            token_losses(model, row, wanted)[:, -JUDGED:]
            for row, wanted in zip(inputs.split(1), targets.split(1), strict=True)
        ]
    )
    return [half.double().mean().item() for half in losses.chunk(2)]


def following(make: Callable[[float, int], Extension], context: int) -> Change:
    """The change that sets an extension's ratio to that of the lengths."""
    return lambda model, ratio: extended(model, make(ratio, context))


def by_extension(model: Decoder, data: TextData) -> dict[str, dict[str, Any]]:
    """`by_ratio` of a rotary model through each of EXTENSIONS.

    Returns by name: "ratio", the extension's ratio being that of the lengths, and "served", where
    it is the largest at every length, as of a model that is set up once.
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
    """Planes by name: a plane is unfinished if it makes less than a turn within the context."""
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
    """The loss of the judged characters when groups of planes meet no new distance.

    Returns `planes`, those of `groups_of_planes`; `ratio`, CLAMPED; `loss`, by name that of both
    halves of the text: so each group's part can be told with the others clamped before it, and
    after.
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
    """The share of a query's weight that each range of distances gets: `[layers, H, ranges]`.

    A range is from one of DISTANCES to before the next, as far as the text goes; the mean over the
    last JUDGED queries of each row. inputs: int64 `[B, S]`. Returns float64. Raises ValueError for
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
    kind = torch.bucketize(at[-JUDGED:, None] - at, edges, right=True) - 1  # -1 for keys ahead
    ranges = torch.nn.functional.one_hot(kind + 1, len(edges) + 1)[..., 1:].double()
    total = torch.zeros(model.experiment.layers, model.experiment.heads, len(edges)).double()
    for row in inputs.split(1):
        for layer, (attention, x, places) in enumerate(calls(model, row)):
            q, k, _ = attention.heads(x)
            weight = attention.scores(q, k, places, last=JUDGED).softmax(dim=-1)[0].double()
            total[layer] += torch.einsum("hmn,mnr->hr", weight, ranges) / weight.shape[1]
    return total / len(inputs)


def mass_by_ratio(model: Decoder, data: TextData) -> dict[str, Any]:
    """Where attention goes at each of RATIOS, as far as the method reaches.

    Returns `distance`, the edges; `mass`, for each ratio the mean over layers and heads, by ranges;
    `beyond`, the share that keys at a distance of the trained context or more get, for each ratio
    above 1 `[layers, H]`.
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
