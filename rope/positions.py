"""Number the tokens of packed and padded batches, and check positions that callers pass.

See the chapter "Rotary attention". Scores depend only on differences between positions in the same
sequence. Each sequence can therefore start at 0, which keeps positions small.

Shapes: B batch, S sequence.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rope.checks import check_count, check_devices, check_integer


def packed_position_ids(
    lengths: Sequence[int], *, device: torch.device | str | None = None
) -> Tensor:
    """Return the position of each token within its own sequence, for sequences packed in one row.

    lengths: one int per sequence. Their sum must be S, the number of tokens in the row. If you have
    the cumulative lengths of varlen attention, pass cu_seqlens.diff().tolist().
    Returns int64 `[S]`. Raises torch's RuntimeError if a length is negative.

    >>> packed_position_ids([3, 2])
    tensor([0, 1, 2, 0, 1])
    """
    return torch.cat([torch.arange(length, device=device) for length in lengths])


def left_padded_position_ids(attention_mask: Tensor) -> Tensor:
    """Return positions that start at 0 at each row's first token after the padding.

    attention_mask: `[B, S]`, bool or integers, 1 for a token and 0 for padding, which comes first
    in each row. Returns int64 `[B, S]` on the same device, with 0 for padding. The host waits for
    the device. The attention must still mask the padding.
    Raises TypeError for other dtypes, and ValueError for other shapes, for numbers other than 0 and
    1, and for a 0 after a 1.

    >>> left_padded_position_ids(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]))
    tensor([[0, 0, 0, 1],
            [0, 1, 2, 3]])
    """
    mask = check_attention_mask(attention_mask).long()
    if mask.dim() != 2 or (mask.diff(dim=1) < 0).any():
        raise ValueError(
            f"attention_mask has shape {list(mask.shape)}; it must be [B, S], without a 0 after a "
            "1 in any row; if the padding comes last, omit position_ids"
        )
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def check_attention_mask(attention_mask: Tensor) -> Tensor:
    """Return the mask as bool. Raise TypeError or ValueError unless all values are 0 or 1."""
    if attention_mask.dtype == torch.bool:
        return attention_mask
    check_integer("attention_mask", attention_mask)
    real = attention_mask != 0
    if not torch.compiler.is_compiling() and bool((attention_mask != real).any()):
        raise ValueError(
            f"attention_mask contains {int(attention_mask[attention_mask != real][0])}; it must be "
            "1 for a token and 0 for padding"
        )
    return real


def check_position_ids(position_ids: Tensor, x: Tensor, name: str = "position_ids") -> None:
    """Raise TypeError or ValueError unless the ids fit x `[B, H, S, D]`.

    The ids must be integers `[S]`, `[1, S]`, or `[B, S]` on x's device.
    """
    check_integer(name, position_ids)
    # Compare the lengths first: in compiled code, each comparison of sizes adds a guard, and
    # comparing S with B first would add an unnecessary one.
    shape, (batch, _, seq_len, _) = position_ids.shape, x.shape
    rows = (1, *shape)[-2] if shape else 0
    if len(shape) not in (1, 2) or shape[-1] != seq_len or (rows != 1 and rows != batch):
        raise ValueError(
            f"{name} has shape {list(shape)}; it must be [{seq_len}], [1, {seq_len}], or "
            f"[{batch}, {seq_len}] to match x"
        )
    if position_ids.device != x.device:
        check_devices(**{"x": x, name: position_ids})


def ids_or_start(
    position_ids: Tensor | None, offset: int | Tensor, x: Tensor
) -> tuple[Tensor | None, int]:
    """Return (position_ids, 0), or (None, the first token's position) if there are no ids.

    offset: the first position, an int for all rows or integers `[B]`, which become ids `[B, S]`.
    Raises TypeError or ValueError for ids or offsets that don't fit x `[B, H, S, D]`.
    """
    if position_ids is not None:
        if isinstance(offset, Tensor) or offset != 0:
            raise ValueError(
                f"offset is {offset}, but position_ids are given too; pass only one of them (you "
                "can add the offset to the ids)"
            )
        check_position_ids(position_ids, x)
        return position_ids, 0
    if isinstance(offset, Tensor):
        _check_offsets(offset, x)
        return offset[:, None] + torch.arange(x.shape[2], device=x.device), 0
    check_count("offset", offset, smallest=0)
    return None, offset


def _check_offsets(offset: Tensor, x: Tensor) -> None:
    """Raise TypeError or ValueError unless offset holds nonnegative integers `[B]` on x's device.

    The check reads no values in compiled code or from a GPU; a later step finds negative ones.
    """
    check_integer("offset", offset)
    if offset.dim() != 1 or offset.shape[0] != x.shape[0]:
        raise ValueError(
            f"offset has shape {list(offset.shape)}; it must be an int, or a tensor of shape "
            f"[{x.shape[0]}] with one start per row of the batch"
        )
    check_devices(x=x, offset=offset)
    if not (torch.compiler.is_compiling() or offset.is_meta or offset.is_cuda):
        check_no_negative("offset", position_range(offset)[0])


def check_positions_in_table(position_ids: Tensor, rows: int) -> None:
    """Raise ValueError unless each position has a row in the tables. (-1 would read the last row.)

    In compiled code and on a GPU, the check is an asynchronous assertion that raises RuntimeError.
    """
    if position_ids.is_meta:
        return
    if torch.compiler.is_compiling() or position_ids.is_cuda:
        # Don't read a value here: that would break a traced graph or make the host wait for a GPU.
        inside = ((position_ids >= 0) & (position_ids < rows)).all()
        torch._assert_async(
            inside,
            f"position_ids must be at least 0 and below {rows}, the number of table rows; build "
            "longer tables with max_seq_len or grow",
        )
        return
    low, high = position_range(position_ids)
    check_no_negative("position_ids", low)
    if high >= rows:
        raise ValueError(
            f"position_ids contains {high}, but the tables have only {rows} rows (0 ... {rows - 1})"
            f"; correct the position, or build longer tables with rotary_tables"
        )


def check_no_negative(name: str, low: int) -> None:
    """Raise ValueError if `low`, the smallest position, is negative and would wrap around."""
    if low < 0:
        raise ValueError(
            f"{name} contains {low}; positions start at 0; give padding any valid position, and "
            "mask it in the attention"
        )


def position_range(position_ids: Tensor) -> tuple[int, int]:
    """Return the smallest and largest id, or (0, -1) without ids. The host waits for the device."""
    while torch._C._functorch.is_functorch_wrapped_tensor(position_ids):
        position_ids = torch._C._functorch.get_unwrapped(position_ids)  # undo vmap to see all rows
    if position_ids.numel() <= 1:  # a shortcut for decoding, because aminmax takes 2 us
        position = int(position_ids) if position_ids.numel() else None
        return (0, -1) if position is None else (position, position)
    low, high = torch.aminmax(position_ids)
    return int(low), int(high)
