"""The two formulas for few vectors, such as one token's: with the fewest operations.

Chapter "As fast as memory allows", section on decoding. All of it lies in the cache, and the time
is that of starting each operation. The bits are those of `rope._formula.formula`.

Tables are `[S, R/2]`, or have four axes, `[B, H, S, R/2]` or 1 in place of B, H, S; they have the
dtype of the arithmetic, and the sine the sign of the direction.
Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rope._blocks import rounds_each


def few(xs: Sequence[Tensor], cos: Tensor, sin: Tensor, interleaved: bool) -> list[Tensor] | None:
    """Contiguous tensors rotated over their whole width, or None where this way does not lead.

    Nothing is recorded for autograd.

    >>> x, quarter = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.zeros(1, 1, 1, 1)
    >>> few([x], quarter, quarter + 1, False)[0].flatten()
    tensor([0., 1.])
    """
    planes = cos.shape[-1]
    dtype = xs[0].dtype
    for x in xs:
        if x.shape[3] != 2 * planes or not x.is_contiguous() or x.dtype != dtype:
            return None
        if interleaved and (x.storage_offset() % 2 or not rounds_each(x)):
            return None
    tables: tuple[Tensor, ...] = (torch.complex(cos, sin),) if interleaved else ()
    if not interleaved:
        tables = torch.cat((cos, cos), -1), torch.cat((sin, -sin), -1)
    if dtype == cos.dtype:
        return [_turned(x, *tables) for x in xs]
    if len(xs) == 1 or (cos.dim() == 4 and cos.shape[1] > 1):
        return [_turned(x.to(cos.dtype), *tables).to(dtype) for x in xs]
    heads = xs[0].shape[1]
    both = torch.cat((xs[0], xs[1]), 1).to(cos.dtype)
    if interleaved and not rounds_each(both):
        return None
    both = _turned(both, *tables)
    return [both[:, :heads].to(dtype), both[:, heads:].to(dtype)]


def _turned(x: Tensor, cos: Tensor, sin: Tensor | None = None) -> Tensor:
    """By complex numbers, or by cosines and sines over the whole width."""
    if sin is None:
        return (x.view(cos.dtype) * cos).view(x.dtype)
    return (x * cos).add_((x * sin).roll(x.shape[3] // 2, 3))
