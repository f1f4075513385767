"""Compute attention for the tokens of one call, with or without a cache of earlier tokens.

See "Rotary attention" and "Keys that move". `CoreAttention` rotates queries and keys to their
positions. Each query then attends to the visible keys from this call and, if there is a cache, from
earlier calls. With a window, a full cache evicts tokens that no later query can see.

Shapes: B batch, H heads, H_kv key heads, S tokens in the call, T slots in use, D head dimension.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rope.attention.cache import KVCache
from rope.attention.masks import build_attention_mask
from rope.checks import check_devices
from rope.module import RotaryEmbedding
from rope.positions import check_attention_mask, check_position_ids


@dataclass(frozen=True)
class CoreAttention:
    """Rotate queries and keys, and attend to the visible keys; all layers share this step.

    attend: a function that returns the heads' outputs `[B, H, S, D_v]`. Its arguments are rotated
    q, rotated k, v, a mask `[B, S, T]` or None, and a flag: if True, unmasked attention is causal.
    window, sinks: see `RotaryAttention`.
    """

    attend: Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]
    rotary: RotaryEmbedding
    window: int | None = None
    sinks: int = 0

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cache: KVCache | None,
        position_ids: Tensor | None,
        attention_mask: Tensor | None,
        segment_ids: Tensor | None = None,
        causal: bool = True,
    ) -> Tensor:
        """Return the heads' outputs `[B, H, S, D_v]`.

        q: `[B, H, S, D]`; k, v: `[B, H_kv, S, ...]`. Pass q and k unrotated. For the other
        arguments and the errors, see `RotaryAttention.forward`.
        """
        if segment_ids is not None:
            check_position_ids(segment_ids, k, "segment_ids")
        is_token = None
        if attention_mask is not None:
            check_devices(x=k, attention_mask=attention_mask)
            shape = [k.shape[0], k.shape[2]]
            if list(attention_mask.shape) != shape:
                raise ValueError(
                    f"attention_mask has shape {list(attention_mask.shape)}; it must be {shape}, "
                    "one entry per token of this call, without the cached tokens"
                )
            is_token = check_attention_mask(attention_mask)
            if position_ids is not None:
                check_position_ids(position_ids, k)
                position_ids = position_ids.long().expand(is_token.shape)
                position_ids = position_ids.masked_fill(~is_token, -1)
        if cache is not None:
            return self._with_cache(q, k, v, cache, position_ids, is_token)
        if is_token is not None and position_ids is None:
            position_ids = (is_token.cumsum(dim=1) - 1).masked_fill(~is_token, -1)
        q, k = self._rotate(q, k, _without_padding(position_ids, is_token))
        batch, _, seq_len, _ = q.shape
        all_in_window = self.window is None or (position_ids is None and seq_len <= self.window)
        if segment_ids is None and is_token is None and all_in_window:
            return self.attend(q, k, v, None, causal)
        if position_ids is None:
            position_ids = torch.arange(seq_len, device=q.device)
        position_ids = position_ids.long().expand(batch, -1)
        earlier = torch.ones(seq_len, seq_len, dtype=torch.bool, device=q.device)
        mask = build_attention_mask(
            position_ids,
            position_ids,
            earlier.tril() if causal else earlier,
            window=self.window,
            sinks=self.sinks,
            segment_ids=None if segment_ids is None else segment_ids.expand(batch, -1),
        )
        return self.attend(q, k, v, mask, False)

    def _with_cache(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cache: KVCache,
        position_ids: Tensor | None,
        is_token: Tensor | None,
    ) -> Tensor:
        """Append the tokens to the cache and return the heads' outputs."""
        rotary, window, sinks, slots = self.rotary, self.window, self.sinks, cache.slots
        cache.check(k, v, position_ids, window=window, sinks=sinks)
        past = cache.length
        position_ids = slots.next_position_ids(q.shape[2], position_ids, is_token)
        seq_len = None
        if rotary.fixed_length is None and rotary.extension.length_dependent:
            seq_len = cache.keys.shape[2]  # rotate all keys with the spectrum of a full cache
        offset = past if position_ids is None else 0
        ids = _without_padding(position_ids, is_token)
        if cache.policy == "plain":
            q = rotary.rotate(q, ids, offset=offset, seq_len=seq_len)
        else:
            q, k = self._rotate(q, k, ids, offset, seq_len)
        sizes = [q.shape[2]]
        if window is not None:
            sizes = chunk_sizes(q.shape[2], past, cache.keys.shape[2], window - 1 + sinks)
        outputs, start = [], 0
        for size in sizes:
            new = slice(start, start + size)
            was_empty = not cache.length  # torch.compile would keep `== 0` symbolic
            slots.evict(size, window, sinks)
            keys, values = cache.append(
                k[:, :, new],
                v[:, :, new],
                None if position_ids is None else position_ids[..., new],
                rotary=rotary,
                seq_len=seq_len,
            )
            mask = slots.attention_mask(window, sinks)
            outputs.append(self.attend(q[:, :, new], keys, values, mask, was_empty))
            start += size
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)

    def _rotate(
        self,
        q: Tensor,
        k: Tensor,
        position_ids: Tensor | None,
        offset: int = 0,
        seq_len: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return rotated q and k, computed in one pass if their head dimensions are equal."""
        if q.shape[-1] == k.shape[-1]:
            return self.rotary(q, k, position_ids, offset=offset, seq_len=seq_len)
        q = self.rotary.rotate(q, position_ids, offset=offset, seq_len=seq_len)
        return q, self.rotary.rotate(k, position_ids, offset=offset, seq_len=seq_len)


def _without_padding(position_ids: Tensor | None, is_token: Tensor | None) -> Tensor | None:
    """Return position_ids with 0 for padding, because rotations reject negative positions."""
    if position_ids is None or is_token is None:
        return position_ids
    return position_ids.masked_fill(~is_token, 0)


def chunk_sizes(seq_len: int, past: int, slots: int, kept: int) -> list[int]:
    """Return the sizes of chunks of seq_len tokens; the cache can hold all keys that a chunk sees.

    past: the number of tokens in the cache. slots: the number of slots in the cache. kept: how many
    cached tokens the next token needs.

    >>> chunk_sizes(10, past=2, slots=6, kept=4)
    [4, 2, 2, 2]
    """
    first, later = min(max(slots - past, 0), seq_len), max(slots - kept, 1)
    sizes = [first, *(min(later, seq_len - start) for start in range(first, seq_len, later))]
    return [size for size in sizes if size] or [0]
