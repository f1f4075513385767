"""One call of attention, with a cache or without: "Rotary attention", "Keys that move".

Tokens are rotated to their positions, and attend to those in sight, in this call or in the cache.
In a full cache a window makes room: the slot of a token that nobody sees any more is written over.

Shapes: B batch, H heads, H_kv key heads, S tokens of the call, T slots in use, D head dimension.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rope.attention.cache import KVCache
from rope.attention.sight import in_sight
from rope.module import RotaryEmbedding
from rope.positions import check_position_ids


@dataclass(frozen=True)
class Ids:
    """What a call says of its tokens, each `[B, S]` or None; real: bool, False for padding.

    position_ids, segment_ids: `[S]` too; parents: as `KVCache.append` takes them.
    """

    position_ids: Tensor | None = None
    real: Tensor | None = None
    segment_ids: Tensor | None = None
    parents: Tensor | None = None


@dataclass(frozen=True)
class Layer:
    """What a layer sees, and how it attends to that.

    attend: of q, k, v, both rotated, a mask `[B, S, T]` or None, whether that means causal, and,
    where sinks count positions in the cache, queries as sinks see them and which keys those are.
    window, sinks: as in `RotaryAttention`; span: the positions that a cache has for both, None
    where sinks count those in the text.
    """

    attend: Callable[..., Tensor]
    rotary: RotaryEmbedding
    window: int | None = None
    sinks: int = 0
    span: int | None = None

    def rotate(
        self, q: Tensor, k: Tensor, at: Tensor | None, **given: Any
    ) -> tuple[Tensor, Tensor]:
        """Both at `[S]` or `[B, S]`, in one pass where their heads are equally wide."""
        if q.shape[-1] == k.shape[-1]:
            return self.rotary(q, k, at, **given)
        return self.rotary.rotate(q, at, **given), self.rotary.rotate(k, at, **given)

    def near(self, q: Tensor, at: Tensor, keys: Tensor, seq_len: int | None) -> tuple[Tensor, ...]:
        """Queries `[B, H, S, D]`, not rotated, at `[B, S]`, for sinks among keys at `[B, T]`."""
        assert self.span is not None
        there = at.clamp(min=0, max=self.span - 1)
        return self.rotary.rotate(q, there, seq_len=seq_len), (keys >= 0) & (keys < self.sinks)


def alone(layer: Layer, q: Tensor, k: Tensor, v: Tensor, ids: Ids, *, causal: bool) -> Tensor:
    """Heads `[B, H, S, D]` over the tokens of this call, from q and k that are not rotated."""
    batch, _, seq_len, _ = q.shape
    position_ids, real, window = ids.position_ids, ids.real, layer.window
    if real is not None:
        if position_ids is None:
            position_ids = (real.cumsum(dim=1) - 1).clamp(min=0)
        else:
            check_position_ids(position_ids, k)
            position_ids = position_ids.long().expand(real.shape).masked_fill(~real, 0)
    rotated = layer.rotate(q, k, position_ids)
    scaled = layer.rotary.fixed_length is None and layer.rotary.extension.length_dependent
    windowed = window is not None and (position_ids is not None or seq_len > window)
    if ids.segment_ids is None and real is None and not windowed:
        return layer.attend(*rotated, v, None, causal)
    if position_ids is None:
        position_ids = torch.arange(seq_len, device=q.device)
    at = position_ids.long().expand(batch, -1)
    at = at if real is None else torch.where(real, at, -1)
    earlier = torch.ones(seq_len, seq_len, dtype=torch.bool, device=q.device)
    segments = None if ids.segment_ids is None else ids.segment_ids.expand(batch, -1)
    mask = in_sight(
        at,
        at,
        earlier.tril() if causal else earlier,
        window=window,
        sinks=layer.sinks,
        segment_ids=segments,
        key_segment_ids=segments,
    )
    near = None
    if layer.span is not None:
        counted = ids.position_ids is None and real is None
        length = seq_len if counted or not scaled else int(at.max()) + 1
        near = layer.near(q, at, at, length if scaled else None)
    return layer.attend(*rotated, v, mask, False, near)


def decode(layer: Layer, cache: KVCache, q: Tensor, k: Tensor, v: Tensor, ids: Ids) -> Tensor:
    """Heads `[B, H, S, D]` over what the cache holds and the tokens of this call, then held too.

    k and v: `[B, H_kv, S, D]`, q and k not rotated. Raises as `KVCache.append` does; the cache is
    then unchanged.
    """
    rotary, window, sinks = layer.rotary, layer.window, layer.sinks
    position_ids, real = ids.position_ids, ids.real
    segment_ids, parents = ids.segment_ids, ids.parents
    if position_ids is not None and real is not None:
        check_position_ids(position_ids, k)
        position_ids = position_ids.long().expand(real.shape).masked_fill(~real, -1)
    cache.check(k, v, position_ids, segment_ids, parents=parents, window=window, sinks=sinks)
    past = cache.length
    position_ids, segment_ids = cache.next_ids(
        q.shape[2], position_ids, segment_ids, attention_mask=real, parents=parents
    )
    seq_len = None
    if rotary.fixed_length is None and rotary.extension.length_dependent:
        # Keys stay as they were rotated, so one length must hold for all: the longest.
        seq_len = cache.keys.shape[2]
        cache.scale_to(seq_len)
    offset = past if position_ids is None else 0
    at = position_ids if position_ids is None or real is None else position_ids.clamp(min=0)
    if cache.policy == "plain":
        turned = rotary.rotate(q, at, offset=offset, seq_len=seq_len)
    else:
        turned, k = layer.rotate(q, k, at, offset=offset, seq_len=seq_len)
    sizes = [q.shape[2]]
    if window is not None and parents is None:
        sizes = pieces(q.shape[2], past, cache.keys.shape[2], window - 1 + sinks)
    outs, start = [], 0
    for size in sizes:
        new = slice(start, start + size)
        starts = not cache.length  # a bool under torch.compile too, where == 0 stays a symbol
        cache.make_room(size, window, sinks)
        keys, values = cache.append(
            k[:, :, new],
            v[:, :, new],
            None if position_ids is None or parents is not None else position_ids[..., new],
            None if segment_ids is None else segment_ids[..., new],
            parents=parents,
            rotary=rotary,
            seq_len=seq_len,
        )
        mask, near = cache.sight(window=window, sinks=sinks), None
        if layer.span is not None and mask is not None:
            here, held = cache.latest_positions, cache.positions[:, : keys.shape[2]]
            near = layer.near(q[:, :, new], here, held, seq_len)
        outs.append(layer.attend(turned[:, :, new], keys, values, mask, starts, near))
        start += size
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)


def pieces(seq_len: int, past: int, room: int, kept: int) -> list[int]:
    """How many tokens at a time, so that a full cache still holds what each of them sees.

    past: tokens held; kept: those that must stay for the next one.

    >>> pieces(10, past=2, room=6, kept=4)
    [4, 2, 2, 2]
    """
    first, later = min(max(room - past, 0), seq_len), max(room - kept, 1)
    sizes = [first, *(min(later, seq_len - at) for at in range(first, seq_len, later))]
    return [size for size in sizes if size] or [0]
