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

from rope._blocks import below_autograd
from rope._ways import are_complex, rounds_each


def few(xs: Sequence[Tensor], cos: Tensor, sin: Tensor, interleaved: bool) -> list[Tensor] | None:
    """Contiguous tensors rotated over their whole width, or None where this way does not lead.

    Nothing is recorded for autograd.

    >>> x, quarter = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.zeros(1, 1, 1, 1)
    >>> few([x], quarter, quarter + 1, False)[0].flatten()
    tensor([0., 1.])
    """
    width, dtype = 2 * cos.shape[-1], xs[0].dtype
    for x in xs:
        if x.shape[3] != width or x.dtype != dtype or not x.is_contiguous():
            return None
        if interleaved and not (x.numel() and are_complex(x, x, dtype) and rounds_each(x)):
            return None
    with below_autograd():
        if dtype != cos.dtype:
            return _widened(xs, cos, sin, interleaved)
        if interleaved:
            turns = torch.complex(cos, sin).contiguous()
            return [(x.view(turns.dtype) * turns).view(dtype) for x in xs]
        cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
        return [_halves(x, cos, sin) for x in xs]


def _halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The halves of the second product change places while they are added."""
    out, crossed = x * cos, x * sin
    one, other = _split(out)
    first, second = _split(crossed)
    one.sub_(second)
    other.add_(first)
    return out


def _widened(
    xs: Sequence[Tensor], cos: Tensor, sin: Tensor, interleaved: bool
) -> list[Tensor] | None:
    """Side by side in the dtype of the arithmetic, for half as many operations."""
    batch, heads, length, width = xs[0].shape
    sizes = [heads] if len(xs) == 1 else [heads, xs[1].shape[1]]
    if len(sizes) > 1 and cos.dim() == 4 and cos.shape[1] > 1:
        return None  # heads have tables of their own
    wide = cos.new_empty((batch, sum(sizes), length, width))
    if interleaved and not rounds_each(wide):
        return None
    parts = wide.split_with_sizes(sizes, 1)
    for x, part in zip(xs, parts, strict=True):
        part.copy_(x)
    if interleaved:
        turns = torch.complex(cos, sin).contiguous()
        wide.view(turns.dtype).mul_(turns)
    else:
        one, other = _split(wide)
        first, second = one * sin, other * sin
        one.mul_(cos).sub_(second)
        other.mul_(cos).add_(first)
    return [torch.empty_like(x).copy_(part) for x, part in zip(xs, parts, strict=True)]


def _split(x: Tensor) -> tuple[Tensor, ...]:
    half = x.shape[3] // 2
    return x.split_with_sizes((half, half), 3)
