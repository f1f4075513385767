"""Where each token stands: packed and padded batches, and what may be a position.

Chapter "Rotary attention". Scores depend on differences of positions, so only the differences
within a sequence matter; starting each sequence at 0 keeps positions small.

Shapes: B batch, S sequence.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rope.checks import check_count, check_devices, check_integer


def packed_position_ids(
    lengths: Sequence[int], *, device: torch.device | str | None = None
) -> Tensor:
    """The position of each token within its own sequence.

    lengths: positive ints that sum to S. Returns int64 `[S]`.
    Raises ValueError for no lengths or one below 1, TypeError for one that is no int.

    >>> packed_position_ids([3, 2])
    tensor([0, 1, 2, 0, 1])
    """
    check_lengths(lengths)
    return torch.cat([torch.arange(length, device=device) for length in lengths])


def cumulative_position_ids(cu_seqlens: Tensor) -> Tensor:
    """The same from cumulative lengths, as attention kernels for packed sequences take them.

    cu_seqlens: integers `[n+1]`, 0 = c_0 <= c_1 <= ... <= c_n = S; sequence i holds the tokens
    c_i ... c_{i+1} - 1. Returns int64 `[S]` on its device. Reads the data.
    Raises TypeError for another dtype, ValueError for another shape, a first number that is not 0,
    or numbers that fall.

    >>> cumulative_position_ids(torch.tensor([0, 3, 3, 5]))
    tensor([0, 1, 2, 0, 1])
    """
    check_integer("cu_seqlens", cu_seqlens)
    bounds = cu_seqlens.long().flatten()
    lengths, first = bounds.diff(), bounds[:1].tolist()
    falls = (lengths < 0).nonzero()[:1, 0].tolist()
    if cu_seqlens.dim() != 1 or first != [0] or falls:
        how = f"falls after index {falls[0]}" if falls else f"begins with {first}"
        raise ValueError(
            f"cu_seqlens of shape {list(cu_seqlens.shape)} {how}; it must be one row that starts "
            "with 0 and never falls: put a 0 before the sums lengths.cumsum(0), and do not pass "
            "the lengths"
        )
    tokens = torch.arange(int(bounds[-1]), device=bounds.device)
    return tokens - bounds[:-1].repeat_interleave(lengths, output_size=len(tokens))


def left_padded_position_ids(attention_mask: Tensor) -> Tensor:
    """Positions that start at 0 with each row's first real token; padding gets 0, never less.

    attention_mask: `[B, S]`, bool or integers 0 and 1, 1 for a token; the zeros of a row come
    first. Returns int64 `[B, S]` on its device. Mask the padding in the attention. Reads the data.
    Raises TypeError for another dtype, ValueError for another shape, other numbers, a 0 after a 1.

    >>> left_padded_position_ids(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]))
    tensor([[0, 0, 0, 1],
            [0, 1, 2, 3]])
    """
    mask = check_attention_mask(attention_mask).long()
    if mask.dim() != 2 or (mask.diff(dim=1) < 0).any():
        raise ValueError(
            f"attention_mask of shape {list(mask.shape)} is not [B, S] or holds a 0 after a 1; the "
            "padding of each row must come first: for padding at the end leave position_ids out"
        )
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def check_attention_mask(attention_mask: Tensor) -> Tensor:
    """A mask as bool, refused if it is none and not of integers 0 and 1."""
    if attention_mask.dtype == torch.bool:
        return attention_mask
    check_integer("attention_mask", attention_mask)
    real = attention_mask != 0
    if not torch.compiler.is_compiling() and bool((attention_mask != real).any()):
        raise ValueError(
            f"attention_mask holds {int(attention_mask[attention_mask != real][0])}; it must be 0 "
            "for padding and 1 for a token: pass the mask itself, not ids or segment numbers"
        )
    return real


def check_lengths(lengths: Sequence[int]) -> None:
    """Refuse no lengths at all, or one that is not positive."""
    if len(lengths) == 0:
        raise ValueError("lengths is empty; it must name at least one sequence: pass [S] for one")
    for length in lengths:
        check_count("each of lengths", length)


def check_position_ids(position_ids: Tensor, x: Tensor, name: str = "position_ids") -> None:
    """Refuse position ids that are not integers `[S]`, `[1, S]` or `[B, S]`, where x is."""
    check_integer(name, position_ids)
    # Lengths first: in compiled code each comparison of sizes is a guard, as S != B would be.
    shape, (batch, seq_len) = position_ids.shape, (x.shape[0], x.shape[2])
    rows = (1, *shape)[-2] if shape else 0
    if len(shape) not in (1, 2) or shape[-1] != seq_len or (rows != 1 and rows != batch):
        shared_row = "" if batch == 1 else f", [1, {seq_len}]"
        raise ValueError(
            f"{name} has shape {list(shape)}; it must be [{seq_len}]{shared_row} or "
            f"[{batch}, {seq_len}], the sequence of x: slice it to one of these"
        )
    if position_ids.device != x.device:
        check_devices(**{"x": x, name: position_ids})


def ids_or_start(
    position_ids: Tensor | None, offset: int | Tensor, x: Tensor
) -> tuple[Tensor | None, int]:
    """Where a call's tokens stand: ids, checked, and 0; or None and the position of the first of S.

    offset: a count for all rows, or integers `[B]`, one a row, which become ids `[B, S]`.
    """
    if isinstance(offset, Tensor):
        _check_offsets(offset, x)
    else:
        check_count("offset", offset, smallest=0)
    if position_ids is not None:
        if isinstance(offset, Tensor) or offset != 0:
            raise ValueError(
                f"offset is {offset} beside position_ids, which already say where each token "
                "stands; one of the two must be left out: add the offset to the ids"
            )
        check_position_ids(position_ids, x)
    elif isinstance(offset, Tensor):
        return offset[:, None] + torch.arange(x.shape[2], device=x.device), 0
    return position_ids, offset


def check_packed_offset(tensor_format: str, offset: int | Tensor) -> None:
    """Refuse a start for each row of packed tokens, which have none."""
    if tensor_format == "thd" and isinstance(offset, Tensor):
        raise ValueError(
            f"offset is a tensor of shape {list(offset.shape)} and tensor_format 'thd'; packed "
            "tokens have no rows, so it must be an int: pass position_ids [T], which are "
            "cumulative_position_ids(ends) + offset.repeat_interleave(ends.diff())"
        )


def _check_offsets(offset: Tensor, x: Tensor) -> None:
    """Refuse starts that are not counts [B], where x is.

    Compiled, and on a GPU, none is read: the check of positions refuses what is below 0.
    """
    check_integer("offset", offset)
    if offset.dim() != 1 or offset.shape[0] != x.shape[0]:
        way_out = "take one number a row" if offset.dim() else f"pass offset.expand({x.shape[0]})"
        raise ValueError(
            f"offset has shape {list(offset.shape)}; it must be an int, the same for all rows, or "
            f"[{x.shape[0]}], a start for each row of the batch: {way_out}"
        )
    if offset.device != x.device:
        check_devices(x=x, offset=offset)
    if torch.compiler.is_compiling() or offset.is_meta or offset.is_cuda:
        return
    check_no_negative("offset", position_range(offset)[0])


def check_positions_in_table(position_ids: Tensor, rows: int) -> None:
    """Refuse positions below 0 (they would wrap around in silence) or past the last row."""
    if position_ids.is_meta:
        return
    if torch.compiler.is_compiling() or position_ids.is_cuda:
        # Reading a value would break a traced graph, and on a GPU make the host wait for the
        # queue. The assertion rides in the queue instead and fails there.
        inside = ((position_ids >= 0) & (position_ids < rows)).all()
        torch._assert_async(
            inside,
            f"position_ids must lie within the {rows} rows of the tables, 0 ... {rows - 1}: make "
            "more at the start, by max_seq_len or grow",
        )
        return
    low, high = position_range(position_ids)
    check_no_negative("position_ids", low)
    if high >= rows:
        raise ValueError(
            f"position_ids holds {high}; the tables have {rows} rows, positions 0 ... {rows - 1}: "
            f"build longer ones with rotary_tables({high + 1}, inv_freq)"
        )


def check_no_negative(name: str, low: int) -> None:
    """Refuse the smallest position if it lies before the start: it would wrap around in silence."""
    if low < 0:
        raise ValueError(
            f"{name} holds {low}; positions start at 0: "
            "give padding any valid position and mask it in the attention"
        )


def position_range(position_ids: Tensor) -> tuple[int, int]:
    """The smallest and largest position, (0, -1) when there are none. Reads the data."""
    while torch._C._functorch.is_functorch_wrapped_tensor(position_ids):
        position_ids = torch._C._functorch.get_unwrapped(position_ids)  # all that vmap runs over
    if position_ids.numel() == 0:
        return 0, -1
    low, high = torch.aminmax(position_ids)
    return int(low), int(high)
