"""Define changes to the rotation of SmolLM2 for the chapter "A real model".

A change is a function of unrotated q `[B, H, S, D]`, k `[B, H_kv, S, D]` and position_ids `[S]`
that returns the vectors for the scores. The correct rotation returns R_m q and R_n k.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rope.book.model.network import SmolLM2
from rope.extensions import Extension
from rope.frequencies import inverse_frequencies
from rope.functional import rotary_embedding
from rope.module import RotaryEmbedding

Change = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Ids = Callable[[Tensor], Tensor]
DIM, BASE = 64, 100_000.0
INV_FREQ = inverse_frequencies(DIM, BASE)
PLANES = {f"planes {first}–{first + 7}": [*range(first, first + 8)] for first in (0, 8, 16, 24)}


def same(x: Tensor) -> Tensor:
    """Return x unchanged."""
    return x


def bfloat16(x: Tensor) -> Tensor:
    """Round to bfloat16, and return the rounded values in x's dtype."""
    return x.to(torch.bfloat16).to(x.dtype)


@dataclass(frozen=True)
class Rotation:
    """Rotate queries and keys. Each argument can deviate from SmolLM2's own rotation.

    inv_freq: float64 `[D/2]`. query_ids, key_ids: functions of position_ids that return positions;
    None means no rotation. scale: a factor on cos and sin. round_*: functions that round results.
    """

    inv_freq: Tensor = INV_FREQ
    query_ids: Ids | None = same
    key_ids: Ids | None = same
    interleaved: bool = True
    inverse: bool = False
    scale: float = 1.0
    round_frequencies: Ids = same
    round_positions: Ids = same
    round_angles: Ids = same
    round_tables: Ids = same

    def __call__(self, q: Tensor, k: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        rotated = []
        for x, ids in ((q, self.query_ids), (k, self.key_ids)):
            if ids is not None:
                positions = self.round_positions(ids(position_ids).double())[:, None]
                angles = self.round_angles(positions * self.round_frequencies(self.inv_freq))
                tables = [(self.scale * f(angles)).float() for f in (torch.cos, torch.sin)]
                cos, sin = (self.round_tables(table) for table in tables)
                x = rotary_embedding(
                    x, cos, sin, interleaved=self.interleaved, inverse=self.inverse
                )
            rotated.append(x)
        return rotated[0], rotated[1]


EXACT = Rotation()


def from_position(start: int, **deviations: Any) -> Rotation:
    """Return the rotation of a text whose first token has position `start`."""
    return Rotation(
        query_ids=lambda ids: ids + start, key_ids=lambda ids: ids + start, **deviations
    )


def stopped(planes: Sequence[int]) -> Rotation:
    """Return a rotation that leaves some planes unrotated, as if at position 0."""
    return Rotation(INV_FREQ.index_fill(0, torch.tensor(planes), 0.0))


def extended(extension: Extension, seq_len: int | None = None) -> Rotation:
    """Return the rotation with a context extension from `rope.extensions`."""
    inv_freq = inverse_frequencies(DIM, BASE, extension=extension, seq_len=seq_len)
    return Rotation(inv_freq, scale=extension.attention_scaling)


def silenced(planes: Sequence[int]) -> Change:
    """Return a change that removes some planes from every score."""

    def change(q: Tensor, k: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        q, k = EXACT(q, k, position_ids)
        return q.index_fill(-1, _coordinates(planes), 0.0), k

    return change


def averaged(planes: Sequence[int]) -> Change:
    """Return a change that replaces each query by the mean of all queries so far, in some planes.

    Each mean includes the query itself, and is rotated to the position of that query.
    """

    def change(q: Tensor, k: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        at = _coordinates(planes)
        means = q[..., at].cumsum(dim=-2) / torch.arange(1, q.shape[-2] + 1)[:, None]
        return EXACT(q.index_copy(-1, at, means), k, position_ids)

    return change


def _coordinates(planes: Sequence[int]) -> Tensor:
    return torch.tensor([2 * plane + i for plane in planes for i in (0, 1)])


CHANGES: dict[str, Change] = {
    "unchanged": EXACT,
    "positions from 5,000": from_position(5_000),
    "no rotation": Rotation(query_ids=None, key_ids=None),
    "only keys rotated": Rotation(query_ids=None),
    "only queries rotated": Rotation(key_ids=None),
    "the other layout": Rotation(interleaved=False),
    "the other direction": Rotation(inverse=True),
    "rotated twice": Rotation(2 * INV_FREQ),
    "queries one position too far": Rotation(query_ids=lambda ids: ids + 1),
    "keys one position too far": Rotation(key_ids=lambda ids: ids + 1),
    "positions restart every 256 tokens": Rotation(
        query_ids=lambda ids: ids % 256, key_ids=lambda ids: ids % 256
    ),
    "base 10,000": Rotation(inverse_frequencies(DIM, 10_000.0)),
    "base 500,000": Rotation(inverse_frequencies(DIM, 500_000.0)),
    "positions divided by 2": Rotation(INV_FREQ / 2),
    "only planes 0–7 rotate": stopped(range(8, 32)),
    "positions from 100,000": from_position(100_000),
}
for _name, _planes in PLANES.items():
    CHANGES[f"{_name} stopped"] = stopped(_planes)
    CHANGES[f"{_name} silenced"] = silenced(_planes)
    CHANGES[f"{_name} without the query"] = averaged(_planes)
for _what in ("frequencies", "positions", "angles", "tables"):
    for _start in (0, 7_000, 100_000):
        _rotation = from_position(_start, **{f"round_{_what}": bfloat16})
        CHANGES[f"{_what} in bfloat16, from {_start:,}"] = _rotation
#: The layers that a change applies to, for each change that doesn't apply to all layers.
LAYERS: dict[str, Sequence[int]] = {"layer 0 not rotated": [0]}
CHANGES |= dict.fromkeys(LAYERS, CHANGES["no rotation"])


class ChangedRotary(RotaryEmbedding):
    """Apply a change wherever `RotaryEmbedding` would rotate."""

    def __init__(self, change: Change) -> None:
        super().__init__(DIM, 1)
        self.change = change

    def forward(  # type: ignore[override]
        self,
        q: Tensor,
        k: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int = 0,
        seq_len: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the changed q and k."""
        if position_ids is None:
            position_ids = torch.arange(offset, offset + q.shape[2])
        return self.change(q, k, position_ids)


@contextmanager
def applied(model: SmolLM2, change: Change, layers: Sequence[int] | None = None) -> Iterator[None]:
    """Apply a change to some layers, or to all of them, inside the `with` block."""
    attentions: list[Any] = [model.blk[i].attn for i in layers or range(len(model.blk))]
    before = attentions[0].rotary
    rotary = ChangedRotary(change)
    for attention in attentions:
        attention.rotary = rotary
    try:
        yield
    finally:
        for attention in attentions:
            attention.rotary = before


def changed(model: SmolLM2, name: str) -> AbstractContextManager[None]:
    """Apply one of CHANGES inside a `with` block. Raise KeyError for any other name."""
    return applied(model, CHANGES[name], LAYERS.get(name))
