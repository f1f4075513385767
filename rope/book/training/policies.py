"""Measure the loss of a model that reads texts longer than its cache, for each cache policy.

Chapters "Keys that move" and "Beyond the trained length". Every policy keeps L keys, the trained
context, except for one policy that keeps all keys. The loss is measured on the last characters of
long texts. Scores depend only on position differences, so moving a window's keys back and letting
positions grow with the text are the same policy. The recorded losses, `recorded/policies.json`,
were measured by a program in commit f403233.

Shapes: B batch, H heads, S sequence, L trained context.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor

from rope.book.training.data import TextData
from rope.book.training.decoder import Attention, Block, Decoder, check_rotary, check_softmax
from rope.book.training.loop import token_losses
from rope.book.training.plans import RATIOS
from rope.book.training.positions import Decaying, Places
from rope.checks import check_count

JUDGED, SINKS = 64, 4  # characters at the end of each text; kept keys at its start
Policy = Callable[[Decoder], AbstractContextManager[Any]]


@contextmanager
def windowed(model: Decoder, sinks: int = 0, *, moved: bool = True) -> Iterator[None]:
    """Let each query see only the last L keys, its own included, in every layer.

    The change lasts inside a `with` block; texts start at position 0. sinks: how many of the L keys
    are the first keys of the text instead (arXiv 2309.17453). moved: True gives sinks positions in
    the cache, so that a later query sees them at the distances from position L - 1; False keeps
    their positions in the text.
    Raises ValueError for linear attention, for L or more sinks, and for moved sinks in a model that
    is not rotary or is xPos.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(width=16, heads=2, layers=1, context=4), tokens=9)
    >>> text = torch.arange(9)
    >>> other = text.clone()
    >>> other[0] = 5
    >>> with windowed(model), torch.no_grad():
    ...     [bool(same) for same in (model(text[None]) == model(other[None]))[0].all(dim=-1)]
    [False, False, False, False, True, True, True, True, True]
    """
    check_softmax(model)
    check_count("sinks", sinks, smallest=0)
    context = model.experiment.context
    if sinks >= context:
        raise ValueError(
            f"sinks is {sinks} for a window of {context} keys; the window must also hold the "
            f"query's own key: pass at most {context - 1}"
        )
    if sinks and moved and isinstance(check_rotary(model), Decaying):
        raise ValueError(
            "position is 'xpos', whose tables hold a decay too; it must be 'rope', 'partial' or "
            "'p-rope' for moved sinks: train such a model, or pass moved=False"
        )

    def scores(attention: Attention, q: Tensor, k: Tensor, places: Places) -> Tensor:
        score = attention.scores(q, k, places)
        if sinks and moved and places.query is not None:
            row = torch.arange(score.shape[-1], device=score.device).clamp(max=context - 1)
            cos, sin = (table[row] for table in places.query)
            within = attention.scores(q, k, places._replace(query=(cos, sin)))
            score = torch.cat((within[..., :sinks], score[..., sinks:]), dim=-1)
        at = torch.arange(score.shape[-1], device=score.device)
        dropped = at[:, None] - at >= context - sinks
        dropped[:, :sinks] = False
        return score.masked_fill(dropped, -math.inf)

    def attend(attention: Attention, x: Tensor, places: Places) -> Tensor:
        q, k, v = attention.heads(x)
        mixed = scores(attention, q, k, places).softmax(dim=-1) @ v
        return attention.out(mixed.transpose(1, 2).flatten(2))

    with ExitStack() as changes:
        for block in model.blocks:
            attention = cast(Block, block).attention
            changes.enter_context(patch.object(attention, "forward", partial(attend, attention)))
        yield


#: The policies under which a model reads a text in one pass, with restricted keys.
STREAMED: dict[str, Policy] = {
    "all keys": nullcontext,
    "window": windowed,
    "sinks, positions in the cache": partial(windowed, sinks=SINKS),
    "sinks, positions in the text": partial(windowed, sinks=SINKS, moved=False),
}


def endings(data: TextData, context: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets `[B, S]`: an even number of windows of 16 contexts each.

    The windows cover the validation text; the first half of the rows comes from its first half.
    """
    length = RATIOS[-1] * context
    return data.validation(data.window_count(length) // 2 * 2, length)


def by_policy(model: Decoder, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Return the mean loss on the last JUDGED characters, in nats per character, by policy.

    "recomputed" reads the last L characters anew from position 0 for each character; the other
    policies are in STREAMED. inputs, targets: int64 `[B, S]`, S at least JUDGED + L - 1.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(width=16, heads=2, layers=1, context=8), tokens=9)
    >>> text = torch.arange(80)[None] % 9
    >>> losses = by_policy(model, text, (text + 1) % 9)
    >>> abs(losses["window"] - losses["recomputed"]) < 1e-5  # with one layer, keys hold no context
    True
    """
    context = model.experiment.context
    last = inputs[:, -(JUDGED + context - 1) :].unfold(1, context, 1)  # [B, JUDGED, L]
    wanted = targets[:, -(JUDGED + context - 1) :].unfold(1, context, 1)
    pairs = list(zip(last, wanted, strict=True))
    found = {"recomputed": _mean([token_losses(model, *pair)[:, -1] for pair in pairs])}
    rows = list(zip(inputs.split(1), targets.split(1), strict=True))
    for name, policy in STREAMED.items():
        with policy(model):
            found[name] = _mean([token_losses(model, *row)[:, -JUDGED:] for row in rows])
    return found


def _mean(losses: list[Tensor]) -> float:
    return sum(loss.double().mean().item() for loss in losses) / len(losses)
