"""Rotate with plain tensor operations, by equation 34 of RoFormer (arXiv 2104.09864).

See the chapter "From math to PyTorch". The coordinates x_j and y_j of plane j become

    x_j' = x_j cos - y_j sin,        y_j' = y_j cos + x_j sin.

The formula runs on every device, and torch can differentiate, vmap, trace, and compile it. Each
product and each sum is rounded separately, without fused multiply-adds. The results in both layouts
are therefore identical bit for bit.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

import torch
from torch import Tensor


def formula(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Return x `[B, H, S, D]` with its first R coordinates rotated, without any checks.

    cos, sin: tables that broadcast to `[B, H, S, R/2]`. interleaved: if True, plane j holds
    coordinates (2j, 2j+1); if False, (j, j + R/2). The arithmetic is in float32, or in float64 if x
    or the tables are float64, and the result is rounded once, to x's dtype.

    >>> x, zero = torch.tensor([[[[1.0, 0.0, 5.0]]]]), torch.zeros(1, 1)
    >>> formula(x, cos=zero, sin=zero + 1, interleaved=False).flatten()
    tensor([0., 1., 5.])
    """
    width = 2 * cos.shape[-1]
    planes, rest = x[..., :width], x[..., width:]
    pair = (planes[..., 0::2], planes[..., 1::2]) if interleaved else planes.chunk(2, dim=-1)
    dtype = torch.promote_types(torch.promote_types(x.dtype, cos.dtype), torch.float32)
    first, second, cos, sin = (t.to(dtype) for t in (*pair, cos, sin))  # each [..., R/2]
    pair = first * cos - second * sin, second * cos + first * sin
    rotated = torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
    if rest.shape[-1]:  # concatenate before rounding, because autocast rejects some other dtypes
        rotated = torch.cat((rotated, rest.to(dtype)), dim=-1)
    return rotated.to(x.dtype)


def rows_of(cos: Tensor, sin: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of the tables `[N, R/2]` at position_ids `[S]` or `[B, S]`, without checks.

    Returns `[S, R/2]` or `[B, 1, S, R/2]`.

    >>> table = torch.tensor([[0.0], [1.0], [2.0]])
    >>> rows_of(table, table, torch.tensor([[2, 0]]))[0].shape
    torch.Size([1, 1, 2, 1])
    """
    rows = position_ids.long()  # torch would read uint8 as a mask
    rows = rows[:, None] if rows.dim() == 2 else rows
    return cos[rows], sin[rows]
