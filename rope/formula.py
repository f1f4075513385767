"""The rotation as plain tensor operations: equation 34 of RoFormer (arXiv 2104.09864).

Chapter "From maths to PyTorch". Written for all coordinates of a vector at once,

    x' = x cos + quarter_turn(x) sin,        quarter_turn: (x, y) -> (-y, x) in every plane,

on any device and for whatever differentiates, maps, traces or compiles it. Each product and each
sum is rounded by itself, with no fused multiply-add, so that the bits are the same in every layout.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import torch
from torch import Tensor


def formula(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """x `[B, H, S, D]` with its first R coordinates rotated; nothing is checked.

    cos, sin: what broadcasts to `[B, H, S, R/2]`; interleaved: plane j holds coordinates
    (2j, 2j+1), otherwise (j, j + R/2). The arithmetic is in float32 at least, in float64 where x or
    the tables are; its result is rounded once, to x's dtype.

    >>> x, zero = torch.tensor([[[[1.0, 0.0, 5.0]]]]), torch.zeros(1, 1)
    >>> formula(x, cos=zero, sin=zero + 1, interleaved=False).flatten()
    tensor([0., 1., 5.])
    """
    width = 2 * cos.shape[-1]
    dtype = torch.promote_types(torch.promote_types(x.dtype, cos.dtype), torch.float32)
    cos, sin = (in_both(table.to(dtype), interleaved) for table in (cos, sin))  # [..., R]
    planes = x[..., :width]
    rotated = (planes * cos + quarter_turn(planes, interleaved) * sin).to(x.dtype)
    return rotated if width == x.shape[-1] else torch.cat((rotated, x[..., width:]), dim=-1)


def quarter_turn(x: Tensor, interleaved: bool) -> Tensor:
    """(x, y) -> (-y, x) in every plane.

    >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    >>> quarter_turn(x, interleaved=True), quarter_turn(x, interleaved=False)
    (tensor([-2.,  1., -4.,  3.]), tensor([-3., -4.,  1.,  2.]))
    """
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def in_both(table: Tensor, interleaved: bool) -> Tensor:
    """A number for each plane, `[..., R/2]`, given to both of its coordinates, `[..., R]`.

    >>> in_both(torch.tensor([1.0, 2.0]), interleaved=True)
    tensor([1., 1., 2., 2.])
    """
    if interleaved:
        return table.repeat_interleave(2, dim=-1)
    return torch.cat((table, table), dim=-1)
