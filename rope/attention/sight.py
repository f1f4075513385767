"""Who sees whom: the masks of chapters "Rotary attention" and "Keys that move".

    token m sees key n  iff  n came earlier, is a token, stands in m's window or among the sinks,
                             and belongs to m's sequence.

Several sequences may share a row; `rope.positions` says where their tokens stand.

Shapes: B batch, S queries, T keys.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rope.positions import check_lengths


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
        keys = segment_ids if key_segment_ids is None else key_segment_ids
        seen = seen & (segment_ids[:, :, None] == keys[:, None])
    return earlier & (seen | (m < 0))


def segment_ids(lengths: Sequence[int], *, device: torch.device | str | None = None) -> Tensor:
    """The number of the sequence each token belongs to.

    lengths: positive ints that sum to S. Returns int64 `[S]`.
    Raises ValueError for no lengths or one below 1, TypeError for what is no list of ints.

    >>> segment_ids([3, 2])
    tensor([0, 0, 0, 1, 1])
    """
    check_lengths(lengths)
    numbers = torch.arange(len(lengths), device=device)
    return numbers.repeat_interleave(torch.tensor(lengths, device=device), output_size=sum(lengths))


def packed_mask(segment_ids: Tensor) -> Tensor:
    """Who may look at whom: the same sequence, and not later.

    segment_ids: `[..., S]`. Returns bool `[..., S, S]`, row m the query, column n the key.

    >>> packed_mask(torch.tensor([0, 0, 1])).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    return (segment_ids[..., :, None] == segment_ids[..., None, :]).tril()
