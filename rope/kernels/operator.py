"""Define the rotation as a PyTorch operator with an implementation per device and a gradient.

See the chapter "Bytes and kernels". `rope::rotate` returns new tensors, `rope::rotate_only` does so
without a gradient, and `rope::rotate_` overwrites q and k. All run the loop in C on a CPU and the
Triton kernel on a GPU. The formula runs instead if torch has to see each operation: for learned
tables, torch.func, forward mode, tracers, tensor subclasses, and code compiled for a CPU.

Shapes: q `[B, H, S, D]`; k `[B, H_kv, S, D]`, with H_kv = 0 if there are no keys. cos and sin are
`[N, R/2]` with position_ids `[S]` or `[B, S]`. Otherwise they are `[S, R/2]`, or have four axes
that broadcast to `[B, H, S, R/2]`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rope.checks import FLOATING
from rope.kernels import cpu
from rope.kernels.formula import formula, rows_of
from rope.positions import check_positions_in_table

#: The dtypes that the kernel for each kind of device accepts.
DTYPES: dict[str, tuple[torch.dtype, ...]] = {"cpu": FLOATING}
if find_spec("triton"):  # find_spec doesn't import Triton
    DTYPES["cuda"] = (torch.float16, torch.bfloat16, torch.float32)

_PLAIN = (Tensor, nn.Parameter)
_disabled = 0  # the number of `disabled` blocks that are active


@contextmanager
def disabled() -> Iterator[None]:
    """Rotate with the plain formula, in all threads, while the `with` block runs."""
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
    position_ids: Tensor | None = None,
    *,
    interleaved: bool,
    inverse: bool = False,
    inplace: bool = False,
) -> Sequence[Tensor]:
    """Rotate x, or q and k, with the operator if it accepts them, otherwise with the formula.

    xs: one or two tensors `[B, H, S, D]`. The caller must check all arguments first, except whether
    position_ids lie inside the tables.
    Returns new tensors, or xs if inplace is True. Raises ValueError for a position outside the
    tables (the Triton kernel returns NaN instead).

    >>> x, zero = torch.tensor([[[[1.0, 0.0]]]]), torch.zeros(1, 1)
    >>> apply_rotation([x], zero, zero + 1, interleaved=False, inverse=True)[0].flatten()
    tensor([ 0., -1.])
    """
    if position_ids is not None and position_ids.shape[:-1] == (1,):
        position_ids = position_ids[0]
    if not operator_takes(xs, cos, sin):
        if position_ids is not None:
            check_positions_in_table(position_ids, cos.shape[0])
            cos, sin = rows_of(cos, sin, position_ids)
        sin = -sin if inverse else sin
        # For the gradient of learned tables, autograd needs x as it was before the rotation.
        rotated = [formula(x.clone() if inplace else x, cos, sin, interleaved) for x in xs]
    else:
        # The kernels look up rows. They need q and k, so a single x becomes q, and k has no heads.
        q, k = xs if len(xs) == 2 else (xs[0], xs[0].new_empty(xs[0][:, :0].shape))
        recorded = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
        if recorded and position_ids is not None:
            position_ids = position_ids.clone()  # autograd saves the ids; a caller may change them
        arguments = q, k, cos, sin, position_ids, interleaved, inverse
        if inplace and not recorded:
            ROTATE_INPLACE(*arguments)
            return xs
        rotate = ROTATE if recorded or torch.compiler.is_compiling() else ROTATE_ONLY
        rotated = rotate(*arguments)[: len(xs)]
    return [x.copy_(y) for x, y in zip(xs, rotated, strict=True)] if inplace else rotated


def operator_takes(xs: Sequence[Tensor], cos: Tensor, sin: Tensor) -> bool:
    """Return True if the operator accepts these tensors in the current context of torch.

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


def _into_new(q: Tensor, k: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    outs = torch.empty_like(q), torch.empty_like(k)
    _run_kernel(outs, (q, k), *arguments)
    return outs


def _into_itself(q: Tensor, k: Tensor, *arguments: Any) -> None:
    _run_kernel((q, k), (q, k), *arguments)
    for x in (q, k):
        if not x.is_inference():
            torch.autograd.graph.increment_version(x)  # torch can't see that the kernel changed x


def _run_kernel(
    outs: tuple[Tensor, Tensor],
    xs: tuple[Tensor, Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> None:
    """Rotate q and k into outs with the kernel for their device; outs may be q and k themselves."""
    if xs[0].is_cuda:
        from rope.kernels.triton import launch  # this imports Triton

        launch(*xs, *outs, cos, sin, position_ids, interleaved=interleaved, inverse=inverse)
    else:
        flags = {"interleaved": interleaved, "inverse": inverse}
        cpu.rotate_into(outs, xs, cos, sin, position_ids, **flags)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, cos, sin, position_ids, ctx.interleaved, ctx.inverse = inputs
    ctx.save_for_backward(cos, sin, position_ids)
    ctx.set_materialize_grads(False)
    fixed = [y for x, y in zip((q, k), output, strict=True) if not x.requires_grad]
    ctx.mark_non_differentiable(*fixed)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    """Return the gradients of q and k, which are the gradients of the outputs, rotated back.

    A rotation is orthogonal, so its transpose is the rotation by the negative angle. The backward
    pass needs only the tables and positions, so autograd doesn't save q and k.
    """
    cos, sin, position_ids = ctx.saved_tensors
    if position_ids is not None and not position_ids.is_cuda:  # the forward pass checked the ids
        cos, sin, position_ids = *rows_of(cos, sin, position_ids), None
    present = [grad for grad in grads if grad is not None]
    flags = {"interleaved": ctx.interleaved, "inverse": not ctx.inverse}
    back = iter(apply_rotation(present, cos, sin, position_ids, **flags) if present else ())
    return *(None if grad is None else next(back) for grad in grads), *[None] * 5


_ARGUMENTS = "Tensor cos, Tensor sin, Tensor? position_ids, bool interleaved, bool inverse"
_NEW = f"(Tensor q, Tensor k, {_ARGUMENTS}) -> (Tensor, Tensor)"
_ITSELF = f"(Tensor(a!) q, Tensor(b!) k, {_ARGUMENTS}) -> ()"


def _shapes_only(q: Tensor, k: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k)


def _define(name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Define and return an operator. `run` computes the results, and `fake` only their shapes."""
    torch.library.define(name, schema)
    torch.library.impl(name, tuple(DTYPES), run)
    torch.library.register_fake(name, fake)
    return getattr(torch.ops.rope, name.removeprefix("rope::")).default


ROTATE = _define("rope::rotate", _NEW, _into_new, _shapes_only)
torch.library.register_autograd("rope::rotate", _backward, setup_context=_setup_context)
#: Rotates like `ROTATE`, but without a gradient, which saves 5 us of Python per call.
ROTATE_ONLY = _define("rope::rotate_only", _NEW, _into_new, _shapes_only)
ROTATE_INPLACE = _define("rope::rotate_", _ITSELF, _into_itself, lambda *_: None)
