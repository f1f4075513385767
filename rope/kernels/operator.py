"""The rotation as an operator of PyTorch: when it runs, by which kernel, and its gradient.

Chapter "Bytes, kernels, launches". `rope::rotate` gives new tensors, `rope::rotate_` writes into
its arguments: a loop in C on a CPU, Triton on a GPU, one gradient for both. By the formula goes
what must see inside: learned tables, torch.func, forward mode, tracers, tensor subclasses, and
compilers for a CPU, which fuse it themselves.

q: `[B, H, S, D]`; k: `[B, H_kv, S, D]`, H_kv = 0 where there is none. cos, sin: `[N, R/2]` with
position_ids `[S]` or `[B, S]`, else `[S, R/2]` or four axes that broadcast to `[B, H, S, R/2]`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rope.checks import FLOATING
from rope.kernels import cpu
from rope.kernels.dtensors import is_dtensor, rotate_parts
from rope.kernels.formula import formula
from rope.positions import check_positions_in_table

#: The number formats of each kind of device that has a kernel.
DTYPES: dict[str, tuple[torch.dtype, ...]] = {"cpu": FLOATING}
if find_spec("triton"):  # which does not import it
    DTYPES["cuda"] = (torch.float16, torch.bfloat16, torch.float32)

_PLAIN = (Tensor, nn.Parameter)
_disabled = 0  # blocks of `disabled` that are being run


def enabled() -> bool:
    """Whether kernels are used: True, but inside `disabled`.

    >>> enabled()
    True
    """
    return _disabled == 0


@contextmanager
def disabled() -> Iterator[None]:
    """Inside the `with` block every rotation is the plain formula, in all threads.

    >>> with disabled():
    ...     enabled()
    False
    """
    global _disabled
    _disabled += 1
    try:
        yield
    finally:
        _disabled -= 1


def apply_rotation(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
    inplace: bool = False,
) -> Sequence[Tensor]:
    """One or two tensors rotated, by the operator or the formula; the caller has checked them.

    In place, where autograd records, it records a copy of the result. DTensors are rotated part by
    part, each where it is, and not in place.

    >>> x, zero = torch.tensor([[[[1.0, 0.0]]]]), torch.zeros(1, 1)
    >>> apply_rotation([x], zero, zero + 1, None, interleaved=False, inverse=True)[0].flatten()
    tensor([ 0., -1.])
    """
    if is_dtensor(*xs):
        rotate_part = partial(apply_rotation, interleaved=interleaved, inverse=inverse)
        return rotate_parts(xs, cos, sin, position_ids, inplace, rotate_part)
    by_operator = operator_takes(xs, cos, sin)
    if inplace:
        recorded = torch.is_grad_enabled() and any(x.requires_grad for x in xs)
        if recorded or not by_operator:
            before = [x.clone() for x in xs]  # autograd may need x as it was, for learned tables
            rotated = apply_rotation(before, cos, sin, position_ids, interleaved, inverse)
            return [x.copy_(y) for x, y in zip(xs, rotated, strict=True)]
    if position_ids is not None and position_ids.shape[:-1] == (1,):
        position_ids = position_ids[0]
    # The Triton kernel looks rows up itself; a position outside the tables gives NaN there.
    if not (by_operator and xs[0].is_cuda):
        if position_ids is not None:
            check_positions_in_table(position_ids, cos.shape[0])
        if position_ids is not None or inverse:
            cos, sin = rows_of(cos, sin, position_ids, inverse)
            position_ids, inverse = None, False
    if not by_operator:
        return [formula(x, cos, sin, interleaved) for x in xs]
    # One tensor goes as queries beside keys of no heads. PyTorch's dispatcher goes on below:
    # rope::rotate is _into_new, rope::rotate_ is _into_itself.
    q, k = xs if len(xs) == 2 else (xs[0], xs[0].new_empty(xs[0][:, :0].shape))
    if inplace:
        torch.ops.rope.rotate_(q, k, cos, sin, position_ids, interleaved, inverse)
        return xs
    return torch.ops.rope.rotate(q, k, cos, sin, position_ids, interleaved, inverse)[: len(xs)]


def operator_takes(xs: Sequence[Tensor], cos: Tensor, sin: Tensor) -> bool:
    """Whether the operator takes these tensors, here and now.

    >>> x, table = torch.ones(1, 1, 1, 2), torch.ones(1, 1)
    >>> operator_takes([x], table, table), operator_takes([x], table.requires_grad_(), table)
    (True, False)
    """
    device, compiling = xs[0].device.type, torch.compiler.is_compiling()
    if _disabled or device not in DTYPES or (compiling and device == "cpu"):
        return False
    if torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad):
        return False
    for x in (*xs, cos, sin):
        if x.dtype not in DTYPES[device] or not (compiling or type(x) in _PLAIN):
            return False
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return compiling or not (transformed or torch.jit.is_tracing())  # type: ignore[attr-defined]


def rows_of(
    cos: Tensor, sin: Tensor, position_ids: Tensor | None, inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """cos and sin of each token, sin with the other sign on the way back.

    position_ids: `[S]` or `[B, S]`, within the rows of the tables `[N, R/2]`, which is not checked
    here; without them the tables are those of the tokens already.
    Returns `[S, R/2]` or `[B, 1, S, R/2]` with position_ids.

    >>> table = torch.tensor([[0.0], [1.0], [2.0]])
    >>> rows_of(table, table, torch.tensor([[2, 0]]))[0].shape
    torch.Size([1, 1, 2, 1])
    """
    if position_ids is not None:
        rows = position_ids.long()  # a uint8 index would be read as a mask
        rows = rows[:, None] if rows.dim() == 2 else rows
        cos, sin = cos[rows], sin[rows]
    return cos, -sin if inverse else sin


_ARGUMENTS = "Tensor cos, Tensor sin, Tensor? position_ids, bool interleaved, bool inverse"
torch.library.define("rope::rotate", f"(Tensor q, Tensor k, {_ARGUMENTS}) -> (Tensor, Tensor)")
torch.library.define("rope::rotate_", f"(Tensor(a!) q, Tensor(b!) k, {_ARGUMENTS}) -> ()")


@torch.library.impl("rope::rotate", tuple(DTYPES))
def _into_new(q: Tensor, k: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    outs = torch.empty_like(q), torch.empty_like(k)
    _run_kernel(outs, (q, k), *arguments)
    return outs


@torch.library.impl("rope::rotate_", tuple(DTYPES))
def _into_itself(q: Tensor, k: Tensor, *arguments: Any) -> None:
    _run_kernel((q, k), (q, k), *arguments)
    for x in (q, k):
        if not x.is_inference():
            torch.autograd.graph.increment_version(x)  # torch has not seen the writing


def _run_kernel(
    outs: tuple[Tensor, Tensor],
    xs: tuple[Tensor, Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> None:
    """Queries and keys by the kernel of their device, into tensors that may be themselves."""
    if xs[0].is_cuda:
        from rope.kernels.triton import launch  # which imports Triton

        flags: Any = {"interleaved": interleaved, "inverse": inverse}
        launch(*xs, *outs, cos, sin, position_ids, **flags)
    else:
        # ids, and the way back, come here only where torch.ops.rope.rotate is called by itself.
        cpu.rotate_into(outs, xs, *rows_of(cos, sin, position_ids, inverse), interleaved)


# Shapes alone, for compilers and export.
@torch.library.register_fake("rope::rotate")
def _(q: Tensor, k: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k)


@torch.library.register_fake("rope::rotate_")
def _(*_: Any) -> None:
    return None


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, cos, sin, position_ids, ctx.interleaved, ctx.inverse = inputs
    ctx.save_for_backward(cos, sin, position_ids)
    ctx.set_materialize_grads(False)
    fixed = [y for x, y in zip((q, k), output, strict=True) if not x.requires_grad]
    ctx.mark_non_differentiable(*fixed)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    """The gradients rotated back, by whatever may rotate them here and now.

    A rotation is orthogonal: the gradient of its input is that of its output by the negative angle,
    and nothing of the input is kept.
    """
    cos, sin, position_ids = ctx.saved_tensors
    if position_ids is not None and not position_ids.is_cuda:  # checked on the way there
        cos, sin, position_ids = *rows_of(cos, sin, position_ids), None
    present = [grad for grad in grads if grad is not None]
    arguments = cos, sin, position_ids, ctx.interleaved, not ctx.inverse
    back = iter(apply_rotation(present, *arguments) if present else ())
    return *(None if grad is None else next(back) for grad in grads), *[None] * 5


torch.library.register_autograd("rope::rotate", _backward, setup_context=_setup_context)
