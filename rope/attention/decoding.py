"""One call of attention, with a cache or without: "Rotary attention", "Keys that move".

Tokens are rotated to their positions, and attend to those in sight, in this call or in the cache.
In a full cache a window makes room: the slot of a token that nobody sees any more is written over.

Shapes: B batch, H heads, H_kv key heads, S tokens of the call, T slots in use, D head dimension.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from rope.attention.cache import KVCache
from rope.attention.sight import in_sight
from rope.checks import check_devices
from rope.module import RotaryEmbedding
from rope.positions import check_attention_mask, check_position_ids


@dataclass(frozen=True)
class Ids:
    """What a call says of its tokens, each None where it says nothing.

    position_ids, segment_ids: integers `[S]`, `[1, S]` or `[B, S]`; real: bool `[B, S]`, False for
    padding, whose position is -1.
    """

    position_ids: Tensor | None
    real: Tensor | None
    segment_ids: Tensor | None

    @classmethod
    def of(
        cls,
        k: Tensor,
        position_ids: Tensor | None,
        attention_mask: Tensor | None,
        segment_ids: Tensor | None = None,
    ) -> Self:
        """From a layer's arguments, of which mask and segments must fit k `[B, H_kv, S, D]`.

        >>> k, mask = torch.ones(1, 1, 2, 4), torch.tensor([[0, 1]])
        >>> Ids.of(k, torch.tensor([7, 8]), mask).position_ids
        tensor([[-1,  8]])
        """
        if segment_ids is not None:
            check_position_ids(segment_ids, k, "segment_ids")
        if attention_mask is None:
            return cls(position_ids, None, segment_ids)
        check_devices(x=k, attention_mask=attention_mask)
        size = [k.shape[0], k.shape[2]]
        if list(attention_mask.shape) != size:
            raise ValueError(
                f"attention_mask has shape {list(attention_mask.shape)}; it must be {size}, one "
                "number a token of this call: leave out those cached"
            )
        real = check_attention_mask(attention_mask)
        if position_ids is not None:
            check_position_ids(position_ids, k)
            position_ids = position_ids.long().expand(real.shape).masked_fill(~real, -1)
        return cls(position_ids, real, segment_ids)


@dataclass(frozen=True)
class Layer:
    """What a layer sees, and how it attends to that.

    attend: of q, k, v, both rotated, a mask `[B, S, T]` or None, and whether that means causal.
    window, sinks: as in `RotaryAttention`.
    """

    attend: Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]
    rotary: RotaryEmbedding
    window: int | None = None
    sinks: int = 0

    def turn(
        self,
        q: Tensor,
        k: Tensor,
        position_ids: Tensor | None,
        offset: int = 0,
        seq_len: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Both rotated, in one pass where their heads are equally wide."""
        if q.shape[-1] == k.shape[-1]:
            return self.rotary(q, k, position_ids, offset=offset, seq_len=seq_len)
        q = self.rotary.rotate(q, position_ids, offset=offset, seq_len=seq_len)
        return q, self.rotary.rotate(k, position_ids, offset=offset, seq_len=seq_len)


def alone(layer: Layer, q: Tensor, k: Tensor, v: Tensor, ids: Ids, *, causal: bool) -> Tensor:
    """Heads `[B, H, S, D]` over the tokens of this call, from q and k that are not rotated."""
    batch, seq_len = q.shape[0], q.shape[2]
    position_ids, real, window = ids.position_ids, ids.real, layer.window
    if real is not None and position_ids is None:
        position_ids = (real.cumsum(dim=1) - 1).masked_fill(~real, -1)
    rotated = layer.turn(q, k, _places(position_ids, real))
    windowed = window is not None and (position_ids is not None or seq_len > window)
    if ids.segment_ids is None and real is None and not windowed:
        return layer.attend(*rotated, v, None, causal)
    if position_ids is None:
        position_ids = torch.arange(seq_len, device=q.device)
    at = position_ids.long().expand(batch, -1)
    earlier = torch.ones(seq_len, seq_len, dtype=torch.bool, device=q.device)
    mask = in_sight(
        at,
        at,
        earlier.tril() if causal else earlier,
        window=window,
        sinks=layer.sinks,
        segment_ids=None if ids.segment_ids is None else ids.segment_ids.expand(batch, -1),
    )
    return layer.attend(*rotated, v, mask, False)


def decode(layer: Layer, cache: KVCache, q: Tensor, k: Tensor, v: Tensor, ids: Ids) -> Tensor:
    """Heads `[B, H, S, D]` over what the cache holds and the tokens of this call, then held too.

    k and v: `[B, H_kv, S, D]`, q and k not rotated. Raises as `KVCache.append` does; the cache is
    then unchanged.
    """
    rotary, window, sinks, tokens = layer.rotary, layer.window, layer.sinks, cache.tokens
    cache.check(k, v, ids.position_ids, ids.segment_ids, window=window, sinks=sinks)
    past = cache.length
    position_ids, segment_ids = tokens.next_ids(
        q.shape[2], ids.position_ids, ids.segment_ids, attention_mask=ids.real
    )
    seq_len = None
    if rotary.fixed_length is None and rotary.extension.length_dependent:
        # Keys stay as they were rotated, so one length must hold for all: the longest.
        seq_len = cache.keys.shape[2]
        cache.scale_to(seq_len)
    offset = past if position_ids is None else 0
    at = _places(position_ids, ids.real)
    if cache.policy == "plain":
        q = rotary.rotate(q, at, offset=offset, seq_len=seq_len)
    else:
        q, k = layer.turn(q, k, at, offset, seq_len)
    sizes = [q.shape[2]]
    if window is not None:
        sizes = pieces(q.shape[2], past, cache.keys.shape[2], window - 1 + sinks)
    outs, start = [], 0
    for size in sizes:
        new = slice(start, start + size)
        starts = not cache.length  # a bool under torch.compile too, where == 0 stays a symbol
        tokens.make_room(size, window, sinks)
        keys, values = cache.append(
            k[:, :, new],
            v[:, :, new],
            None if position_ids is None else position_ids[..., new],
            None if segment_ids is None else segment_ids[..., new],
            rotary=rotary,
            seq_len=seq_len,
        )
        mask = tokens.sight(window, sinks)
        outs.append(layer.attend(q[:, :, new], keys, values, mask, starts))
        start += size
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)


def _places(at: Tensor | None, real: Tensor | None) -> Tensor | None:
    """Where tokens are rotated to; padding has no position, and may be rotated anywhere."""
    return at if at is None or real is None else at.masked_fill(~real, 0)


def pieces(seq_len: int, past: int, room: int, kept: int) -> list[int]:
    """How many tokens at a time, so that a full cache still holds what each of them sees.

    past: tokens held; kept: those that must stay for the next one.

    >>> pieces(10, past=2, room=6, kept=4)
    [4, 2, 2, 2]
    """
    first, later = min(max(room - past, 0), seq_len), max(room - kept, 1)
    sizes = [first, *(min(later, seq_len - at) for at in range(first, seq_len, later))]
    return [size for size in sizes if size] or [0]
