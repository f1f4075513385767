"""Move SmolLM2's cached keys: chapter "Keys that move".

Shapes: L layers, H_kv key heads, S sequence, D head dimension.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rope.book.model.changes import BASE, DIM
from rope.book.model.heads import queries_and_keys
from rope.book.model.losses import model, window
from rope.book.model.network import new_caches
from rope.module import RotaryEmbedding

HALF, ROWS = 256, 32  # tokens per half of a passage; tokens whose keys are compared separately
FAR = 5_000
ROTARY = RotaryEmbedding(DIM, 2 * FAR, BASE, interleaved=True)


def measured(name: str, text: str) -> dict[str, Any]:
    """Return what NAMES[name] finds in the first 512 tokens of a text."""
    torch.set_num_threads(1)  # so that every machine adds in the same order
    return NAMES[name](window(text, 0, 2 * HALF))


@torch.no_grad()
def shifted(tokens: Tensor) -> dict[str, float]:
    """Compare the second half's losses after a cache has been shifted with those of one that isn't.

    The first half is read from position 5,000 on, and the cache is moved to 0. Returns the
    largest difference at a token and the difference of the means, in nats.
    """
    losses = []
    for start in (0, FAR):
        caches = new_caches(1, 2 * HALF)
        model()(tokens[None, :HALF], caches, position_ids=torch.arange(start, start + HALF))
        for cache in caches:
            cache.shift(-start)
        logits = model()(tokens[None, HALF:], caches)[0, :-1]
        losses.append(cross_entropy(logits, tokens[HALF + 1 :], reduction="none"))
    off = losses[1] - losses[0]
    return {"largest": off.abs().max().item(), "mean": off.mean().item()}


@torch.no_grad()
def chunk(tokens: Tensor) -> dict[str, list[float]]:
    """Compare the keys of a half that was read alone with those that it has after the other half.

    Returns one relative error per layer for the keys as they are ("not moved"), for the keys moved
    to their new positions ("moved"), and for the first and last ROWS of those; and for the first
    half, whose keys the second half must not change ("prefix").
    """
    keys = _rotated_keys(tokens)
    alone, whole = _rotated_keys(tokens[HALF:]), keys[:, :, HALF:]
    moved = ROTARY.shift(alone, HALF)
    return {
        "not moved": _off(alone, whole),
        "moved": _off(moved, whole),
        "moved, first": _off(moved[:, :, :ROWS], whole[:, :, :ROWS]),
        "moved, last": _off(moved[:, :, -ROWS:], whole[:, :, -ROWS:]),
        "prefix": _off(_rotated_keys(tokens[:HALF]), keys[:, :, :HALF]),
    }


def _rotated_keys(tokens: Tensor) -> Tensor:
    """Return all layers' keys of a text that starts at position 0, rotated, `[L, H, S, D]`."""
    return ROTARY.rotate(queries_and_keys(tokens)[1])


def _off(found: Tensor, right: Tensor) -> list[float]:
    """Return the norm of the error over the norm of the keys, one number per layer."""
    errors = (found - right).flatten(1).norm(dim=1) / right.flatten(1).norm(dim=1)
    return [float(error) for error in errors]


#: What can be measured.
NAMES: dict[str, Callable[[Tensor], dict[str, Any]]] = {"shift": shifted, "chunk": chunk}
