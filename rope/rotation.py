"""A rotation by the operator, which has a kernel for the device, or else by the formula.

Chapter "Bytes, kernels, launches". `rope::rotate` is an operator of PyTorch: a loop in C on a CPU,
Triton on a GPU, one gradient for both. By the formula goes what must see inside: learned tables,
torch.func, forward mode, tracers, tensor subclasses, and compilers for a CPU, which fuse it
themselves.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rope.dtensors import here, is_dtensor, together
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
    inplace: bool = False,
) -> Sequence[Tensor]:
    """One or two tensors rotated; arguments as `rope.rotary_embedding_qk` has them.

    In place, where autograd records, it records a copy of the result. DTensors are rotated part by
    part, each where it is, and not in place.
    """
    loaded = sys.modules.get("torch.distributed.tensor")  # as it is where there are DTensors
    if loaded is not None and (
        isinstance(xs[0], loaded.DTensor) or isinstance(xs[-1], loaded.DTensor)
    ):
        if inplace:
            raise ValueError(
                "inplace is True for a DTensor; it must be False: rotate x.to_local() in place"
            )
        outs: list[Tensor] = []
        for x in xs:
            if not is_dtensor(x):
                raise TypeError(
                    "one of q and k is a DTensor; both must be, or neither: distribute the other "
                    "one too, or pass the local part of this one"
                )
            part, cos_here, sin_here, ids = here(x, cos, sin, position_ids)
            (out,) = rotate((part,), cos_here, sin_here, ids, interleaved, inverse)
            outs.append(together(out, x))
        return outs
    operator = has_kernel(xs, cos, sin)
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in xs)
    if inplace and (recorded or not operator):
        before = [x.clone() for x in xs]  # which the gradients of learned tables need
        rotated = rotate(before, cos, sin, position_ids, interleaved, inverse)
        return [x.copy_(y) for x, y in zip(xs, rotated, strict=True)]
    cos, sin, position_ids = _lined_up(cos, sin, position_ids, operator)
    if not operator:
        sin = -sin if inverse else sin
        return [formula(x, cos, sin, interleaved) for x in xs]
    # One tensor goes as queries beside keys of no heads; both are defined in rope.kernels.operator.
    q, k = xs if len(xs) == 2 else (xs[0], xs[0].new_empty(xs[0][:, :0].shape))
    given = cos, sin, position_ids, interleaved, inverse
    if inplace:
        torch.ops.rope.rotate_(q, k, *given)
        return xs
    return torch.ops.rope.rotate(q, k, *given)[: len(xs)]


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
    cos: Tensor, sin: Tensor, position_ids: Tensor | None, operator: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The row of each token; a kernel on a GPU looks it up, and makes a wrong position NaN."""
    if position_ids is None:
        return cos, sin, None
    if position_ids.shape[:-1] == (1,):
        position_ids = position_ids[0]
    if operator and position_ids.is_cuda:
        return cos, sin, position_ids
    check_positions_in_table(position_ids, cos.shape[0])
    return *look_up(cos, sin, position_ids), None


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
    cos, sin, position_ids = ctx.saved_tensors
    if position_ids is not None and not position_ids.is_cuda:
        cos, sin, position_ids = *look_up(cos, sin, position_ids), None
    present = [grad for grad in grads if grad is not None]
    given = cos, sin, position_ids, ctx.interleaved, not ctx.inverse
    back = iter(rotate(present, *given) if present else ())
    return *(None if grad is None else next(back) for grad in grads), *[None] * 5


torch.library.register_autograd("rope::rotate", _backward, setup_context=_setup_context)
