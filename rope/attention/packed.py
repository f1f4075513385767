"""Several sequences in one row: chapter "Rotary attention".

A mask keeps the sequences apart; `rope.positions` says where their tokens stand.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rope.checks import check_devices, check_integer
from rope.positions import check_lengths


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

    segment_ids: integers `[..., S]`. Returns bool `[..., S, S]`, row m the query, column n the key.
    Raises TypeError for segment ids that are no integers, ValueError for a scalar.

    >>> packed_mask(torch.tensor([0, 0, 1])).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    return same_segment(segment_ids).tril()


def check_segment_ids(segment_ids: Tensor, **vectors: Tensor) -> None:
    """Refuse what are no integers `[S]` or `[B, S]`, or not on the device; by name, x or k.

    >>> check_segment_ids(torch.tensor([0, 1]), x=torch.ones(1, 2, 8))
    """
    check_integer("segment_ids", segment_ids)
    check_devices(**vectors, segment_ids=segment_ids)
    (x,) = vectors.values()
    batch, seq_len = x.shape[0], x.shape[-2]
    shape = tuple(segment_ids.shape)
    if shape not in ((seq_len,), (batch, seq_len)):
        raise ValueError(
            f"segment_ids has shape {list(shape)}; it must be [{seq_len}] or "
            f"[{batch}, {seq_len}]: give one id a token"
        )


def same_segment(segment_ids: Tensor, key_segment_ids: Tensor | None = None) -> Tensor:
    """True where query m and key n belong to one sequence: bool `[..., S, T]`.

    segment_ids: of the queries, `[..., S]`; key_segment_ids: `[..., T]`, the same when None.

    >>> same_segment(torch.tensor([0, 1])).int()
    tensor([[1, 0],
            [0, 1]], dtype=torch.int32)
    """
    check_integer("segment_ids", segment_ids)
    if segment_ids.dim() == 0:
        raise ValueError("segment_ids has no axes; it must be [..., S]: give one id a token")
    keys = segment_ids if key_segment_ids is None else key_segment_ids
    return segment_ids[..., :, None] == keys[..., None, :]
