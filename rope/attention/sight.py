"""Who sees whom, by positions: the masks of chapters "Rotary attention" and "Keys that move".

    token m sees key n  iff  n came earlier, is a token, stands in m's window or among the sinks,
                             and belongs to m's sequence.

In a tree of drafts, earlier means: an ancestor, or cached.

Shapes: B batch, S queries, T keys.
"""

import torch
from torch import Tensor

from rope.attention.packed import same_segment
from rope.attention.slots import Slots
from rope.attention.tree import ancestors


def in_sight(
    position_ids: Tensor,
    key_positions: Tensor,
    earlier: Tensor,
    *,
    window: int | None = None,
    sinks: int = 0,
    segment_ids: Tensor | None = None,
    key_segment_ids: Tensor | None = None,
) -> Tensor:
    """True where a query sees a key: bool `[B, S, T]`.

    position_ids: of the queries, `[B, S]`; key_positions: `[B, T]`; -1 is padding or an empty slot,
    which no token sees. earlier: bool `[S, T]` or `[B, S, T]`, who came no later; window: the
    positions in sight, the query's own among them; sinks: positions 0 ... sinks-1 are always in
    sight; segment_ids, key_segment_ids: `[B, S]` and `[B, T]`, the sequence of each. Padding sees
    all that came no later, so that its softmax has something to sum.

    >>> at = torch.arange(4)[None]
    >>> in_sight(at, at, torch.ones(4, 4).bool().tril(), window=2, sinks=1)[0].int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [1, 0, 1, 1]], dtype=torch.int32)
    """
    m, n = position_ids[:, :, None], key_positions[:, None]
    seen = n >= 0
    if window is not None:
        seen = seen & ((m - n < window) | (n < sinks))
    if segment_ids is not None:
        seen = seen & same_segment(segment_ids, key_segment_ids)
    return earlier & (seen | (m < 0))


class Sight(Slots):
    """The part of a `KVCache` that says what its tokens see."""

    def sight(self, *, window: int | None = None, sinks: int = 0) -> Tensor | None:
        """What the tokens of the last `append` see, bool `[B, S, T]`; window, sinks: as `in_sight`.

        None where that is all, or, for the first tokens held, all up to themselves.

        >>> from rope.attention import KVCache
        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 2, 2)
        >>> _ = cache.append(x, x), cache.append(x, x)
        >>> cache.sight().int()
        tensor([[[1, 1, 1, 0],
                 [1, 1, 1, 1]]], dtype=torch.int32)
        """
        used, seq_len = self._used, self._new
        in_order = self._positions is None and self._segments is None
        if in_order and (window is None or used <= window) and seq_len in (1, used):
            return None
        new = columns = self._new_slots()
        positions, segments = self.positions[:, :used], self.segment_ids
        if self._draft is None:
            among = torch.ones(seq_len, seq_len, dtype=torch.bool, device=new.device).tril()
            among = among.expand(len(new), -1, -1)
        else:
            columns = self._draft.slots
            among = ancestors(self._draft.parents)[:, columns.shape[1] - seq_len :]
        m = self.latest_positions
        earlier = positions[:, None] <= m[:, :, None]
        return in_sight(
            m,
            positions,
            earlier.scatter(2, columns[:, None].expand_as(among), among),
            window=window,
            sinks=sinks,
            segment_ids=None if segments is None else segments.gather(1, new),
            key_segment_ids=segments,
        )
