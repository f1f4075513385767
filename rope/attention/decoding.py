"""A call with a cache: chapters "Rotary attention" and "Keys that move".

Tokens are rotated to the positions that come next, stored, and attend to what is held. In a full
cache a window makes room: the slot of a token that nobody sees any more is written over.

Shapes: B batch, H heads, H_kv key heads, S tokens of the call, T slots in use, D head dimension.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rope.attention.cache import KVCache
from rope.module import RotaryEmbedding
from rope.positions import check_position_ids

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]


def decode(
    parts: tuple[Attend, RotaryEmbedding, KVCache],
    vectors: tuple[Tensor, Tensor, Tensor],
    ids: tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None],
    *,
    window: int | None,
    sinks: int,
    span: int | None,
) -> Tensor:
    """Heads `[B, H, S, D]` over what the cache holds and the tokens of this call, then held too.

    parts: what attends, given queries, keys, values, a mask or None, and whether the first query
    stands with the first key; what rotates; the cache. vectors: q `[B, H, S, D]`, k and v
    `[B, H_kv, S, D]`, not rotated. ids: position_ids, the attention mask as bool `[B, S]`,
    segment_ids, parents. span: the most positions from a sink to the query, where sinks move along;
    the rest as in `RotaryAttention`. Raises as `KVCache.append` does; the cache is then unchanged.
    """
    attend, rotary, cache = parts
    (q, k, v), (position_ids, real, segment_ids, parents) = vectors, ids
    given = position_ids is not None
    if position_ids is not None and real is not None:
        check_position_ids(position_ids, k)
        position_ids = position_ids.long().expand(real.shape).masked_fill(~real, -1)
    cache.check(k, v, position_ids, segment_ids, parents=parents, window=window, sinks=sinks)
    past = cache.length
    position_ids, segment_ids = cache.next_ids(
        q.shape[2], position_ids, segment_ids, attention_mask=real, parents=parents
    )
    sizes = [q.shape[2]]
    if window is not None and parents is None:
        at_once = span
        if span is not None:  # while no token stands farther than it
            counted = position_ids is None or (real is not None and not given and not past)
            at_once = span if counted else 0
        sizes = pieces(q.shape[2], past, cache.keys.shape[2], window - 1 + sinks, at_once)
    seq_len = None
    if rotary.fixed_length is None and rotary.extension.length_dependent:
        # Keys stay as they were rotated, so one length must hold for all: the longest.
        seq_len = cache.keys.shape[2]
    offset = past if position_ids is None else 0
    at = position_ids if position_ids is None or real is None else position_ids.clamp(min=0)
    if cache.policy == "plain":
        q = rotary.rotate(q, at, offset=offset, seq_len=seq_len)
    else:
        q, k = rotary(q, k, at, offset=offset, seq_len=seq_len)
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
        mask = cache.sight(window=window, sinks=sinks)
        if span is None or mask is None:
            outs.append(attend(q[:, :, new], keys, values, mask, starts))
        else:
            with cache.sinks_along(rotary, sinks, span, seq_len=seq_len):
                outs.append(attend(q[:, :, new], keys, values, mask, False))
        start += size
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)


def pieces(seq_len: int, past: int, room: int, kept: int, span: int | None) -> list[int]:
    """How many tokens at a time, so that a full cache still holds what each of them sees.

    past: tokens held; kept: those that must stay for the next one. Where sinks move along, their
    distance changes with each token past the span.

    >>> pieces(10, past=2, room=6, kept=4, span=None)
    [4, 2, 2, 2]
    """
    most, later = room - past, room - kept
    if span is not None:
        most, later = min(most, span - past), 1
    first = min(max(most, 0), seq_len)
    rest = seq_len - first
    sizes = [first, *[later] * (rest // later), rest % later]
    return [size for size in sizes if size] or [0]
