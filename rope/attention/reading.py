"""Keys brought to their positions when they are read: chapter "Keys that move".

R_delta R_n k = R_{n+delta} k: a rotated key is moved without its original, and with one rounding if
it is always moved from what was stored. So keys that have been moved are read from a second buffer.

Shapes: B batch, H_kv key heads, N slots, T slots that have been used, D head dimension, D_v that of
values.
"""

import torch
from torch import Tensor

from rope.attention.admission import check_rotary
from rope.attention.moves import Moves
from rope.attention.places import Places, put, spread
from rope.module import RotaryEmbedding


class Reading(Moves):
    """The part of a `KVCache` that hands out its keys and values."""

    keys: Tensor  # [B, H_kv, N, D], as stored
    values: Tensor  # [B, H_kv, N, D_v]
    _scaled: int | None  # the length that an extension scaled keys to
    _read: Tensor | None  # [B, H_kv, N, D]: the keys at `positions`, where `keys` are not

    def read(
        self, rotary: RotaryEmbedding | None = None, *, seq_len: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """All keys, rotated to their positions, and values.

        rotary: what the keys are rotated by, one for all calls; needed where the policy is plain,
        or after `shift`.
        seq_len: as in `RotaryEmbedding`, for an extension that depends on the length.
        Returns views `[B, H_kv, T, D]` and `[B, H_kv, T, D_v]`; slots that are empty hold anything.
        Only keys moved since the last read are rotated. Raises as `RotaryEmbedding.shift` does.

        >>> from rope.attention import KVCache
        >>> cache, x = KVCache(1, 1, 2, 4), torch.ones(1, 1, 2, 4)
        >>> rotary = RotaryEmbedding(4)
        >>> _ = cache.append(rotary.rotate(x), x)
        >>> cache.shift(7)
        >>> keys, _ = cache.read(rotary)
        >>> torch.allclose(keys, rotary.rotate(x, offset=7), atol=1e-6)
        True
        """
        check_rotary(self.keys, rotary, seq_len, self._stale is not None)
        used = self._used
        if self._stale is not None and rotary is not None:
            slots = (self._stale & (self.positions >= 0)).any(dim=0).nonzero()[:, 0]
            if len(slots) == used:
                self._bring(rotary, slice(0, used), seq_len)
            elif len(slots):
                self._bring(rotary, slots.expand(len(self.keys), -1), seq_len)
            self._stale = None
        keys = self.keys if self._read is None else self._read
        return keys[:, :, :used], self.values[:, :, :used]

    def _bring(self, rotary: RotaryEmbedding, places: Places, seq_len: int | None) -> None:
        """Rotate these keys to their positions, in the buffer that is read."""
        if self._read is None:
            with torch.inference_mode(False):
                self._read = self.keys.clone()
        put(self._read, places, self._turned(rotary, places, seq_len))

    def _turned(self, rotary: RotaryEmbedding, places: Places, seq_len: int | None) -> Tensor:
        """These keys at their positions: rotated once, from what is stored."""
        if isinstance(places, slice):
            k, at = self.keys[:, :, places], self.positions[:, places]
            base = self.stored_at[:, places]
        else:
            k = self.keys.gather(2, spread(places, self.keys[:, :, : places.shape[1]]))
            at, base = self.positions.gather(1, places), self.stored_at.gather(1, places)
        held = at >= 0
        there = at.masked_fill(~held, 0)
        if self._plain:
            return rotary.rotate(k, there, seq_len=seq_len)
        return rotary.shift(k, (there - base).masked_fill(~held, 0), seq_len=seq_len)
