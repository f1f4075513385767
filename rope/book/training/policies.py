"""Measure the loss of a model that reads texts longer than its cache, for each cache policy.

Chapter "Keys that move". Every policy keeps L keys, the trained context, except for one policy that
keeps all keys. The loss is measured on the last characters of texts with 8 L characters. Scores
depend only on position differences, so moving a window's keys back and letting positions grow with
the text are the same policy.

Shapes: B batch, S sequence.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from torch import Tensor

from rope.book.measured.machine import about_here
from rope.book.training.context import JUDGED, endings
from rope.book.training.data import TextData
from rope.book.training.decoder import Decoder
from rope.book.training.experiment import TEXT
from rope.book.training.loop import token_losses, train
from rope.book.training.reading import windowed

SINKS, SEEDS, RATIO = 4, (0, 1, 2), 8
Policy = Callable[[Decoder], AbstractContextManager[Any]]

#: The policies under which a model reads a text in one pass, with restricted keys.
STREAMED: dict[str, Policy] = {
    "all keys": nullcontext,
    "window": windowed,
    "sinks, positions in the cache": partial(windowed, sinks=SINKS),
    "sinks, positions in the text": partial(windowed, sinks=SINKS, moved=False),
}


def by_policy(model: Decoder, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Return the mean loss on the last JUDGED characters, in nats per character, by policy.

    "recomputed" reads the last L characters anew from position 0 for each character; the other
    policies are in STREAMED. inputs, targets: int64 `[B, S]`, S at least JUDGED + L - 1.

    >>> import torch
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


def policies() -> dict[str, Any]:
    """Train `TEXT` with each of SEEDS, and return the record of all policies; takes minutes.

    The record holds `metadata`, `experiment`, and `loss`, one value per policy and seed.
    """
    about = about_here(("torch",))  # read the commit before training
    loss: dict[str, list[float]] = {}
    for seed in SEEDS:
        trained = train(replace(TEXT, seed=seed))
        assert isinstance(trained.data, TextData)
        texts = [part[:, -RATIO * TEXT.context :] for part in endings(trained.data, TEXT.context)]
        for name, value in by_policy(trained.model, *texts).items():
            loss.setdefault(name, []).append(value)
    return {
        "metadata": {"command": "python -m rope.book.training policies", **about},
        "experiment": asdict(TEXT),
        "seeds": list(SEEDS),
        "sinks": SINKS,
        "ratio": RATIO,
        "judged": texts[0].shape[0] * JUDGED,
        "loss": loss,
    }


def _mean(losses: list[Tensor]) -> float:
    return sum(loss.double().mean().item() for loss in losses) / len(losses)
