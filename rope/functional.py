"""The operation: turn plane j of each vector by the angle of its position.

Chapter "From maths to PyTorch". With x_j, y_j the two coordinates of plane j,

    x_j' = x_j cos - y_j sin,        y_j' = y_j cos + x_j sin,

which is multiplication by e^{i m theta_j} (RoFormer, arXiv 2104.09864, equation 34).

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

from contextlib import AbstractContextManager, nullcontext

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
from rope._inplace import check_writable

# Asked for once: compiled code cannot ask in torch 2.6.
_AUTOCAST = frozenset(
    kind for kind in ("cpu", "cuda", "xpu", "mps") if torch.amp.is_autocast_available(kind)
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

    x: `[B, H, S, D]`, float16, bfloat16, float32 or float64, of any strides: what is stored as
    `[B, S, H, D]` and seen through a transpose is not copied first, and comes back stored so.
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
    cos, sin = _lined_up(x, cos, sin, position_ids, interleaved, inverse)
    # cat and stack write their results axis by axis, so the axes are first put in x's own order.
    order = _storage_order(x)
    axis = order.index(3)
    x, cos, sin = x.permute(order), cos.permute(order), sin.permute(order)
    rotary_dim = 2 * cos.shape[axis]
    first, second = _split(x.narrow(axis, 0, rotary_dim), axis, interleaved)
    with without_autocast(x):
        turned = _join(*_turn(first, second, cos, sin), axis, interleaved)
        if rotary_dim < x.shape[axis]:
            rest = x.narrow(axis, rotary_dim, x.shape[axis] - rotary_dim)
            turned = torch.cat((turned, rest), dim=axis)
    return turned.permute([order.index(i) for i in range(4)])


def rotary_embedding_(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: bool = False,
    inverse: bool = False,
) -> Tensor:
    """Rotate x in place, and return it: what is computed is `rotary_embedding`, bit for bit.

    Arguments are those of `rotary_embedding`. Autograd sees the change: gradients are those of
    `rotary_embedding`, and using what needed the old values raises torch's RuntimeError.
    Raises as `rotary_embedding` does, and ValueError for a leaf that records gradients or memory in
    which several elements of x share a place; x is then unchanged.

    >>> x = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    >>> quarter = torch.tensor([[0.0]]), torch.tensor([[1.0]])
    >>> rotary_embedding_(x, *quarter) is x, x.flatten().tolist()
    (True, [0.0, 1.0])
    """
    cos, sin = _lined_up(x, cos, sin, position_ids, interleaved, inverse)
    check_writable("x", x)
    rotated = x.narrow(3, 0, 2 * cos.shape[-1])
    first, second = _split(rotated, 3, interleaved)
    if cos.requires_grad or sin.requires_grad:
        first, second = first.clone(), second.clone()  # their gradients need the old values
    with without_autocast(x):
        rotated.copy_(_join(*_turn(first, second, cos, sin), 3, interleaved))
    return x


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


def _lined_up(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> tuple[Tensor, Tensor]:
    """Everything checked; the tables with four axes, in the dtype of the arithmetic."""
    check_flag("interleaved", interleaved)
    check_flag("inverse", inverse)
    check_tables(cos, sin)
    check_heads("x", x, 2 * cos.shape[-1])
    check_devices(x=x, cos=cos)
    if position_ids is None:
        check_rows(x, cos)
    else:
        cos, sin = look_up(cos, sin, position_ids, x)
    if cos.dim() == 2:
        cos, sin = cos[None, None], sin[None, None]
    wide = torch.promote_types(torch.promote_types(x.dtype, cos.dtype), torch.float32)
    cos, sin = cos.to(wide), sin.to(wide)
    return cos, -sin if inverse else sin


def _turn(first: Tensor, second: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """The two formulas, in the tables' dtype, rounded to that of x."""
    x, y = first.to(cos.dtype), second.to(cos.dtype)
    return (x * cos - y * sin).to(first.dtype), (y * cos + x * sin).to(first.dtype)


def _split(x: Tensor, axis: int, interleaved: bool) -> tuple[Tensor, Tensor]:
    """Views of the two coordinates of every plane: R on `axis` gives R/2 twice."""
    if interleaved:
        pairs = x.unflatten(axis, (-1, 2))
        return pairs.select(axis + 1, 0), pairs.select(axis + 1, 1)
    half = x.shape[axis] // 2
    return x.narrow(axis, 0, half), x.narrow(axis, half, half)


def _join(first: Tensor, second: Tensor, axis: int, interleaved: bool) -> Tensor:
    """Undo `_split`."""
    if interleaved:
        return torch.stack((first, second), dim=axis + 1).flatten(axis, axis + 1)
    return torch.cat((first, second), dim=axis)


def _storage_order(x: Tensor) -> list[int]:
    """The axes of x from the largest step in memory to the smallest, as torch's own ops keep them.

    An expanded axis has no step of its own; x then counts as stored in the order of its axes.
    """
    strides = x.stride()
    if any(step == 0 and size > 1 for step, size in zip(strides, x.shape, strict=True)):
        return [0, 1, 2, 3]
    order: list[int] = []
    for axis in range(4):  # insertion sort: stable, and plain comparisons for a traced graph
        at = len(order)
        while at > 0 and strides[axis] > strides[order[at - 1]]:
            at -= 1
        order.insert(at, axis)
    return order
