"""Track the positions of the tokens in a cache.

See the chapter "Keys that move". Each row of a cache has N slots, and a slot holds one token.
Attention depends on a token's position, never on its slot number. You can therefore drop tokens,
reuse their slots, and renumber positions without touching a key. Several moves add up as integers.
The next read rotates each moved key only once, so rounding errors don't accumulate.

Shapes: B batch, N slots, S new tokens, T slots in use.
"""

import torch
from torch import Tensor

from rope.attention.masks import build_attention_mask
from rope.checks import FARTHEST, check_count, check_devices, check_integer

Slots = slice | Tensor  # one slice for all rows, or slot numbers [B, S]


def write_slots(buffer: Tensor, slots: Slots, values: Tensor) -> None:
    """Write values `[B, S]` to slots of a buffer `[B, N]`, or `[B, H, S, D]` to `[B, H, N, D]`."""
    dim = 1 if buffer.dim() == 2 else 2
    if isinstance(slots, slice):
        buffer.narrow(dim, slots.start, slots.stop - slots.start).copy_(values)
        return
    if dim == 2:
        slots = slots[:, None, :, None].expand_as(values)
    buffer.scatter_(dim, slots, values)


class CachePositions:
    """Track which slots of a `KVCache` hold tokens, and at which positions.

    length: the number of slots taken in the fullest row. used: T, one more than the number of the
    last slot in use. moved: bool `[B, N]`, True for tokens whose keys have yet to be rotated to
    their new positions; None if there are no such tokens.
    While each token's position equals its slot number, the object stores no table of positions.
    """

    def __init__(self, batch: int, slots: int, device: torch.device | str | None = None) -> None:
        self._shape = (batch, slots)
        self._device = torch.empty(0, device=device).device
        self.reset()

    def reset(self) -> None:
        """Forget all tokens."""
        self.length = self.used = 0
        self.moved: Tensor | None = None
        self._positions: Tensor | None = None  # [B, N]; None while positions are slot numbers
        self._stored_at: Tensor | None = None  # [B, N]; None while _positions is None
        self._latest_count = 0  # the number of tokens in the last call
        self._latest: Tensor | None = None  # [B, S], last call's slots; None if they end at `used`

    @property
    def positions(self) -> Tensor:
        """Return the position of the token in each slot, int64 `[B, N]`; -1 for an empty slot."""
        if self._positions is not None:
            return self._positions
        slots = torch.arange(self._shape[1], device=self._device)
        return slots.masked_fill(slots >= self.length, -1).expand(self._shape)

    @property
    def stored_at(self) -> Tensor:
        """Return the position at which each token was appended, int64 `[B, N]`."""
        return self.positions if self._stored_at is None else self._stored_at

    def next_position_ids(
        self,
        seq_len: int,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor | None:
        """Return the position ids of the next seq_len tokens, with -1 for padding.

        If position_ids is None, each row continues after its largest position. Padding, where
        attention_mask `[B, S]` is 0, doesn't use up a position.
        Returns None if both arguments are None and each position equals its slot number.

        >>> cache_positions = CachePositions(1, 4)
        >>> _ = cache_positions.allocate(2, torch.tensor([[5, 6]]))
        >>> cache_positions.next_position_ids(2)
        tensor([[7, 8]])
        """
        if attention_mask is not None:
            is_token = attention_mask != 0
            if position_ids is None:
                position_ids = self._next() + is_token.cumsum(dim=1) - 1
            return position_ids.long().expand(is_token.shape).masked_fill(~is_token, -1)
        if position_ids is None and self._positions is not None:
            return self._next() + torch.arange(seq_len, device=self._device)
        return position_ids

    def check_room(
        self, seq_len: int, position_ids: Tensor | None, window: int | None, sinks: int
    ) -> None:
        """Raise ValueError if seq_len tokens don't fit, or if a position id is not allowed."""
        needed, slots = self.length + seq_len, self._shape[1]
        if window is not None:  # the cache can evict tokens and append one token at a time
            needed = min(needed, window + sinks)
        if needed > slots:
            raise ValueError(
                f"the cache holds {self.length} tokens in {slots} slots; {seq_len} more tokens "
                f"need max_seq_len={needed}; create a larger cache, or reset this one"
            )
        if position_ids is None or torch.compiler.is_compiling() or self._device.type != "cpu":
            return  # reading values would make the host wait for the GPU
        ids, rule = position_ids.long().expand(self._shape[0], -1), "be at least -1 (for padding)"
        wrong = ids < -1
        if window is not None:  # otherwise a window could hold more tokens than it has positions
            previous = torch.cat((self._next() - 1, ids[:, :-1]), dim=1).cummax(dim=1).values
            wrong, rule = wrong | ((ids >= 0) & (ids <= previous)), "increase if there is a window"
        if wrong.any():
            raise ValueError(
                f"position_ids holds {int(ids[wrong][0])}; positions must {rule}; to "
                "continue after the last token, omit position_ids"
            )

    def evict(self, seq_len: int, window: int | None, sinks: int) -> None:
        """If seq_len more tokens don't fit, empty the slots of tokens that no later token sees.

        >>> cache_positions = CachePositions(1, 4)
        >>> _ = cache_positions.allocate(4, None)
        >>> cache_positions.evict(1, window=3, sinks=1)
        >>> cache_positions.positions
        tensor([[ 0, -1,  2,  3]])
        """
        if window is None or self.length + seq_len <= self._shape[1]:
            return
        positions = self.positions
        visible = (positions > self._next() - window) | (positions < sinks)
        self._renumber(positions.masked_fill(~visible, -1))
        self.length = min(self.length, window - 1 + sinks)  # this bound holds if positions increase
        if not torch.compiler.is_compiling() and positions.is_cpu:
            self.length = self._largest_count()

    def allocate(self, seq_len: int, position_ids: Tensor | None) -> Slots:
        """Allocate slots for new tokens, record the tokens' positions, and return the slots.

        The slots follow the last slot in use, unless earlier slots are empty.
        """
        if position_ids is not None:
            self._write_table()
        start, latest = self.length, None
        end = start + seq_len
        if self._positions is not None:
            end = max(self.used, end)
            if start < self.used:
                latest = self._empty_slots(seq_len, end)
        self.length, self.used = start + seq_len, end
        self._latest_count, self._latest = seq_len, latest
        slots = slice(start, end) if latest is None else latest
        if self._positions is not None and self._stored_at is not None and position_ids is not None:
            position_ids = position_ids.long().expand(self._shape[0], -1)
            write_slots(self._positions, slots, position_ids)
            write_slots(self._stored_at, slots, position_ids)
        return slots

    def shift(self, delta: int | Tensor, slots: Tensor | None) -> None:
        """Move tokens by delta positions; see `KVCache.shift`."""
        if isinstance(delta, Tensor):
            check_integer("delta", delta)
            if delta.shape != self._shape[:1]:
                raise ValueError(
                    f"delta has shape {list(delta.shape)}; it must be an int, or have shape "
                    f"[{self._shape[0]}], one entry per row; use slots to move part of a row"
                )
            delta = delta.long()[:, None]
        else:
            check_count("delta", delta, smallest=-FARTHEST)
        positions = self.positions
        selected = positions >= 0
        if slots is not None:
            selected = selected & self._check_mask("slots", slots)
        shifted = torch.where(selected, positions + delta, positions)
        lowest = int(torch.where(selected, shifted, 0).min())
        if lowest < 0:
            raise ValueError(
                f"delta moves a token to position {lowest}, but positions can't be negative; "
                "remove such tokens with `keep` first, or move the tokens by a smaller amount"
            )
        changed = shifted != positions
        if changed.any():
            self.moved = changed if self.moved is None else self.moved | changed
            self._renumber(shifted)

    def keep(self, mask: Tensor) -> None:
        """Empty every slot where the mask, bool `[B, N]`, is False."""
        self._renumber(self.positions.masked_fill(~self._check_mask("mask", mask), -1))
        occupied = (self.positions >= 0).any(dim=0).nonzero()
        self.used = int(occupied[-1]) + 1 if len(occupied) else 0
        self._latest_count, self._latest = 0, None  # the last call's slots may be empty now
        self.length = self._largest_count()

    def select(self, rows: Tensor) -> None:
        """Replace row b with row rows[b]. rows: integers `[B']`; B' becomes the batch size."""
        for name, table in vars(self).items():
            if isinstance(table, Tensor):
                setattr(self, name, table.index_select(0, rows))
        self._shape = (len(rows), self._shape[1])
        if self._positions is not None:
            self.length = self._largest_count()

    def attention_mask(self, window: int | None = None, sinks: int = 0) -> Tensor | None:
        """Return the attention mask for the last call's tokens, bool `[B, S, T]`.

        window, sinks: see `build_attention_mask`.
        Returns None if every token sees all T keys, or if the call filled an empty cache and a
        causal mask is enough.

        >>> cache_positions = CachePositions(1, 4)
        >>> _ = cache_positions.allocate(2, None), cache_positions.allocate(2, None)
        >>> cache_positions.attention_mask().int()
        tensor([[[1, 1, 1, 0],
                 [1, 1, 1, 1]]], dtype=torch.int32)
        """
        used, seq_len = self.used, self._latest_count
        in_order = self._positions is None and (window is None or used <= window)
        if in_order and seq_len in (1, used):
            return None
        slots = self._latest
        if slots is None:
            slots = torch.arange(used - seq_len, used, device=self._device)
            slots = slots.expand(self._shape[0], -1)
        m, n = self.positions.gather(1, slots), self.positions[:, :used]
        # Within one call, a token sees the tokens before it, even if positions don't increase.
        causal = torch.ones(seq_len, seq_len, dtype=torch.bool, device=m.device).tril()
        causal = causal.expand(len(m), -1, -1)
        earlier = n[:, None] <= m[:, :, None]
        earlier = earlier.scatter(2, slots[:, None].expand_as(causal), causal)
        return build_attention_mask(m, n, earlier, window=window, sinks=sinks)

    def _next(self) -> Tensor:
        """Return the next position in each row, `[B, 1]`: one more than the largest."""
        return self.positions.amax(dim=1, keepdim=True) + 1

    def _empty_slots(self, seq_len: int, end: int) -> Tensor:
        """Return the numbers of seq_len empty slots per row, all below `end`, int64 `[B, S]`."""
        empty = (self.positions[:, :end] < 0).byte()
        slots = empty.argmax(dim=1, keepdim=True)
        if seq_len != 1:
            slots = empty.topk(seq_len, dim=1).indices
        if torch.compiler.is_compiling() or self._device.type != "cpu":
            # In compiled code and on GPUs, `length` is an upper bound only if positions increase.
            torch._assert_async(
                empty.gather(1, slots).all(),
                "no slot is empty for a new token; with a window, position_ids must increase",
            )
        return slots

    def _write_table(self) -> None:
        """Create the position table; call this before a position differs from its slot number."""
        if self._positions is None:
            positions = self.positions
            with torch.inference_mode(False):  # so that calls outside inference mode can write too
                self._positions, self._stored_at = positions.clone(), positions.clone()

    def _renumber(self, positions: Tensor) -> None:
        self._write_table()
        self.positions.copy_(positions)

    def _largest_count(self) -> int:
        """Return the number of tokens in the fullest row. Synchronizes with the device."""
        return int((self.positions >= 0).sum(dim=1).max())

    def _check_mask(self, name: str, mask: Tensor) -> Tensor:
        """Return the mask. Raise ValueError unless it is bool `[B, N]` on the cache's device."""
        check_devices(**{"cache": self.positions, name: mask})
        if mask.dtype != torch.bool or mask.shape != self._shape:
            raise ValueError(
                f"{name} is {mask.dtype} {list(mask.shape)}; it must be torch.bool "
                f"{list(self._shape)}, one entry per slot, such as cache.positions < 5"
            )
        return mask
