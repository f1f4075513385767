"""The keys and values of the tokens seen so far: chapters "Rotary attention", "Keys that move".

A rotated key can be moved without its original, R_delta R_n k = R_{n+delta} k. Stored rotated, a
key keeps the rotation of the position that it came at; where it has been moved since, it is read
from a second buffer, rotated there once. Stored plain, all are.

Shapes: B batch, H_kv key heads, N slots, S new tokens, T slots that have been used, D head
dimension, D_v that of values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from rope.attention.admission import check_new, check_rotary
from rope.attention.places import put
from rope.attention.reading import Reading
from rope.attention.tree import Draft
from rope.checks import FLOATING, check_count, check_devices, check_integer
from rope.module import RotaryEmbedding
from rope.positions import position_range

POLICIES = ("rotated", "plain")


class KVCache(Reading):
    """Room for max_seq_len keys and values of one layer, a slot each: one cache a layer.

    value_dim: the width D_v of the values, head_dim when None, 0 for none. policy: keys are stored
    "rotated", or "plain", as they were before the rotation; a cache that is plain, or whose keys
    have been moved, holds its keys twice. dtype and device are torch's defaults when None; keys
    made under autocast have its dtype, and so must the cache.
    `length` is the most slots that a row has taken, padding too until `drop`, `keep` or a window
    empties them; `positions` says where its tokens stand.
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
        value_dim = head_dim if value_dim is None else value_dim
        shape = (batch, num_kv_heads, max_seq_len, head_dim)
        names = ("batch", "num_kv_heads", "max_seq_len", "head_dim", "value_dim")
        for name, size in zip(names, (*shape, value_dim), strict=True):
            check_count(name, size, smallest=int(name != "value_dim"))
        if policy not in POLICIES:
            raise ValueError(
                f"policy is {policy!r}; it must be one of {list(POLICIES)}: leave it out for "
                "'rotated'"
            )
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        if self.keys.dtype not in FLOATING:
            raise TypeError(
                f"dtype is {dtype}; it must be float16, bfloat16, float32 or float64: pass that of "
                "the keys"
            )
        self.values = self.keys.new_zeros(*shape[:3], value_dim)
        super().__init__(batch, max_seq_len, self.keys.device, plain=policy == "plain")
        self._read, self._scaled = None, None

    @property
    def policy(self) -> str:
        """What is stored: "rotated" or "plain" keys."""
        return POLICIES[self._plain]

    def append(
        self,
        k: Tensor,
        v: Tensor,
        position_ids: Tensor | None = None,
        segment_ids: Tensor | None = None,
        *,
        parents: Tensor | None = None,
        rotary: RotaryEmbedding | None = None,
        seq_len: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Store the next S tokens and return all keys and values, as `read` does.

        k: `[B, H_kv, S, D]`, rotated unless the policy is plain, v: `[B, H_kv, S, D_v]`, in the
        cache's dtype, on its device; position_ids, segment_ids: integers `[S]` or `[B, S]`, where
        the tokens stand (-1: padding) and what they belong to; when None those of `next_ids`.
        parents: integers `[S]` or `[B, S]`, which make the tokens part of a draft tree: the number
        of each one's parent in the order drafted, over all calls since the last `accept`; -1 for a
        child of the last token before the draft. rotary, seq_len: as `read` takes them.
        Raises ValueError for other shapes or devices, too many tokens, segment ids that begin late,
        parents that form no tree, a draft still open, tensors that record gradients, or a cache
        made under inference_mode and used outside it, TypeError for another dtype; the cache is
        then unchanged.

        >>> cache = KVCache(1, 1, 2, 4)
        >>> cache.append(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))[0].shape
        torch.Size([1, 1, 2, 4])
        """
        self.check(k, v, position_ids, segment_ids, parents=parents)
        check_rotary(self.keys, rotary, seq_len, self._plain or self._stale is not None)
        size = k.shape[2]
        if size == 0:  # nothing stands anywhere, and there is no last token to go on from
            position_ids = segment_ids = parents = None
        else:
            position_ids, segment_ids = self.next_ids(
                size, position_ids, segment_ids, parents=parents
            )
        places = self._place(size, position_ids, segment_ids, parents)
        put(self.keys, places, k)
        put(self.values, places, v)
        if self._plain and rotary is not None:
            self._bring(rotary, places, seq_len)
        elif self._read is not None:
            put(self._read, places, k)
        return self.read(rotary, seq_len=seq_len)

    def reorder(self, rows: Tensor) -> None:
        """Let row b go on from what row rows[b] holds, as a beam search has it.

        rows: integers `[B']`, which is then the batch, each below B.
        Raises ValueError and TypeError for what is none; the cache is then unchanged.

        >>> cache = KVCache(2, 1, 2, 4)
        >>> cache.reorder(torch.tensor([1, 1, 0]))
        >>> cache.keys.shape
        torch.Size([3, 1, 2, 4])
        """
        check_integer("rows", rows)
        check_devices(cache=self.keys, rows=rows)
        low, high = position_range(rows)
        if rows.dim() != 1 or len(rows) == 0 or low < 0 or high >= len(self.keys):
            raise ValueError(
                f"rows is {rows.tolist()}; it must be numbers 0 ... {len(self.keys) - 1}, one for "
                "each row that is to be: count rows of this cache"
            )
        self._map(lambda x: x.index_select(0, rows.long()))
        if self._positions is not None:
            self.length = self._most()

    def grow(self, max_seq_len: int) -> None:
        """Make room for so many tokens in all; keys and values are copied, once.

        Raises ValueError and TypeError for less room than there is; the cache is then unchanged.

        >>> cache = KVCache(1, 1, 2, 4)
        >>> cache.grow(5)
        >>> cache.keys.shape
        torch.Size([1, 1, 5, 4])
        """
        check_count("max_seq_len", max_seq_len, smallest=self._shape[1])
        more = max_seq_len - self._shape[1]
        tables = ("_positions", "_stored_at", "_stale", "_segments")
        with torch.inference_mode(False):  # or they could not be written to outside of it
            for name in ("keys", "values", "_read", *tables):
                held = getattr(self, name)
                if held is not None:
                    around = (0, more) if name in tables else (0, 0, 0, more)
                    setattr(self, name, pad(held, around, value=-(name == "_positions")))
        self._shape = (self._shape[0], max_seq_len)

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

    def fork(self) -> KVCache:
        """A copy that goes on by itself.

        >>> cache, x = KVCache(1, 1, 2, 4), torch.ones(1, 1, 1, 4)
        >>> other = cache.fork()
        >>> _ = other.append(x, x)
        >>> cache.length, other.length
        (0, 1)
        """
        made = copy.copy(self)
        made._map(torch.clone)
        return made

    def check(
        self,
        k: Tensor,
        v: Tensor,
        position_ids: Tensor | None = None,
        segment_ids: Tensor | None = None,
        *,
        parents: Tensor | None = None,
        window: int | None = None,
        sinks: int = 0,
    ) -> None:
        """Raise what `append` would raise of the new tokens, and store nothing.

        window, sinks: where older tokens make room, which must stand at rising positions.

        >>> KVCache(1, 1, 2, 4).check(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))
        """
        check_new(self.keys, self.values, k, v)
        self._check_room(k.shape[2], parents is not None, window, sinks)
        self._check_ids(k, position_ids, segment_ids, parents, rising=window is not None)

    def _map(self, change: Callable[[Tensor], Tensor]) -> None:
        """Change every tensor; the first axis of all is the batch."""
        with torch.inference_mode(False):  # or they could not be written to outside of it
            for name, value in vars(self).items():
                if isinstance(value, Tensor):
                    setattr(self, name, change(value))
            if self._draft is not None:
                self._draft = Draft(*map(change, self._draft))
        self._shape = (len(self.keys), self.keys.shape[2])
