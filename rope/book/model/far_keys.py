"""Move far keys of SmolLM2 to trained distances for the chapter "Beyond the trained length".

One more rotation moves a key: R_delta R_n k = R_{n + delta} k. Here only some of its planes move.
The model reads blocks of 256 tokens. A key is far if it is at least 8,192 tokens, the trained
length, before a block's last token. From token 11,264 on, some planes of each far key appear at a
random trained distance of at least 16. The distance is drawn anew in each layer and block.

Shapes: B batch, H_kv key heads, S new tokens, T cached tokens, D head dimension.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rope.attention import KVCache
from rope.book.model.changes import DIM, INV_FREQ
from rope.book.model.lengths import BLOCK, LENGTH, TRAINED
from rope.book.model.losses import model, window
from rope.book.model.weights import field
from rope.functional import rotary_embedding

READ, START = 14_336, 11_264  # number of tokens; the first token that sees moved keys
STEP, NEAREST = 256, 16  # tokens per block; the smallest new distance
#: Groups of planes. An unfinished plane makes less than one turn within the trained length.
_TURNS = TRAINED * INV_FREQ / (2 * torch.pi)
PLANES = {"unfinished": _TURNS < 1, "finished": _TURNS >= 1, "all": _TURNS > 0}
DRAWS = range(5)
#: Each measurement is "plain", or it names the planes in which far keys move, and a draw.
NAMES = ("plain", *(f"random, {planes}, draw {draw}" for draw in DRAWS for planes in PLANES))


class FarKeys(KVCache):
    """Cache keys, and return the far ones moved in some planes. The stored keys don't change.

    inv_freq: `[D/2]`, 0 in planes that don't move; None moves no plane. seed: determines the random
    distances.
    """

    inv_freq: Tensor | None = None
    seed = 0

    def append(self, k: Tensor, v: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """Store S tokens. Return all keys (far keys moved) and values, both `[B, H_kv, T, D]`."""
        keys, values = super().append(k, v, *args, **options)
        far = self.length - TRAINED
        if self.inv_freq is None or far <= 0:
            return keys, values
        moves = new_positions(self.length, k.shape[2], self.seed) - torch.arange(far)
        angles = moves[:, None] * self.inv_freq
        cos, sin = angles.cos().float(), angles.sin().float()
        moved = rotary_embedding(keys[:, :, :far], cos, sin, interleaved=True)
        return torch.cat((moved, keys[:, :, far:]), dim=2), values


def new_positions(length: int, size: int, seed: int) -> Tensor:
    """Return random new positions of the far keys, int64 `[length - TRAINED]`.

    length: the number of tokens so far, of which the last `size` read the far keys. Each of these
    tokens sees each far key at a distance from NEAREST to TRAINED - 1.
    """
    random = torch.Generator().manual_seed(seed * LENGTH + length)
    distances = torch.randint(NEAREST, TRAINED - size + 1, (length - TRAINED,), generator=random)
    return length - size - distances


@cache
@torch.no_grad()
def start_of(text: str) -> list[FarKeys]:
    """Return one cache per layer of a text's tokens before START. Fork the caches before use."""
    heads, blocks = field("llama.attention.head_count_kv"), field("llama.block_count")
    caches = [FarKeys(1, heads, READ, DIM) for _ in range(blocks)]
    for part in window(text, 0, START).split(BLOCK):
        model()(part[None], caches)
    return caches


@torch.no_grad()
def far_loss(name: str, text: str) -> float:
    """Return the mean loss on the last 1,024 of READ tokens. name: one of NAMES."""
    torch.set_num_threads(1)  # so that every machine adds in the same order
    caches: list[Any] = [each.fork() for each in start_of(text)]
    if name != "plain":
        _, planes, draw = name.split(", ")
        for layer, each in enumerate(caches):
            each.inv_freq = INV_FREQ * PLANES[planes]
            each.seed = int(draw.removeprefix("draw ")) * len(caches) + layer
    tokens, losses = window(text, 0, READ + 1), []
    for start in range(START, READ, STEP):
        logits = model()(tokens[None, start : start + STEP], caches)[0]
        losses.append(cross_entropy(logits, tokens[start + 1 : start + STEP + 1], reduction="none"))
    return torch.cat(losses)[-BLOCK:].mean().item()
