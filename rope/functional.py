"""The operation: turn plane j of each vector by the angle of its position.

Chapter "From maths to PyTorch". With x_j, y_j the two coordinates of plane j,

    x_j' = x_j cos - y_j sin,        y_j' = y_j cos + x_j sin,

which is multiplication by e^{i m theta_j} (RoFormer, arXiv 2104.09864, equation 34).

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

import torch
from torch import Tensor

from rope._checks import (
    check_devices,
    check_flag,
    check_heads,
    check_position_ids,
    check_positions_in_table,
    check_rows,
    check_tables,
)


def rotary_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: bool = False,
    inverse: bool = False,
) -> Tensor:
    """Rotate the first R of the D coordinates of each vector; the rest passes through untouched.

    x: `[B, H, S, D]`, float16, bfloat16, float32 or float64.
    cos, sin: `[N, R/2]`, whose rows are looked up by integer position_ids `[S]` or `[B, S]`.
    Without position_ids: `[S, R/2]`, or four axes that broadcast to `[B, H, S, R/2]`.
    interleaved: plane j holds coordinates (2j, 2j+1); otherwise (j, j + R/2).
    inverse: turn back, by the negative angle.
    Returns a new tensor of x's shape and dtype; the arithmetic is in float32, or float64 when x or
    the tables are, and its result is rounded to x's dtype at the end alone.
    Raises TypeError for integer or complex values and for boolean or floating position_ids,
    ValueError for shapes or devices that do not agree and for positions outside the tables
    (under `torch.compile` and on CUDA that last one is an asynchronous assertion).

    >>> from rope.frequencies import inverse_frequencies, rotary_tables
    >>> cos, sin = rotary_tables(2, inverse_frequencies(4, base=100.0))
    >>> x = torch.ones(1, 1, 2, 4)
    >>> rotary_embedding(x, cos, sin)[0, 0, 1]
    tensor([-0.3012,  0.8952,  1.3818,  1.0948])
    >>> turned = rotary_embedding(x, cos, sin, interleaved=True)
    >>> torch.allclose(rotary_embedding(turned, cos, sin, interleaved=True, inverse=True), x)
    True
    """
    check_flag("interleaved", interleaved)
    check_flag("inverse", inverse)
    check_tables(cos, sin)
    rotary_dim = 2 * cos.shape[-1]
    check_heads("x", x, rotary_dim)
    check_devices(x=x, cos=cos)
    if position_ids is None:
        check_rows(x, cos)
    else:
        cos, sin = look_up(cos, sin, position_ids, x)

    wide = torch.promote_types(torch.promote_types(x.dtype, cos.dtype), torch.float32)
    cos, sin = cos.to(wide), sin.to(wide)
    if inverse:
        sin = -sin
    rotated, rest = x[..., :rotary_dim], x[..., rotary_dim:]  # [B, H, S, R], [B, H, S, D-R]
    first, second = _split(rotated.to(wide), interleaved)  # each [B, H, S, R/2]
    turned = _join(first * cos - second * sin, second * cos + first * sin, interleaved)
    return torch.cat((turned.to(x.dtype), rest), dim=-1)


def look_up(cos: Tensor, sin: Tensor, position_ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of the tables at position_ids, shaped to broadcast against x `[B, H, S, D]`.

    cos, sin: `[N, R/2]`; position_ids: `[S]` gives `[S, R/2]`, `[B, S]` gives `[B, 1, S, R/2]`.
    Raises as `rotary_embedding` does.

    >>> table = torch.tensor([[0.0], [1.0], [2.0]])
    >>> look_up(table, table, torch.tensor([[2, 0]]), torch.zeros(1, 8, 2, 4))[0].shape
    torch.Size([1, 1, 2, 1])
    """
    if cos.dim() != 2:
        raise ValueError(
            f"cos has shape {list(cos.shape)}; with position_ids it must be [rows, planes]: "
            "leave position_ids out when the tables are already lined up with x"
        )
    check_position_ids(position_ids, x.shape[0], x.shape[2])
    check_devices(x=x, position_ids=position_ids)
    check_positions_in_table(position_ids, cos.shape[0])
    rows = position_ids.long()  # a uint8 index would be read as a mask
    cos, sin = cos[rows], sin[rows]
    return (cos.unsqueeze(1), sin.unsqueeze(1)) if rows.dim() == 2 else (cos, sin)


def _split(x: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    """The two coordinates of every plane: `[..., R]` gives `[..., R/2]` twice."""
    if interleaved:
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _join(first: Tensor, second: Tensor, interleaved: bool) -> Tensor:
    """Undo `_split`."""
    if interleaved:
        return torch.stack((first, second), dim=-1).flatten(-2)
    return torch.cat((first, second), dim=-1)
