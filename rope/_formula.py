"""The two formulas as plain tensor operations, for whatever differentiates, maps or compiles them.

Chapter "From maths to PyTorch". With x_j, y_j the two coordinates of plane j,

    x_j' = x_j cos - y_j sin,        y_j' = y_j cos + x_j sin.

Tables have four axes here, `[B, H, S, R/2]` or 1 in place of B, H, S, and the dtype of the
arithmetic; the sine has the sign of the direction.
Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

# Asked for once: compiled code cannot ask in torch 2.6.
_AUTOCAST = frozenset(
    kind for kind in ("cpu", "cuda", "xpu", "mps") if torch.amp.is_autocast_available(kind)
)


def without_autocast(x: Tensor) -> AbstractContextManager[None]:
    """A context in which autocast leaves the arithmetic on x's device alone.

    >>> with torch.autocast("cpu"), without_autocast(torch.ones(2, 2)):
    ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    torch.float32
    """
    kind = x.device.type
    if kind not in _AUTOCAST or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def formula(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """x rotated, a new tensor stored in x's own order.

    >>> x, quarter = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.zeros(1, 1, 1, 1)
    >>> formula(x, quarter, quarter + 1, False).flatten()
    tensor([0., 1.])
    """
    # cat and stack write their results axis by axis, so the axes are first put in x's own order.
    order = storage_order(x)
    if order is not _ORDER:
        back = [order.index(i) for i in range(4)]
        x, cos, sin = x.permute(order), cos.permute(order), sin.permute(order)
        return _in_order(x, cos, sin, order.index(3), interleaved).permute(back)
    return _in_order(x, cos, sin, 3, interleaved)


def _in_order(x: Tensor, cos: Tensor, sin: Tensor, axis: int, interleaved: bool) -> Tensor:
    """The rotation of x, whose coordinates lie on `axis`, written in the order of its axes."""
    width = 2 * cos.shape[axis]
    with without_autocast(x):
        turned = list(turn(*split(x, width, axis, interleaved), cos, sin))
        if interleaved:
            shape = (*x.shape[:axis], width, *x.shape[axis + 1 :])
            turned = [torch.stack(turned, dim=axis + 1).reshape(shape)]
        if width < x.shape[axis]:
            turned.append(x.narrow(axis, width, x.shape[axis] - width))
        return turned[0] if len(turned) == 1 else torch.cat(turned, dim=axis)


def formula_(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """x rotated in place, which autograd sees.

    >>> x, quarter = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.zeros(1, 1, 1, 1)
    >>> formula_(x, quarter, quarter + 1, False) is x, x.flatten().tolist()
    (True, [0.0, 1.0])
    """
    width = 2 * cos.shape[-1]
    first, second = split(x, width, 3, interleaved)
    if cos.requires_grad or sin.requires_grad:
        first, second = first.clone(), second.clone()  # their gradients need the old values
    with without_autocast(x):
        # Each half into its own place: joining them first would fill a second tensor of x's size.
        # Views are made anew, since the first write may give x a history that old ones lack.
        for half, values in enumerate(turn(first, second, cos, sin)):
            split(x, width, 3, interleaved)[half].copy_(values)
    return x


def turn(first: Tensor, second: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """The two formulas, in the tables' dtype, rounded to that of the vectors.

    Each product and each sum is rounded by itself, with no fused multiply-add, so that the bits
    are the same in every layout and on every CPU; `rope._blocks` keeps to that.
    """
    if first.dtype == cos.dtype:  # a cast that changes nothing takes its time too
        return first * cos - second * sin, second * cos + first * sin
    x, y = first.to(cos.dtype), second.to(cos.dtype)
    return (x * cos - y * sin).to(first.dtype), (y * cos + x * sin).to(first.dtype)


def split(x: Tensor, width: int, axis: int, interleaved: bool) -> tuple[Tensor, Tensor]:
    """Views of the two coordinates of every plane: the first R on `axis` give R/2 twice."""
    half = width // 2
    if interleaved:
        before = (slice(None),) * axis
        return x[(*before, slice(0, width, 2))], x[(*before, slice(1, width, 2))]
    return x.narrow(axis, 0, half), x.narrow(axis, half, half)


_ORDER = [0, 1, 2, 3]


def storage_order(x: Tensor) -> list[int]:
    """The axes of x from the largest step in memory to the smallest, as torch's own ops keep them.

    An expanded axis has no step of its own; x then counts as stored in the order of its axes.
    """
    strides = x.stride()
    if strides[0] >= strides[1] >= strides[2] >= strides[3] > 0:
        return _ORDER
    if any(step == 0 and size > 1 for step, size in zip(strides, x.shape, strict=True)):
        return _ORDER
    order: list[int] = []
    for axis in range(4):  # insertion sort: stable, and plain comparisons for a traced graph
        at = len(order)
        while at > 0 and strides[axis] > strides[order[at - 1]]:
            at -= 1
        order.insert(at, axis)
    return order
