"""Where the tokens of a cache stand: chapter "Keys that move".

A slot holds a token of one row. The token's position, and never the number of its slot, says who
may see it; so tokens can be dropped, their slots be used again, and positions be renumbered, with
no key touched. Moves are summed as integers: a key follows when it is read, in one rotation from
what was stored, so the roundings of many moves do not add up.

Shapes: B batch, N slots, S new tokens, T slots that have been used.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from rope.attention.sight import in_sight
from rope.checks import check_count, check_devices, check_integer
from rope.scalars import FARTHEST

Places = slice | Tensor  # slots: the same in all rows, or integers [B, S]


def put(buffer: Tensor, places: Places, values: Tensor) -> None:
    """Write `[B, S]`, or `[B, H, S, D]`, into slots of `[B, N]`, or `[B, H, N, D]`.

    >>> buffer = torch.zeros(1, 3)
    >>> put(buffer, torch.tensor([[2, 0]]), torch.tensor([[5.0, 7.0]]))
    >>> buffer
    tensor([[7., 0., 5.]])
    """
    axis = 1 if buffer.dim() == 2 else 2
    if isinstance(places, slice):
        buffer.narrow(axis, places.start, places.stop - places.start).copy_(values)
        return
    if axis == 2:
        places = places[:, None, :, None].expand_as(values)
    buffer.scatter_(axis, places, values)


class Positions:
    """Which slots of a `KVCache` hold tokens, where those stand, and who sees whom.

    length: the most slots that a row has taken; moved: bool `[B, N]`, the tokens whose keys have
    yet to follow them, None for none.
    While every token stands at the number of its slot there are no tables of all this to write.
    """

    length: int
    moved: Tensor | None
    _end: int  # T, beside the tables
    _positions: Tensor | None  # [B, N]; None while positions are the numbers of the slots
    _stored_at: Tensor | None  # [B, N], beside them
    _segments: Tensor | None  # [B, N]
    _segment: Tensor | None  # [B, 1]: the sequence that each row goes on with
    _new: int  # S of the last call
    _latest: Tensor | None  # their slots, [B, S]; None: the last ones

    def __init__(self, batch: int, slots: int, device: torch.device | str | None = None) -> None:
        self._shape = (batch, slots)
        self._device = torch.empty(0, device=device).device
        self.reset()

    def reset(self) -> None:
        """Forget all tokens."""
        self.length = self._end = self._new = 0
        self.moved = self._positions = self._stored_at = None
        self._segments = self._segment = self._latest = None

    @property
    def positions(self) -> Tensor:
        """The position of the token in each slot, int64 `[B, N]`; -1 where it is empty.

        >>> Positions(1, 3).positions
        tensor([[-1, -1, -1]])
        """
        if self._positions is not None:
            return self._positions
        slots = torch.arange(self._shape[1], device=self._device)
        return slots.masked_fill(slots >= self.length, -1).expand(self._shape)

    @property
    def stored_at(self) -> Tensor:
        """The position at which each token came, int64 `[B, N]`."""
        return self.positions if self._stored_at is None else self._stored_at

    @property
    def latest(self) -> Tensor:
        """The positions of the last call's tokens, `[B, S]`; none after a removal.

        >>> tokens = Positions(1, 4)
        >>> _ = tokens.place(2, torch.tensor([7, 9]), None)
        >>> tokens.latest
        tensor([[7, 9]])
        """
        return self.positions.gather(1, self._latest_slots())

    @property
    def used(self) -> int:
        """T: the length, unless slots below the last one have become empty."""
        return self.length if self._positions is None else self._end

    @property
    def segment_ids(self) -> Tensor | None:
        """The sequence of the token in each slot used, `[B, T]`; None: each row is one."""
        return None if self._segments is None else self._segments[:, : self.used]

    def next_ids(
        self,
        seq_len: int,
        position_ids: Tensor | None = None,
        segment_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """The ids of the next seq_len tokens; where they are None each row goes on.

        Its next position is one more than the last one of its sequence, the one of its last token;
        padding, where attention_mask `[B, S]` is 0, has position -1 and counts for none. Returns
        None where positions are the numbers of the slots, or no call came with segment_ids.

        >>> tokens = Positions(1, 4)
        >>> _ = tokens.place(2, torch.tensor([[0, 0]]), torch.tensor([[0, 1]]))
        >>> tokens.next_ids(2)
        (tensor([[1, 2]]), tensor([[1, 1]]))
        """
        if attention_mask is not None:
            real = attention_mask != 0
            if position_ids is None:
                position_ids = self._next() + real.cumsum(dim=1) - 1
            position_ids = position_ids.long().expand(real.shape).masked_fill(~real, -1)
        elif position_ids is None and self._positions is not None:
            position_ids = self._next() + torch.arange(seq_len, device=self._device)
        if segment_ids is None and self._segment is not None:
            segment_ids = self._segment.expand(-1, seq_len)
        return position_ids, segment_ids

    def check(
        self,
        seq_len: int,
        position_ids: Tensor | None,
        segment_ids: Tensor | None,
        window: int | None,
        sinks: int,
    ) -> None:
        """Refuse tokens that find no room, and ids that do not fit each other or what is held.

        >>> Positions(1, 4).check(4, None, None, None, 0)
        """
        least, room = self.length + seq_len, self._shape[1]
        if window is not None:  # all that no window holds makes room, for one token at least
            least = min(least, window + sinks)
        if least > room:
            raise ValueError(
                f"the cache holds {self.length} of {room} tokens; {seq_len} more do not fit: "
                f"grow it to {least}, or reset it"
            )
        if segment_ids is not None and self._segments is None and self.length:
            raise ValueError(
                f"segment_ids was given after {self.length} tokens without; the cache must know "
                "who may see whom from the first token: give them with the prompt, or reset it"
            )
        if torch.compiler.is_compiling() or self._device.type != "cpu":
            return  # a GPU would have to wait for the numbers
        if position_ids is None:
            last = None if self._positions is None else self._segment  # else slots are counted
            if segment_ids is None or last is None or bool((segment_ids == last).all()):
                return
            raise ValueError(
                f"segment_ids holds {segment_ids.tolist()} after {last.tolist()}, without "
                "position_ids; where another sequence goes on or begins, its positions must be "
                "said: pass both"
            )
        ids, rule = position_ids.long().expand(self._shape[0], -1), "be -1, padding, or more,"
        wrong = (ids < -1) | (ids >= FARTHEST)
        if window is not None:  # or it could hold more tokens than it has positions
            last = torch.cat((self._next() - 1, ids[:, :-1]), dim=1).cummax(dim=1).values
            wrong, rule = wrong | ((ids >= 0) & (ids <= last)), "rise along each row, in a window,"
        if wrong.any():
            raise ValueError(
                f"position_ids holds {int(ids[wrong][0])}; it must {rule} below {FARTHEST}: "
                "leave it out to count on"
            )

    def make_room(self, seq_len: int, window: int | None, sinks: int) -> None:
        """Empty slots of tokens that no later one sees, if seq_len more do not fit otherwise.

        >>> tokens = Positions(1, 4)
        >>> _ = tokens.place(4, None, None)
        >>> tokens.make_room(1, window=3, sinks=1)
        >>> tokens.positions
        tensor([[ 0, -1,  2,  3]])
        """
        if window is None or self.length + seq_len <= self._shape[1]:
            return
        at = self.positions
        seen = (at > self._next() - window) | (at < sinks)  # by the first of the new tokens
        self._renumber(at.masked_fill(~seen, -1))
        self.length = min(self.length, window - 1 + sinks)  # as long as positions rise
        if not torch.compiler.is_compiling() and at.is_cpu:  # a GPU would have to wait
            self.length = self._most()

    def place(
        self, seq_len: int, position_ids: Tensor | None, segment_ids: Tensor | None
    ) -> Places:
        """Take slots for new tokens, the next ones or empty ones below, and note what they hold.

        >>> Positions(1, 4).place(3, None, None)
        slice(0, 3, None)
        """
        if position_ids is not None:
            self._write_down()
            position_ids = position_ids.long().expand(self._shape[0], -1)
        start, latest = self.length, None
        end = start + seq_len
        if self._positions is not None:
            end = max(self._end, end)
            if start < self._end:
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
        self.length, self._new, self._latest = start + seq_len, seq_len, latest
        places = slice(start, end) if latest is None else latest
        if self._positions is not None and self._stored_at is not None and position_ids is not None:
            put(self._positions, places, position_ids)
            put(self._stored_at, places, position_ids)
        if segment_ids is not None:
            segment_ids = segment_ids.long().expand(self._shape[0], -1)
            if self._segments is None:
                with torch.inference_mode(False):
                    self._segments = torch.zeros_like(self.positions)
            put(self._segments, places, segment_ids)
            self._segment = self._last_segment(position_ids, segment_ids)
        return places

    def shift(self, delta: int | Tensor, slots: Tensor | None) -> None:
        """Move tokens by delta positions, as `KVCache.shift` says."""
        if isinstance(delta, Tensor):
            check_integer("delta", delta)
            check_devices(cache=self.positions, delta=delta)
            if delta.shape != self._shape[:1]:
                raise ValueError(
                    f"delta has shape {list(delta.shape)}; it must be an integer, or "
                    f"[{self._shape[0]}], one a row: move some of a row by slots"
                )
            delta = delta.long()[:, None]
        else:
            check_count("delta", delta, smallest=-FARTHEST)
        at = self.positions
        chosen = at >= 0
        if slots is not None:
            chosen = chosen & self._checked("slots", slots)
        there = torch.where(chosen, at + delta, at)
        low, high = int(torch.where(chosen, there, 0).min()), int(there.max())
        if low < 0 or high >= FARTHEST:
            raise ValueError(
                f"delta moves a token to {low if low < 0 else high}; positions must be at least 0 "
                f"and below {FARTHEST}, up to which float64 tells them apart: drop the tokens that "
                "would stand before, or move by less"
            )
        changed = there != at
        if changed.any():
            self.moved = changed if self.moved is None else self.moved | changed
            self._renumber(there)

    def keep(self, mask: Tensor) -> None:
        """Empty all slots but those where the mask, bool `[B, N]`, is True."""
        self._renumber(self.positions.masked_fill(~self._checked("mask", mask), -1))
        held = (self.positions >= 0).any(dim=0).nonzero()
        self._end = int(held[-1]) + 1 if len(held) else 0
        self._new, self._latest = 0, None  # the slots of the last call may be gone
        self.length = self._most()

    def select(self, rows: Tensor) -> None:
        """Let row b go on from row rows[b], integers `[B']`."""
        for name, table in vars(self).items():
            if isinstance(table, Tensor):  # the first axis of all is the batch
                setattr(self, name, table.index_select(0, rows))
        self._shape = (len(rows), self._shape[1])
        if self._positions is not None:
            self.length = self._most()

    def grow(self, slots: int) -> None:
        """Add empty slots, up to so many in all."""

        def longer(table: Tensor | None, empty: int = 0) -> Tensor | None:
            return None if table is None else pad(table, (0, slots - self._shape[1]), value=empty)

        self._positions, self._stored_at = longer(self._positions, -1), longer(self._stored_at)
        self.moved, self._segments = longer(self.moved), longer(self._segments)
        self._shape = (self._shape[0], slots)

    def sight(self, window: int | None = None, sinks: int = 0) -> Tensor | None:
        """What the last call's tokens see, bool `[B, S, T]`; window, sinks: as `in_sight`.

        None where that is all, or, for the first tokens held, all up to themselves.

        >>> tokens = Positions(1, 4)
        >>> _ = tokens.place(2, None, None), tokens.place(2, None, None)
        >>> tokens.sight().int()
        tensor([[[1, 1, 1, 0],
                 [1, 1, 1, 1]]], dtype=torch.int32)
        """
        used, seq_len = self.used, self._new
        in_order = self._positions is None and self._segments is None
        if in_order and (window is None or used <= window) and seq_len in (1, used):
            return None
        slots, segments = self._latest_slots(), self.segment_ids
        m, n = self.latest, self.positions[:, :used]
        among = torch.ones(seq_len, seq_len, dtype=torch.bool, device=m.device).tril()
        among = among.expand(len(m), -1, -1)  # in one call the order decides, not the position
        earlier = n[:, None] <= m[:, :, None]
        return in_sight(
            m,
            n,
            earlier.scatter(2, slots[:, None].expand_as(among), among),
            window=window,
            sinks=sinks,
            segment_ids=None if segments is None else segments.gather(1, slots),
            key_segment_ids=segments,
        )

    def _next(self) -> Tensor:
        """The position that each row goes on with, `[B, 1]`."""
        at = self.positions
        if self._segments is not None and self._segment is not None:
            at = at.masked_fill(self._segments != self._segment, -1)
        return at.amax(dim=1, keepdim=True) + 1

    def _last_segment(self, position_ids: Tensor | None, segment_ids: Tensor) -> Tensor:
        """The sequence of each row's last token, `[B, 1]`, after which padding may follow."""
        if position_ids is None:
            return segment_ids[:, -1:]
        real = (position_ids >= 0).long().cumsum(dim=1)
        last = segment_ids.gather(1, real.argmax(dim=1, keepdim=True))
        if self._segment is None:
            return last
        return torch.where(real[:, -1:] > 0, last, self._segment)  # padding alone changes nothing

    def _latest_slots(self) -> Tensor:
        """Where the tokens of the last call are, `[B, S]`."""
        if self._latest is not None:
            return self._latest
        slots = torch.arange(self.used - self._new, self.used, device=self._device)
        return slots.expand(self._shape[0], -1)

    def _write_down(self) -> None:
        """Begin the tables, from here on of tokens that stand anywhere."""
        if self._positions is None:
            at, self._end = self.positions, self.length
            with torch.inference_mode(False):  # or they could not be written to outside of it
                self._positions, self._stored_at = at.clone(), at.clone()

    def _renumber(self, positions: Tensor) -> None:
        self._write_down()
        self.positions.copy_(positions)

    def _most(self) -> int:
        """The tokens of the row that holds most of them; reads the data."""
        return int((self.positions >= 0).sum(dim=1).max())

    def _checked(self, name: str, mask: Tensor) -> Tensor:
        """A mask of slots, refused if it is no bool `[B, N]` on the device."""
        check_devices(**{"cache": self.positions, name: mask})
        if mask.dtype != torch.bool or mask.shape != self._shape:
            raise ValueError(
                f"{name} is {mask.dtype} {list(mask.shape)}; it must be torch.bool "
                f"{list(self._shape)}, one a slot: compare positions, say"
            )
        return mask
