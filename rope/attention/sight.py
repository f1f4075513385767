"""Who sees whom, by positions: the masks of chapters "Rotary attention" and "Keys that move".

    token m sees key n  iff  n came earlier, is a token, stands in m's window or among the sinks,
                             and belongs to m's sequence.

In a tree of drafts, earlier means: an ancestor, or cached.

Shapes: B batch, S queries, T keys.
"""

import torch
from torch import Tensor

from rope.attention.packed import same_segment
from rope.checks import check_devices, check_integer, check_tensor


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


def check_attention_mask(attention_mask: Tensor, x: Tensor) -> Tensor:
    """The mask as bool `[B, S]`; refused if it is no bool or 0 and 1 of that shape.

    x: `[B, ..., S, width]`.

    >>> check_attention_mask(torch.tensor([[0, 1, 1]]), torch.ones(1, 3, 8))
    tensor([[False,  True,  True]])
    """
    check_tensor("attention_mask", attention_mask)
    if attention_mask.dtype != torch.bool:
        check_integer("attention_mask", attention_mask)
    check_devices(x=x, attention_mask=attention_mask)
    shape = [x.shape[0], x.shape[-2]]
    if list(attention_mask.shape) != shape:
        raise ValueError(
            f"attention_mask has shape {list(attention_mask.shape)}; it must be {shape}, one "
            "number a token of this call: leave out those that the cache holds"
        )
    real = attention_mask != 0
    if not torch.compiler.is_compiling() and not bool((attention_mask == real).all()):
        wrong = int(attention_mask[attention_mask != real][0])
        raise ValueError(
            f"attention_mask holds {wrong}; it must be 0 for padding and 1 for a token: pass the "
            "mask itself, not ids or segment numbers"
        )
    return real
