"""Cache the keys and values of earlier tokens.

See the chapters "Rotary attention" and "Keys that move". A rotated key can move to another position
without its unrotated original: R_delta R_n k = R_{n+delta} k. With the policy "rotated", a cache
stores each key rotated to the position at which it was appended. With the policy "plain", a cache
stores unrotated keys. With either policy, `shift` changes only the positions, which are integers.
The next `read` rotates each moved key once, from its stored form, into a second buffer.

Shapes: B batch, H_kv key heads, N slots, S new tokens, T slots in use, D, D_v key and value widths.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from rope.attention.cache_positions import CachePositions, write_slots
from rope.checks import check_devices
from rope.module import RotaryEmbedding
from rope.positions import check_position_ids


class KVCache:
    """Hold one layer's keys and values for up to max_seq_len tokens per row, one token per slot.

    head_dim: the key width D. value_dim: the value width D_v; None means head_dim, and 0 means that
    the cache holds no values. policy: how the cache stores keys, "rotated" or "plain". A cache
    whose policy is "plain", or whose keys have moved, stores keys twice. dtype, device: None means
    torch's defaults. Under autocast, pass autocast's dtype, because keys have that dtype.
    The attributes `keys` `[B, H_kv, N, D]` and `values` `[B, H_kv, N, D_v]` hold keys and values in
    their stored form; `slots` is a `CachePositions`.
    The cache is only for inference: `append` raises ValueError for tensors that record gradients.

    >>> cache = KVCache(batch=1, num_kv_heads=2, max_seq_len=8, head_dim=4)
    >>> keys, values = cache.append(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))
    >>> keys.shape, cache.length
    (torch.Size([1, 2, 3, 4]), 3)
    """

    def __init__(
        self,
        batch: int,
        num_kv_heads: int,
        max_seq_len: int,
        head_dim: int,
        *,
        value_dim: int | None = None,
        policy: str = "rotated",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if policy not in ("rotated", "plain"):
            raise ValueError(f"policy is {policy!r}; it must be 'rotated' or 'plain'")
        shape = (batch, num_kv_heads, max_seq_len)
        self.keys = torch.zeros(*shape, head_dim, dtype=dtype, device=device)
        self.values = self.keys.new_zeros(*shape, head_dim if value_dim is None else value_dim)
        self.policy = policy
        self.slots = CachePositions(batch, max_seq_len, self.keys.device)
        self._rotated_keys: Tensor | None = None  # [B, H_kv, N, D]; if None, `read` returns `keys`

    @property
    def length(self) -> int:
        """Return the number of slots taken in the fullest row, including slots with padding."""
        return self.slots.length

    @property
    def positions(self) -> Tensor:
        """Return the position of the token in each slot, int64 `[B, N]`; -1 for an empty slot.

        Don't write to this tensor; use `shift` and `keep`.
        """
        return self.slots.positions

    def append(
        self,
        k: Tensor,
        v: Tensor,
        position_ids: Tensor | None = None,
        *,
        rotary: RotaryEmbedding | None = None,
        seq_len: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Store the next S tokens' keys and values; return all keys and values, as `read` does.

        k: `[B, H_kv, S, D]`, rotated unless the policy is "plain". v: `[B, H_kv, S, D_v]`. Both
        must have the cache's dtype and device. position_ids: integers `[S]`, `[1, S]`, or `[B, S]`,
        with -1 for padding; if None, each row continues after its largest position.
        rotary, seq_len: see `read`; if the policy is "plain", every call requires rotary.
        Raises ValueError for shapes or devices that don't fit, too many tokens, or tensors that
        record gradients, and TypeError for other dtypes. After an error, the cache is unchanged.
        """
        self.check(k, v, position_ids)
        slots, size, rotated = self.slots, k.shape[2], k
        position_ids = slots.next_position_ids(size, position_ids)
        self._rotate_moved(rotary, seq_len)
        if self.policy == "plain":
            ids, offset = position_ids, slots.length
            if ids is not None:
                ids, offset = ids.clamp(min=0), 0  # the position of padding doesn't matter
            rotary = _check_rotary(rotary, seq_len)
            rotated = rotary.rotate(k, ids, offset=offset, seq_len=seq_len)
            self._second_buffer()
        new = slots.allocate(size, position_ids)
        write_slots(self.keys, new, k)
        write_slots(self.values, new, v)
        if self._rotated_keys is not None:
            write_slots(self._rotated_keys, new, rotated)
        return self.read()

    def read(
        self, rotary: RotaryEmbedding | None = None, *, seq_len: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return all keys, rotated to their positions, and all values.

        rotary: the layer's own `RotaryEmbedding`, which rotates keys that have moved since the last
        read; required after `shift`. seq_len: see `RotaryEmbedding`; if the extension depends on
        the length, every call requires seq_len, with the same value.
        Returns views `[B, H_kv, T, D]` and `[B, H_kv, T, D_v]`; empty slots hold arbitrary numbers.
        Raises ValueError if a required argument is missing, and `RotaryEmbedding.shift`'s errors.

        >>> cache, x = KVCache(1, 1, 2, 4), torch.ones(1, 1, 2, 4)
        >>> rotary = RotaryEmbedding(4)
        >>> _ = cache.append(rotary.rotate(x), x)
        >>> cache.shift(7)
        >>> keys, _ = cache.read(rotary)
        >>> torch.allclose(keys, rotary.rotate(x, offset=7), atol=1e-6)
        True
        """
        self._rotate_moved(rotary, seq_len)
        keys = self.keys if self._rotated_keys is None else self._rotated_keys
        used = self.slots.used
        return keys[:, :, :used], self.values[:, :, :used]

    def shift(self, delta: int | Tensor, slots: Tensor | None = None) -> None:
        """Move tokens by delta positions; the next `read` rotates each moved key once.

        delta: an int, or integers `[B]`, one per row; negative values move tokens back. slots: bool
        `[B, N]`, True for each token to move; None moves all tokens. Synchronizes with the device.
        Raises ValueError if a position would become negative or `slots` is not bool `[B, N]`, and
        TypeError if delta is not an integer. After an error, the cache is unchanged.

        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 3, 2)
        >>> _ = cache.append(x, x, torch.tensor([7, 8, 9]))
        >>> cache.shift(-5)
        >>> cache.positions
        tensor([[ 2,  3,  4, -1]])
        """
        self.slots.shift(delta, slots)

    def keep(self, mask: Tensor) -> None:
        """Empty every slot where the mask, bool `[B, N]`, is False; no token moves.

        Synchronizes with the device.
        Raises ValueError, without changing anything, if mask doesn't fit the cache.

        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 3, 2)
        >>> _ = cache.append(x, x)
        >>> cache.keep(cache.positions != 1)
        >>> cache.positions
        tensor([[ 0, -1,  2, -1]])
        """
        self.slots.keep(mask)

    def reset(self) -> None:
        """Forget all tokens but keep the allocated memory."""
        self.slots.reset()

    def reorder(self, rows: Tensor) -> None:
        """Replace row b with row rows[b], as beam search does.

        rows: the numbers of the rows to keep, int32 or int64 `[B']`; B' becomes the batch size.

        >>> cache = KVCache(2, 1, 2, 4)
        >>> cache.reorder(torch.tensor([1, 1, 0]))
        >>> cache.keys.shape
        torch.Size([3, 1, 2, 4])
        """
        with torch.inference_mode(False):  # so that calls outside inference mode can write too
            self.keys = self.keys.index_select(0, rows)
            self.values = self.values.index_select(0, rows)
            if self._rotated_keys is not None:
                self._rotated_keys = self._rotated_keys.index_select(0, rows)
            self.slots.select(rows)

    def fork(self) -> KVCache:
        """Return a copy that shares no memory with this cache.

        >>> cache, x = KVCache(1, 1, 2, 4), torch.ones(1, 1, 1, 4)
        >>> other = cache.fork()
        >>> _ = other.append(x, x)
        >>> cache.length, other.length
        (0, 1)
        """
        with torch.inference_mode(False):  # so that calls outside inference mode can write too
            return copy.deepcopy(self)

    def check(
        self,
        k: Tensor,
        v: Tensor,
        position_ids: Tensor | None = None,
        *,
        window: int | None = None,
        sinks: int = 0,
    ) -> None:
        """Raise the errors that `append` would raise, without changing anything.

        With a window, the cache evicts older tokens to make room, so position_ids must increase.
        """
        # Without these checks, copy_ would broadcast shapes, convert dtypes, and record gradients.
        for name, tensor, buffer in (("k", k, self.keys), ("v", v, self.values)):
            batch, heads, _, width = buffer.shape
            if tensor.dim() != 4 or tensor.shape != (batch, heads, k.shape[2], width):
                raise ValueError(
                    f"{name} has shape {list(tensor.shape)}; in this cache, it must be "
                    f"[{batch}, {heads}, S, {width}], with the same S for k and v"
                )
            if tensor.dtype != buffer.dtype:
                raise TypeError(
                    f"{name} is {tensor.dtype} but the cache is {buffer.dtype}; create the cache "
                    f"with dtype={tensor.dtype} (under autocast, keys have autocast's dtype)"
                )
            check_devices(**{"cache.keys": buffer, name: tensor})
            if tensor.requires_grad and torch.is_grad_enabled():
                raise ValueError(
                    f"{name} records gradients, which a cache would lose; decode under "
                    "torch.no_grad()"
                )
        if position_ids is not None:
            check_position_ids(position_ids, k)
        self.slots.check_room(k.shape[2], position_ids, window, sinks)

    def _rotate_moved(self, rotary: RotaryEmbedding | None, seq_len: int | None) -> None:
        """Write each moved token's key, rotated to its new position, to the second buffer."""
        slots = self.slots
        if slots.moved is None:
            return
        rotary = _check_rotary(rotary, seq_len)
        moved = (slots.moved & (slots.positions >= 0)).any(dim=0).nonzero()[:, 0]
        k = self.keys.index_select(2, moved)
        ids = slots.positions.index_select(1, moved)
        if self.policy == "plain":
            k = rotary.rotate(k, ids.clamp(min=0), seq_len=seq_len)
        else:
            delta = ids - slots.stored_at.index_select(1, moved)
            k = rotary.shift(k, delta.masked_fill(ids < 0, 0), seq_len=seq_len)
        self._second_buffer().index_copy_(2, moved, k)
        slots.moved = None

    def _second_buffer(self) -> Tensor:
        """Return the buffer that holds rotated keys; create it on first use."""
        if self._rotated_keys is None:
            with torch.inference_mode(False):
                self._rotated_keys = self.keys.clone()
        return self._rotated_keys


def _check_rotary(rotary: RotaryEmbedding | None, seq_len: int | None) -> RotaryEmbedding:
    """Return rotary. Raise ValueError if it is None, or if it needs a seq_len that is missing."""
    if rotary is None:
        raise ValueError(
            "rotary is None, but this cache must rotate keys; pass the layer's RotaryEmbedding"
        )
    if rotary.extension.length_dependent and rotary.fixed_length is None and seq_len is None:
        raise ValueError(
            f"seq_len is None, but the spectrum of {rotary.extension} depends on the length; "
            "pass the same seq_len for all keys, or call rotary.fix_length first"
        )
    return rotary
