"""Where the tokens of a cache stand: chapter "Keys that move".

A slot holds a token of one row. The token's position, and never the number of its slot, says who
may see it; so tokens can be dropped, their slots be used again, and positions be renumbered, with
no key touched.

Shapes: B batch, N slots, S new tokens, T slots that have been used, n tokens of a draft.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rope.attention.places import Places, put
from rope.attention.tree import Draft, ancestors


class Slots:
    """The bookkeeping of a `KVCache`: positions, sequences, drafts; its keys and values are there.

    While every token stands at the number of its slot there are no tables of all this to write.
    """

    length: int
    _end: int  # T, beside the tables
    _shape: tuple[int, int]  # [B, N]
    _device: torch.device
    _plain: bool
    _positions: Tensor | None  # [B, N]; None while positions are the numbers of the slots
    _stored_at: Tensor | None  # [B, N], beside them
    _stale: Tensor | None  # bool [B, N]: moved since they were read
    _segments: Tensor | None  # [B, N]
    _segment: Tensor | None  # [B, 1]: the sequence that each row goes on with
    _new: int  # S of the last call
    _latest: Tensor | None  # their slots, [B, S]; None: the last ones
    _draft: Draft | None

    def __init__(
        self,
        batch: int,
        slots: int,
        device: torch.device | str | None = None,
        *,
        plain: bool = False,
    ) -> None:
        self._shape, self._plain = (batch, slots), plain
        self._device = torch.empty(0, device=device).device
        self.reset()

    @property
    def positions(self) -> Tensor:
        """The position of the token in each slot, int64 `[B, N]`; -1 where it is empty.

        Not to be written to: `shift`, `drop` and `keep` change it.

        >>> Slots(1, 3).positions
        tensor([[-1, -1, -1]])
        """
        if self._positions is not None:
            return self._positions
        slots = torch.arange(self._shape[1], device=self._device)
        return slots.masked_fill(slots >= self.length, -1).expand(self._shape)

    @property
    def latest_positions(self) -> Tensor:
        """The positions of the tokens of the last `append`, `[B, S]`; none after a removal.

        >>> from rope.attention import KVCache
        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 2, 2)
        >>> _ = cache.append(x, x, torch.tensor([7, 9]))
        >>> cache.latest_positions
        tensor([[7, 9]])
        """
        return self.positions.gather(1, self._new_slots())

    @property
    def stored_at(self) -> Tensor:
        """The position that each stored key is rotated for, int64 `[B, N]`; 0 under "plain"."""
        if self._plain:
            return torch.zeros(self._shape, dtype=torch.int64, device=self._device)
        return self.positions if self._stored_at is None else self._stored_at

    @property
    def _used(self) -> int:
        """T: the length, unless slots below the last one have become empty."""
        return self.length if self._positions is None else self._end

    @property
    def segment_ids(self) -> Tensor | None:
        """The sequence of the token in each slot used, `[B, T]`; None: each row is one."""
        return None if self._segments is None else self._segments[:, : self._used]

    def reset(self) -> None:
        """Forget all tokens; the memory is kept."""
        self.length = self._end = self._new = 0
        self._positions = self._stored_at = self._stale = None
        self._segments = self._segment = self._draft = self._latest = None

    def next_ids(
        self,
        seq_len: int,
        position_ids: Tensor | None,
        segment_ids: Tensor | None,
        *,
        attention_mask: Tensor | None = None,
        parents: Tensor | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """The ids of the next seq_len tokens: those given, or else each row goes on.

        Its next position is one more than the last one of its sequence, the one of its last token;
        padding, where attention_mask `[B, S]` is 0, has position -1 and counts for none; parents:
        as `append` takes them. None where positions are the numbers of the slots, or no call gave
        segment_ids.

        >>> from rope.attention import KVCache
        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 2, 2)
        >>> _ = cache.append(x, x, torch.tensor([[0, 0]]), torch.tensor([[0, 1]]))
        >>> cache.next_ids(2, None, None)
        (tensor([[1, 2]]), tensor([[1, 1]]))
        """
        if parents is not None:
            parents, root = self._grown(parents, seq_len), self._next()
            new = ancestors(parents)[:, parents.shape[1] - seq_len :]
            position_ids = root + new.sum(dim=2) - 1
        elif attention_mask is not None:
            real = attention_mask != 0
            if position_ids is None:
                position_ids = self._next() + real.cumsum(dim=1) - 1
            position_ids = position_ids.long().expand(real.shape).masked_fill(~real, -1)
        elif position_ids is None and self._positions is not None:
            position_ids = self._next() + torch.arange(seq_len, device=self._device)
        if segment_ids is None and self._segment is not None:
            segment_ids = self._segment.expand(-1, seq_len)
        return position_ids, segment_ids

    def make_room(self, seq_len: int, window: int | None, sinks: int) -> None:
        """Empty slots of tokens that no later one sees, if seq_len more do not fit otherwise.

        >>> from rope.attention import KVCache
        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 4, 2)
        >>> _ = cache.append(x, x)
        >>> cache.make_room(1, window=3, sinks=1)
        >>> cache.positions
        tensor([[ 0, -1,  2,  3]])
        """
        if window is None or self.length + seq_len <= self._shape[1]:
            return
        at = self.positions
        seen = (at > self._next() - window) | (at < sinks)  # by the first of the new tokens
        self._put_positions(at.masked_fill(~seen, -1))
        most = window - 1 + sinks + self._drafted  # as long as positions rise
        self.length = min(self.length, most)
        if not torch.compiler.is_compiling() and at.is_cpu:  # a GPU would have to wait
            self.length = self._most()

    def _next(self) -> Tensor:
        """The position that each row goes on with, `[B, 1]`."""
        if self._draft is not None:
            return self._draft.root
        at = self.positions
        if self._segments is not None and self._segment is not None:
            at = at.masked_fill(self._segments != self._segment, -1)
        return at.amax(dim=1, keepdim=True) + 1

    def _grown(self, parents: Tensor, seq_len: int) -> Tensor:
        """The parents of all of the tree, `[B, n]`, once these tokens are in it."""
        parents = parents.long().expand(self._shape[0], seq_len)
        return parents if self._draft is None else torch.cat((self._draft.parents, parents), dim=1)

    def _place(
        self,
        seq_len: int,
        position_ids: Tensor | None,
        segment_ids: Tensor | None,
        parents: Tensor | None,
    ) -> Places:
        """Take slots for new tokens, the next ones or empty ones below, and note what they hold."""
        if position_ids is not None:
            self._write_down()
        first, latest = self.length, None
        end = first + seq_len
        if self._positions is not None:
            end = max(self._end, end)
            if first < self._end:
                empty = (self._positions[:, :end] < 0).byte()
                latest = empty.argmax(dim=1, keepdim=True)
                if seq_len != 1:
                    latest = empty.topk(seq_len, dim=1).indices
                if torch.compiler.is_compiling() or self._device.type != "cpu":
                    # There the length is an upper bound only while positions rise, unread.
                    torch._assert_async(
                        empty.gather(1, latest).all(),
                        "no slot is empty for a token: with a window, positions must rise",
                    )
            self._end = end
        self.length, self._new, self._latest = first + seq_len, seq_len, latest
        places = slice(first, end) if latest is None else latest
        if parents is not None:
            parents, root, slots = self._grown(parents, seq_len), self._next(), self._new_slots()
            if self._draft is not None:
                slots = torch.cat((self._draft.slots, slots), dim=1)
            self._draft = Draft(parents, slots, root)
        if self._positions is not None and self._stored_at is not None and position_ids is not None:
            position_ids = position_ids.long().expand(self._shape[0], -1)
            put(self._positions, places, position_ids)
            put(self._stored_at, places, position_ids)
        if segment_ids is not None:
            segment_ids = segment_ids.long().expand(self._shape[0], -1)
            if self._segments is None:
                with torch.inference_mode(False):
                    self._segments = torch.zeros_like(self.positions)
            put(self._segments, places, segment_ids)
            last = segment_ids[:, -1:]
            if position_ids is not None:  # padding may follow the last token
                real = (position_ids >= 0).long().cumsum(dim=1)
                last = segment_ids.gather(1, real.argmax(dim=1, keepdim=True))
                if self._segment is not None:  # a row of padding alone goes on as it was
                    last = torch.where(real[:, -1:] > 0, last, self._segment)
            self._segment = last
        return places

    def _new_slots(self) -> Tensor:
        """Where the tokens of the last call are, `[B, S]`."""
        if self._latest is not None:
            return self._latest
        slots = torch.arange(self._used - self._new, self._used, device=self._device)
        return slots.expand(self._shape[0], -1)

    def _write_down(self) -> None:
        """Begin the tables, from here on of tokens that stand anywhere."""
        if self._positions is None:
            at, self._end = self.positions, self.length
            with torch.inference_mode(False):  # or they could not be written to outside of it
                self._positions, self._stored_at = at.clone(), at.clone()

    def _put_positions(self, positions: Tensor) -> None:
        self._write_down()
        self.positions.copy_(positions)

    @property
    def _drafted(self) -> int:
        """How many tokens the open draft has."""
        return 0 if self._draft is None else self._draft.parents.shape[1]

    def _most(self) -> int:
        """The tokens of the row that holds most of them; reads the data."""
        return int((self.positions >= 0).sum(dim=1).max())
