"""Move SmolLM2's cached keys, for the chapter "Keys that move".

Shapes: L layers, H_kv key heads, S sequence, D head dimension.
"""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rope.attention import KVCache
from rope.book.model.changes import BASE, DIM
from rope.book.model.heads import queries_and_keys
from rope.book.model.losses import model, window
from rope.book.model.network import new_caches
from rope.module import RotaryEmbedding

HALF = 256  # tokens in each half
MOVES = (100, 1_000)
ROTARY = RotaryEmbedding(DIM, 2 * HALF, BASE, interleaved=True)


def measured(name: str, text: str) -> dict[str, Any]:
    """Return what NAMES[name] measures on the first 512 tokens of a text."""
    torch.set_num_threads(1)  # so that every machine adds in the same order
    return NAMES[name](window(text, 0, 2 * HALF))


def stepped(tokens: Tensor) -> dict[str, list[float]]:
    """Return how much moves of s positions raise the second half's loss, for each s in MOVES.

    In each of FORMATS, keys are "stored" at their own positions, moved "once" by -s, or moved
    "s times" by -1. Keys "left behind" keep the positions from s on. "a over b" subtracts b's loss.
    Each entry holds the rise in nats per token, and then its standard error over the tokens.
    """
    found, right = {}, second_half(tokens)
    for s in MOVES:
        often = {"left behind": second_half(tokens, s, partial(move, "float32", 0, 1))}
        for name in FORMATS:
            found[f"{name}, stored"] = second_half(tokens, 0, partial(move, name, 0, 1)) - right
            found[f"{name}, once"] = second_half(tokens, s, partial(move, name, -s, 1)) - right
            often[name] = second_half(tokens, s, partial(move, name, -1, s))
        found |= {f"{name}, {s} times": often[name] - right for name in often}
        for a, b in combinations(("q8_0", "left behind", "bfloat16"), 2):
            found[f"{a} over {b}, {s} times"] = often[a] - often[b]
    return {way: [x.mean().item(), x.std().item() / len(x) ** 0.5] for way, x in found.items()}


@torch.no_grad()
def second_half(tokens: Tensor, start: int = 0, change: Callable[[KVCache], Any] = id) -> Tensor:
    """Return the second half's losses after reading the first half and changing its caches."""
    caches = new_caches(1, 2 * HALF)
    model()(tokens[None, :HALF], caches, position_ids=torch.arange(start, start + HALF))
    for cache in caches:
        change(cache)
    logits = model()(tokens[None, HALF:], caches)[0, :-1]
    return cross_entropy(logits, tokens[HALF + 1 :], reduction="none")


def move(name: str, delta: int, times: int, cache: KVCache) -> None:
    """Move the first HALF keys of a cache, rounding them to a format before and after each move."""
    keys, values = (x[:, :, :HALF].clone() for x in (cache.keys, cache.values))
    keys = FORMATS[name](keys)
    for _ in range(times):
        keys = FORMATS[name](ROTARY.shift(keys, delta))
    cache.reset()
    cache.append(keys, values, torch.arange(HALF))


def q8_0(x: Tensor) -> Tensor:
    """Round to llama.cpp's q8_0: 8-bit integers, with one float16 scale per 32 integers."""
    blocks = x.unflatten(-1, (-1, 32))
    scale = blocks.abs().amax(dim=-1, keepdim=True) / 127
    return ((blocks / scale).round() * scale.half()).flatten(-2)


@torch.no_grad()
def chunk(tokens: Tensor) -> dict[str, list[float]]:
    """Compare the second half's keys, read without the first half, to its keys read after it.

    Returns relative errors, one per layer. "not moved": keys that keep their positions. "moved":
    keys moved to their new positions. "prefix": keys of the first half, which must not change.
    """
    keys = _rotated_keys(tokens)
    alone, whole = _rotated_keys(tokens[HALF:]), keys[:, :, HALF:]
    return {
        "not moved": _off(alone, whole),
        "moved": _off(ROTARY.shift(alone, HALF), whole),
        "prefix": _off(_rotated_keys(tokens[:HALF]), keys[:, :, :HALF]),
    }


def _rotated_keys(tokens: Tensor) -> Tensor:
    """Return all layers' keys of a text that starts at position 0, rotated, `[L, H, S, D]`."""
    return ROTARY.rotate(queries_and_keys(tokens)[1])


def _off(found: Tensor, right: Tensor) -> list[float]:
    """Return the norm of the error divided by the norm of the keys, one number per layer."""
    errors = (found - right).flatten(1).norm(dim=1) / right.flatten(1).norm(dim=1)
    return [float(error) for error in errors]


#: The functions that round float32 keys to each format.
FORMATS: dict[str, Callable[[Tensor], Tensor]] = {
    "bfloat16": lambda x: x.bfloat16().float(),
    "float16": lambda x: x.half().float(),
    "q8_0": q8_0,
    "fp8_e4m3": lambda x: x.to(torch.float8_e4m3fn).float(),  # with the scale 1
    "float32": torch.clone,
}
#: The function for each measurement.
NAMES: dict[str, Callable[[Tensor], dict[str, Any]]] = {
    "chunk": chunk,
    "steps": stepped,
}
