"""Measure SmolLM2's loss by position in long texts, for "Beyond the trained length".

The model was trained on texts of 8,192 tokens and reads 16,384. Every method scores the same
tokens, so their losses can be compared. "recomputed" scores each block of 1,024 tokens with only
the previous block as context. "moved back" keeps only 4 sinks and the previous block in the cache,
and moves that block's keys to the positions after the sinks.

Shapes: S sequence.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rope.book.model.changes import CHANGES, Change, applied, extended
from rope.book.model.losses import model, token_losses, window
from rope.book.model.network import SmolLM2, new_caches
from rope.extensions import NTK, DynamicNTK, Linear, YaRN

TRAINED, LENGTH, BLOCK = 8_192, 16_384, 1_024


@contextmanager
def windowed(model: SmolLM2, window: int, sinks: int) -> Iterator[None]:
    """Let each token see `window` positions, including its own, and the first `sinks` tokens."""
    attentions: list[Any] = [block.attn for block in model.blk]
    for attention in attentions:
        attention.window, attention.sinks = window, sinks
    try:
        yield
    finally:
        for attention in attentions:
            attention.window, attention.sinks = None, 0


def rotated_by(rotation: Change) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that creates a `with` block in which the model uses the rotation."""
    return lambda: applied(model(), rotation)


#: The ways to read a text of LENGTH tokens. The extensions are for twice the trained length. The
#: last three are mistakes.
METHODS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "recomputed": nullcontext,
    "plain": nullcontext,
    "YaRN": rotated_by(extended(YaRN(2.0, TRAINED))),
    "YaRN without its factor": rotated_by(extended(YaRN(2.0, TRAINED, attention_factor=1.0))),
    "NTK-aware": rotated_by(extended(NTK(2.0))),
    "dynamic NTK": rotated_by(extended(DynamicNTK(2.0, TRAINED), LENGTH)),
    "linear": rotated_by(extended(Linear(2.0))),
    "window": lambda: windowed(model(), BLOCK, 0),
    "window and 4 sinks": lambda: windowed(model(), BLOCK, 4),
    "moved back and 4 sinks": nullcontext,
    **{
        name: rotated_by(CHANGES[name]) for name in ("base 10,000", "base 500,000", "rotated twice")
    },
}


@torch.no_grad()
def long_losses(tokens: Tensor) -> Tensor:
    """Read block by block with a cache, and return the losses after the first token, `[S - 1]`."""
    attention: Any = model().blk[0].attn
    kept = len(tokens) if attention.window is None else attention.window + attention.sinks + BLOCK
    caches, parts = new_caches(1, min(kept, len(tokens))), []
    for start in range(0, len(tokens), BLOCK):
        logits = model()(tokens[None, start : start + BLOCK], caches)[0]
        following = tokens[start + 1 : start + BLOCK + 1]
        parts.append(cross_entropy(logits[: len(following)], following, reduction="none"))
    return torch.cat(parts)


@torch.no_grad()
def moved_back(tokens: Tensor, sinks: int = 4) -> Tensor:
    """Return the losses `[S - 1]` with a cache of the first `sinks` tokens and the previous block.

    After each block, the cache drops all other tokens, and the block's keys move back to the
    positions after the sinks. No distance therefore exceeds two blocks plus the sinks.
    """
    caches, parts = new_caches(1, 2 * BLOCK + sinks), []
    for start in range(0, len(tokens), BLOCK):
        for cache in caches if start > BLOCK else ():
            first = int(cache.positions.max()) + 1 - BLOCK  # the first position to keep
            cache.keep((cache.positions < sinks) | (cache.positions >= first))
            cache.shift(sinks - first, cache.positions >= first)
        logits = model()(tokens[None, start : start + BLOCK], caches)[0]
        following = tokens[start + 1 : start + BLOCK + 1]
        parts.append(cross_entropy(logits[: len(following)], following, reduction="none"))
    return torch.cat(parts)


def recomputed(tokens: Tensor) -> Tensor:
    """Return the losses `[S - 1]` with the previous block's tokens as the only context."""
    parts = [token_losses(tokens[:BLOCK])]
    for start in range(BLOCK, len(tokens), BLOCK):
        parts.append(token_losses(tokens[start - BLOCK : start + BLOCK])[BLOCK - 1 :])
    return torch.cat(parts)


def block_losses(method: str, text: str) -> list[float]:
    """Return the mean loss in each block of a text. method: one of METHODS."""
    torch.set_num_threads(1)  # so that every machine adds in the same order
    tokens = window(text, 0, LENGTH)
    readers = {"recomputed": recomputed, "moved back and 4 sinks": moved_back}
    with METHODS[method]():
        losses = readers.get(method, long_losses)(tokens)
    return [part.mean().item() for part in losses.split(BLOCK)]
