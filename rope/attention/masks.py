"""Build attention masks (see the chapters "Rotary attention" and "Keys that move").

    query m sees key n  iff  n comes no later than m, n is a token and not padding, n is in m's
                             window or is a sink, and m and n belong to the same sequence.

Several sequences may be packed into one row; `rope.positions` computes their position ids.

Shapes: B batch, S queries, T keys.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def build_attention_mask(
    position_ids: Tensor,
    key_position_ids: Tensor,
    earlier: Tensor,
    *,
    window: int | None = None,
    sinks: int = 0,
    segment_ids: Tensor | None = None,
) -> Tensor:
    """Return the attention mask, bool `[B, S, T]`: True where a query sees a key.

    position_ids: the queries' positions, `[B, S]`; key_position_ids: the keys' positions, `[B, T]`;
    -1 marks padding or an empty slot. earlier: bool `[S, T]` or `[B, S, T]`, True if the key comes
    no later than the query.
    window: how many positions a query sees, including its own; None means all. sinks: how many
    initial positions stay visible outside the window.
    segment_ids: the index of each token's sequence, `[B, S]`; allowed only if queries and keys are
    the same tokens. Padding sees all earlier keys, because a softmax over no keys would be NaN.

    >>> ids = torch.arange(4)[None]
    >>> build_attention_mask(ids, ids, torch.ones(4, 4).bool().tril(), window=2, sinks=1)[0].int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [1, 0, 1, 1]], dtype=torch.int32)
    """
    m, n = position_ids[:, :, None], key_position_ids[:, None]
    visible = n >= 0
    if window is not None:
        visible = visible & ((m - n < window) | (n < sinks))
    if segment_ids is not None:
        visible = visible & (segment_ids[:, :, None] == segment_ids[:, None])
    return earlier & (visible | (m < 0))


def segment_ids(lengths: Sequence[int], *, device: torch.device | str | None = None) -> Tensor:
    """Return the index of the sequence that each packed token belongs to, int64 `[S]`.

    lengths: the length of each sequence, ints that sum to S. Invalid lengths raise torch's errors.

    >>> segment_ids([3, 2])
    tensor([0, 0, 0, 1, 1])
    """
    indices = torch.arange(len(lengths), device=device)
    return indices.repeat_interleave(torch.tensor(lengths, device=device), output_size=sum(lengths))
