"""A rotation by the operator, which has a kernel for the device, or else by the formula.

Chapter "As fast as memory allows". `rope::rotate` is an operator of PyTorch: a loop in C on a CPU,
Triton on a GPU, one gradient for both. By the formula goes what must see inside: learned tables,
torch.func, forward mode, tracers, tensor subclasses, and compilers for a CPU, which fuse it
themselves.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rope.formula import formula
from rope.kernels.operator import DTYPES, enabled, look_up
from rope.positions import check_positions_in_table

_PLAIN = (Tensor, nn.Parameter)


def rotate(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
    checked: bool = False,
) -> tuple[Tensor, ...]:
    """One or two tensors rotated; arguments as `rope.rotary_embedding` has them.

    checked: every position has been compared with the rows of the tables.
    """
    operator = has_kernel(xs, cos, sin)
    given = _lined_up(cos, sin, position_ids, checked, operator)
    if operator:  # defined in rope.kernels.operator
        q, k = torch.ops.rope.rotate(*_queries_and_keys(xs), *given, interleaved, inverse)
        return (q, k)[: len(xs)]
    cos, sin, _ = given
    sin = -sin if inverse else sin
    return tuple(formula(x, cos, sin, interleaved) for x in xs)


def rotate_(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
    checked: bool = False,
) -> None:
    """The same in place; where autograd records, it records a copy of the result."""
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in xs)
    if not recorded and has_kernel(xs, cos, sin):
        given = _lined_up(cos, sin, position_ids, checked, True)
        torch.ops.rope.rotate_(*_queries_and_keys(xs), *given, interleaved, inverse)
        return
    before = [x.clone() for x in xs]  # which the gradients of learned tables need
    rotated = rotate(before, cos, sin, position_ids, interleaved, inverse, checked)
    for x, y in zip(xs, rotated, strict=True):
        x.copy_(y)


def has_kernel(xs: Sequence[Tensor], cos: Tensor, sin: Tensor) -> bool:
    """Whether the operator takes these tensors, here and now.

    >>> x, table = torch.ones(1, 1, 1, 2), torch.ones(1, 1)
    >>> has_kernel([x], table, table), has_kernel([x], table.requires_grad_(), table)
    (True, False)
    """
    device, compiling = xs[0].device.type, torch.compiler.is_compiling()
    if device not in DTYPES or not enabled() or (compiling and device == "cpu"):
        return False
    if torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad):
        return False
    for x in (*xs, cos, sin):
        if x.dtype not in DTYPES[device] or not (compiling or type(x) in _PLAIN):
            return False
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return compiling or not (transformed or torch.jit.is_tracing())  # type: ignore[attr-defined]


def _lined_up(
    cos: Tensor, sin: Tensor, position_ids: Tensor | None, checked: bool, operator: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The row of each token, unless the kernel on a GPU is to look it up."""
    if position_ids is None:
        return cos, sin, None
    if not checked and not (operator and position_ids.is_cuda):  # where a kernel makes them NaN
        check_positions_in_table(position_ids, cos.shape[0])
    in_kernel = operator and position_ids.is_cuda
    return (cos, sin, position_ids) if in_kernel else (*look_up(cos, sin, position_ids), None)


def _queries_and_keys(xs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """One tensor is taken as queries beside keys of no heads."""
    if len(xs) == 2:
        return xs[0], xs[1]
    batch, _, length, head_dim = xs[0].shape
    return xs[0], xs[0].new_empty((batch, 0, length, head_dim))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, cos, sin, position_ids, ctx.interleaved, ctx.inverse = inputs
    ctx.save_for_backward(cos, sin, position_ids)
    ctx.set_materialize_grads(False)
    pairs = zip((q, k), output, strict=True)
    ctx.mark_non_differentiable(*(y for x, y in pairs if not x.requires_grad))


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    """The gradients rotated back, by whatever may rotate them here and now.

    A rotation is orthogonal: the gradient of its input is that of its output by the negative angle,
    and nothing of the input is kept.
    """
    present = [grad for grad in grads if grad is not None]
    given = *ctx.saved_tensors, ctx.interleaved, not ctx.inverse, True
    back = iter(rotate(present, *given) if present else ())
    return *(None if grad is None else next(back) for grad in grads), *[None] * 5


torch.library.register_autograd("rope::rotate", _backward, setup_context=_setup_context)
