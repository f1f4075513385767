"""The keys and values of the tokens seen so far: chapters "Rotary attention", "Keys that move".

A rotated key can be moved without its original, R_delta R_n k = R_{n+delta} k. Stored rotated, a
key keeps the rotation of the position that it came at; where it has been moved since, it is read
from a second buffer, rotated there once. Stored plain, all are.

Shapes: B batch, H_kv key heads, N slots, S new tokens, T slots that have been used, D head
dimension, D_v that of values.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.nn.functional import pad

from rope.attention.slots import Positions, put
from rope.checks import check_count, check_devices
from rope.module import RotaryEmbedding
from rope.positions import check_position_ids

POLICIES = ("rotated", "plain")


class KVCache:
    """Room for max_seq_len keys and values of one layer, a slot each: one cache a layer.

    value_dim: the width D_v of the values, head_dim when None, 0 for none. policy: keys are stored
    "rotated", or "plain", as they were before the rotation; a cache that is plain, or whose keys
    have been moved, holds its keys twice. dtype and device are torch's defaults when None; keys
    made under autocast have its dtype, and so must the cache.
    `tokens` knows where the tokens stand and what the last ones see (`tokens.sight`), `keys` and
    `values` are what is stored.
    For inference: it refuses tensors that record gradients.

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
        if policy not in POLICIES:
            raise ValueError(
                f"policy is {policy!r}; it must be one of {list(POLICIES)}: leave it out for "
                "'rotated'"
            )
        shape = (batch, num_kv_heads, max_seq_len)
        self.keys = torch.zeros(*shape, head_dim, dtype=dtype, device=device)
        self.values = self.keys.new_zeros(*shape, head_dim if value_dim is None else value_dim)
        self.policy = policy
        self.tokens = Positions(batch, max_seq_len, self.keys.device)
        self._turned: Tensor | None = None  # keys at their positions, where `keys` are not
        self._scaled: int | None = None  # the length that an extension scaled keys to

    @property
    def length(self) -> int:
        """The most slots that a row has taken; padding counts until `drop`, `keep` or a window."""
        return self.tokens.length

    @property
    def positions(self) -> Tensor:
        """The position of the token in each slot, int64 `[B, N]`; -1 where it is empty.

        Not to be written to: `shift`, `drop` and `keep` change it.
        """
        return self.tokens.positions

    def append(
        self,
        k: Tensor,
        v: Tensor,
        position_ids: Tensor | None = None,
        segment_ids: Tensor | None = None,
        *,
        rotary: RotaryEmbedding | None = None,
        seq_len: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Store the next S tokens and return all keys and values, as `read` does.

        k: `[B, H_kv, S, D]`, rotated unless the policy is plain, v: `[B, H_kv, S, D_v]`, in the
        cache's dtype, on its device; position_ids, segment_ids: integers `[S]`, `[1, S]` or
        `[B, S]`, where tokens stand (-1: padding) and what they belong to; when None rows go on.
        rotary, seq_len: as `read` takes them.
        Raises ValueError for other shapes or devices, too many tokens, segment ids that begin late,
        tensors that record gradients, or a cache made under inference_mode and used outside it,
        TypeError for another dtype; the cache is then unchanged.

        >>> cache = KVCache(1, 1, 2, 4)
        >>> cache.append(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))[0].shape
        torch.Size([1, 1, 2, 4])
        """
        self.check(k, v, position_ids, segment_ids)
        tokens, size, turned = self.tokens, k.shape[2], k
        if size == 0:  # nothing stands anywhere, and there is no last token to go on from
            position_ids = segment_ids = None
        else:
            position_ids, segment_ids = tokens.next_ids(size, position_ids, segment_ids)
        self._follow(rotary, seq_len)
        if self.policy == "plain":
            at, offset = position_ids, tokens.length
            if at is not None:
                at, offset = at.clamp(min=0), 0  # padding may stand anywhere
            turned = _needed(rotary, seq_len).rotate(k, at, offset=offset, seq_len=seq_len)
            self._keep_twice()
        places = tokens.place(size, position_ids, segment_ids)
        put(self.keys, places, k)
        put(self.values, places, v)
        if self._turned is not None:
            put(self._turned, places, turned)
        return self.read()

    def read(
        self, rotary: RotaryEmbedding | None = None, *, seq_len: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """All keys, rotated to their positions, and values.

        rotary: what the keys are rotated by, one for all calls; needed after `shift`, and by
        `append` where the policy is plain.
        seq_len: as in `RotaryEmbedding`, for an extension that depends on the length.
        Returns views `[B, H_kv, T, D]` and `[B, H_kv, T, D_v]`; slots that are empty hold anything.
        Only keys moved since the last read are rotated. Raises as `RotaryEmbedding.shift` does.

        >>> cache, x = KVCache(1, 1, 2, 4), torch.ones(1, 1, 2, 4)
        >>> rotary = RotaryEmbedding(4)
        >>> _ = cache.append(rotary.rotate(x), x)
        >>> cache.shift(7)
        >>> keys, _ = cache.read(rotary)
        >>> torch.allclose(keys, rotary.rotate(x, offset=7), atol=1e-6)
        True
        """
        self._follow(rotary, seq_len)
        keys, used = self.keys if self._turned is None else self._turned, self.tokens.used
        return keys[:, :, :used], self.values[:, :, :used]

    def shift(self, delta: int | Tensor, slots: Tensor | None = None) -> None:
        """Move tokens by delta positions; their keys follow when they are read, in one rotation.

        delta: an int, or integers `[B]`, one a row; below 0 to move back. slots: bool `[B, N]`, the
        tokens to move, all when None. Reads the data.
        Raises ValueError for a token that would stand below 0, TypeError for other dtypes; the
        cache is then unchanged.

        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 3, 2)
        >>> _ = cache.append(x, x, torch.tensor([7, 8, 9]))
        >>> cache.shift(-5)
        >>> cache.positions
        tensor([[ 2,  3,  4, -1]])
        """
        self.tokens.shift(delta, slots)

    def drop(self, mask: Tensor) -> None:
        """Empty the slots where the mask, bool `[B, N]`, is True; no other token moves.

        Raises ValueError for another shape, dtype or device; the cache is then unchanged. Reads the
        data.

        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 3, 2)
        >>> _ = cache.append(x, x)
        >>> cache.drop(cache.positions == 1)
        >>> cache.positions
        tensor([[ 0, -1,  2, -1]])
        """
        self.tokens.keep(~mask)

    def keep(self, mask: Tensor) -> None:
        """Empty all slots but those where the mask, bool `[B, N]`, is True; as `drop`."""
        self.tokens.keep(mask)

    def reset(self) -> None:
        """Forget all tokens; the memory is kept."""
        self.tokens.reset()

    def reorder(self, rows: Tensor) -> None:
        """Let row b go on from what row rows[b] holds, as a beam search has it.

        rows: int32 or int64 `[B']`, which is then the batch, each below B.

        >>> cache = KVCache(2, 1, 2, 4)
        >>> cache.reorder(torch.tensor([1, 1, 0]))
        >>> cache.keys.shape
        torch.Size([3, 1, 2, 4])
        """
        with torch.inference_mode(False):  # or they could not be written to outside of it
            self.keys = self.keys.index_select(0, rows)
            self.values = self.values.index_select(0, rows)
            if self._turned is not None:
                self._turned = self._turned.index_select(0, rows)
            self.tokens.select(rows)

    def grow(self, max_seq_len: int) -> None:
        """Make room for so many tokens in all; keys and values are copied, once.

        Raises ValueError and TypeError for less room than there is; the cache is then unchanged.

        >>> cache = KVCache(1, 1, 2, 4)
        >>> cache.grow(5)
        >>> cache.keys.shape
        torch.Size([1, 1, 5, 4])
        """
        check_count("max_seq_len", max_seq_len, smallest=self.keys.shape[2])
        more = (0, 0, 0, max_seq_len - self.keys.shape[2])
        with torch.inference_mode(False):  # or they could not be written to outside of it
            self.keys, self.values = pad(self.keys, more), pad(self.values, more)
            if self._turned is not None:
                self._turned = pad(self._turned, more)
            self.tokens.grow(max_seq_len)

    def fork(self) -> KVCache:
        """A copy that goes on by itself.

        >>> cache, x = KVCache(1, 1, 2, 4), torch.ones(1, 1, 1, 4)
        >>> other = cache.fork()
        >>> _ = other.append(x, x)
        >>> cache.length, other.length
        (0, 1)
        """
        with torch.inference_mode(False):  # or it could not be written to outside of it
            return copy.deepcopy(self)

    def scale_to(self, seq_len: int) -> None:
        """Note the length that an extension scales keys to, one for all that are held.

        Raises ValueError where keys are held that were scaled to another one.

        >>> KVCache(1, 1, 2, 4).scale_to(2)
        """
        if self.length and self._scaled not in (None, seq_len):
            raise ValueError(
                f"the cache holds keys scaled to {self._scaled} tokens, and has room for {seq_len} "
                "now; one length must hold for all: call rotary.fix_length with the last one "
                "before the first token"
            )
        self._scaled = seq_len

    def check(
        self,
        k: Tensor,
        v: Tensor,
        position_ids: Tensor | None = None,
        segment_ids: Tensor | None = None,
        *,
        window: int | None = None,
        sinks: int = 0,
    ) -> None:
        """Raise what `append` would, before anything is changed.

        With a window older tokens make room, and those to come must stand at rising positions.

        >>> KVCache(1, 1, 2, 4).check(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))
        """
        outside = not (torch.compiler.is_compiling() or torch.is_inference_mode_enabled())
        if outside and self.keys.is_inference():
            raise ValueError(
                "the cache was made under torch.inference_mode() and is used outside it; torch "
                "lets it be written to inside alone: make it outside, or decode inside"
            )
        for name, tensor, held in (("k", k, self.keys), ("v", v, self.values)):
            batch, heads, _, width = held.shape
            if tensor.dim() != 4 or tensor.shape != (batch, heads, k.shape[2], width):
                raise ValueError(
                    f"{name} has shape {list(tensor.shape)}; the cache takes "
                    f"[{batch}, {heads}, S, {width}]: make it with those sizes, and append keys "
                    "and values of the same tokens"
                )
            if tensor.dtype != held.dtype:
                raise TypeError(
                    f"{name} is {tensor.dtype} and the cache {held.dtype}; they must agree: "
                    f"make it with dtype={tensor.dtype} (under autocast the keys have its dtype)"
                )
            check_devices(**{"cache.keys": held, name: tensor})
            if tensor.requires_grad and torch.is_grad_enabled():
                raise ValueError(
                    f"{name} records gradients; a cache is overwritten and cannot keep them: "
                    "decode under torch.no_grad()"
                )
        if position_ids is not None:
            check_position_ids(position_ids, k)
        if segment_ids is not None:
            check_position_ids(segment_ids, k, "segment_ids")
        self.tokens.check(k.shape[2], position_ids, segment_ids, window, sinks)

    def _follow(self, rotary: RotaryEmbedding | None, seq_len: int | None) -> None:
        """Rotate keys that have been moved to where they stand, once, from what is stored."""
        tokens = self.tokens
        if tokens.moved is None:
            return
        rotary = _needed(rotary, seq_len)
        slots = (tokens.moved & (tokens.positions >= 0)).any(dim=0).nonzero()[:, 0]
        k, at, came = (
            table.index_select(axis, slots)
            for axis, table in ((2, self.keys), (1, tokens.positions), (1, tokens.stored_at))
        )
        if self.policy == "plain":
            k = rotary.rotate(k, at.clamp(min=0), seq_len=seq_len)
        else:
            k = rotary.shift(k, (at - came).masked_fill(at < 0, 0), seq_len=seq_len)
        self._keep_twice().index_copy_(2, slots, k)
        tokens.moved = None

    def _keep_twice(self) -> Tensor:
        """The second buffer, made when it is first needed."""
        if self._turned is None:
            with torch.inference_mode(False):
                self._turned = self.keys.clone()
        return self._turned


def _needed(rotary: RotaryEmbedding | None, seq_len: int | None) -> RotaryEmbedding:
    """What rotates the keys, refused if it is missing, or the length that its spectrum follows."""
    if rotary is None:
        raise ValueError(
            "rotary is None, and the cache has keys to rotate; it must be what rotates the "
            "queries: pass the RotaryEmbedding of the layer"
        )
    if rotary.extension.length_dependent and rotary.fixed_length is None and seq_len is None:
        raise ValueError(
            f"seq_len is None for {rotary.extension.name}, whose spectrum depends on the length; "
            "one must hold for all keys: pass it, or call fix_length first"
        )
    return rotary
