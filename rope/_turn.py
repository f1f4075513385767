"""What turns the vectors, once everything is checked: a kernel, blocks, compiled or plain formulas.

Chapter "As fast as memory allows". Here a call finds its way: tables are lined up with the vectors,
and what cannot be written down in advance of autograd, a tracer or a transform goes by the plain
formulas, which all of them see through.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rope import _blocks
from rope._backend import backend_for
from rope._few import few
from rope._formula import formula, formula_
from rope.checks import check_positions_in_table

_OWN = (Tensor, torch.nn.Parameter)
_tracing, _dispatch_modes = torch._C._get_tracing_state, torch._C._len_torch_dispatch_stack
_is_functional = torch._is_functional_tensor
_is_batched = torch._C._functorch.is_legacy_batchedtensor  # gradcheck's own batches
_OWN_PATHS = frozenset(("eager", "compile"))
_KERNEL_DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32))
# Elements up to which starting the operations takes longer than going through the memory.
_FEW = 1 << 20


def turned(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
    checked: bool = False,
) -> list[Tensor]:
    """One or two tensors rotated, as new ones; arguments as `rope.rotary_embedding` has them.

    checked: every position has been compared with the rows of the tables.
    """
    backend = backend_for(xs[0].device)
    if backend == "triton" and _kernel_can(xs, cos, sin):
        cos, sin = _four_axes(cos, sin, position_ids)
        return _operators().rotate(list(xs), cos, sin, position_ids, interleaved, inverse)
    if position_ids is not None:
        cos, sin = look_up(cos, sin, position_ids, checked)
    if inverse:
        sin = -sin
    plain = _are_plain((*xs, cos, sin)) and not _record(cos, sin)
    if plain and backend in _OWN_PATHS and not _record(*xs):
        if backend == "eager" and xs[0].numel() + xs[-1].numel() <= _FEW:
            found = few(xs, *_wide(xs[0], cos, sin), interleaved)
            if found is not None:
                return found
        return _together(xs, cos, sin, interleaved, backend, None)
    how = backend if plain else "formula"
    tables = _four_axes(cos, sin, None)
    return [_turned(x, *_wide(x, *tables), interleaved, how) for x in xs]


def turn_into(
    xs: Sequence[Tensor],
    outs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
    checked: bool = False,
) -> None:
    """As `turned`, written into outs, which are xs themselves or apart from them."""
    backend = backend_for(xs[0].device)
    inplace = outs[0] is xs[0]
    if backend == "triton" and _kernel_can(xs, cos, sin):
        if not _record(*xs):
            given = (*_four_axes(cos, sin, position_ids), position_ids, interleaved, inverse)
            if inplace:
                _operators().rotate_(list(xs), *given)
            else:
                _operators().rotate_into(list(xs), list(outs), *given)
            return
        values = turned(xs, cos, sin, position_ids, interleaved, inverse)
        for out, value in zip(outs, values, strict=True):
            out.copy_(value)
        return
    if position_ids is not None:
        cos, sin = look_up(cos, sin, position_ids, checked)
    sin = -sin if inverse else sin
    if _are_plain((*xs, *outs, cos, sin)) and not _record(*xs, cos, sin):
        _together(xs, cos, sin, interleaved, backend, outs)
        return
    tables = _four_axes(cos, sin, None)
    for x, out in zip(xs, outs, strict=True):
        rows = _wide(x, *tables)
        if inplace:
            formula_(x, *rows, interleaved)
        else:
            out.copy_(formula(x, *rows, interleaved))


def _together(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
    how: str,
    outs: Sequence[Tensor] | None,
) -> list[Tensor]:
    """Queries and keys in one go, unless their number formats differ."""
    if xs[-1].dtype == xs[0].dtype:
        return _way(how).rotate_all(xs, *_wide(xs[0], cos, sin), interleaved, outs)
    into = (None,) * len(xs) if outs is None else outs
    return [
        _way(how).rotate(x, *_wide(x, cos, sin), interleaved, out)
        for x, out in zip(xs, into, strict=True)
    ]


def _turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, how: str) -> Tensor:
    if how not in _OWN_PATHS:
        return formula(x, cos, sin, interleaved)
    if _record(x):
        return _Rotation.apply(x, cos, sin, interleaved, how)
    return _way(how).rotate(x, cos, sin, interleaved, None)


@cache
def _way(how: str) -> Any:
    """The loop in C, whose builder the first call that needs it imports, or blocks in the cache."""
    return importlib.import_module("rope._compiled") if how == "compile" else _blocks


class _Rotation(torch.autograd.Function):
    """The gradient of a rotation is the gradient turned back; nothing of x is kept for it."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, how: str
    ) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.interleaved, ctx.how = interleaved, how
        return _way(how).rotate(x, cos, sin, interleaved, None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        cos, sin = ctx.saved_tensors
        how = ctx.how if _are_plain((grad,)) else "formula"
        return _turned(grad, cos, -sin, ctx.interleaved, how), None, None, None, None


def look_up(
    cos: Tensor, sin: Tensor, position_ids: Tensor, checked: bool = False
) -> tuple[Tensor, Tensor]:
    """The rows of the tables `[N, R/2]` at position_ids, shaped to broadcast against vectors.

    position_ids: `[S]` gives `[S, R/2]`, `[B, S]` gives `[B, 1, S, R/2]`. Raises ValueError for a
    position outside the tables, unless the caller has checked them.

    >>> table = torch.tensor([[0.0], [1.0], [2.0]])
    >>> look_up(table, table, torch.tensor([[2, 0]]))[0].shape
    torch.Size([1, 1, 2, 1])
    """
    if not checked:
        check_positions_in_table(position_ids, cos.shape[0])
    rows = position_ids.long()  # a uint8 index would be read as a mask
    cos, sin = cos[rows], sin[rows]
    return (cos.unsqueeze(1), sin.unsqueeze(1)) if rows.dim() == 2 else (cos, sin)


def _four_axes(cos: Tensor, sin: Tensor, position_ids: Tensor | None) -> tuple[Tensor, Tensor]:
    if position_ids is None and cos.dim() == 2:
        return cos[None, None], sin[None, None]
    return cos, sin


def _wide(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """The tables in the dtype of the arithmetic: float32 at least."""
    if x.dtype != torch.float64 and cos.dtype == torch.float32:
        return cos, sin
    wide = torch.promote_types(torch.promote_types(x.dtype, cos.dtype), torch.float32)
    return cos.to(wide), sin.to(wide)


def _record(*xs: Tensor) -> bool:
    """Whether autograd will ask for the gradient of one of these."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in xs)


def _kernel_can(xs: Sequence[Tensor], cos: Tensor, sin: Tensor) -> bool:
    """Float64 vectors or tables, learned tables, and transforms of torch.func are not its own."""
    if cos.dtype not in _KERNEL_DTYPES or any(x.dtype not in _KERNEL_DTYPES for x in xs):
        return False
    if _record(cos, sin):
        return False
    return torch.compiler.is_compiling() or not _is_transformed()


def _are_plain(xs: Sequence[Tensor]) -> bool:
    """Whether these are tensors in a CPU's memory that no tracer and no transform looks at."""
    if torch.compiler.is_compiling() or _is_transformed():
        return False
    if _tracing() is not None or _dispatch_modes():
        return False
    for x in xs:
        if type(x) not in _OWN or not x.is_cpu or x.is_neg() or x._is_zerotensor():
            return False
        if _is_functional(x) or _is_batched(x):
            return False
    return True


def _is_transformed() -> bool:
    """Whether torch.func or forward-mode differentiation is at work."""
    return (
        torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0
    )


def _operators() -> Any:
    """The kernel's operators; Triton is imported by the first call that needs it."""
    _register()
    return torch.ops.rope


def _register() -> bool:
    importlib.import_module("rope.kernels.operator")
    return True


# As torch.compiler.assume_constant_result marks it, which would import the compiler here: traced
# code runs it while it is traced, and not again.
_register._dynamo_marked_constant = True  # type: ignore[attr-defined]
