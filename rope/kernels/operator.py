"""The kernel as operators of torch: for autograd, torch.compile and torch.export.

Chapter "As fast as memory allows". `rope::rotate` gives new tensors and is differentiable: a
rotation is orthogonal, so the gradient of its input is the gradient of its output turned back, by
the same operator with the angle negated, and nothing of the input is kept. `rope::rotate_` writes
into its arguments, `rope::rotate_into` into others.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rope._pages import fresh_like
from rope.kernels.triton import launch

_TABLES = "Tensor cos, Tensor sin, Tensor? position_ids, bool interleaved, bool inverse"
torch.library.define("rope::rotate", f"(Tensor[] xs, {_TABLES}) -> Tensor[]")
torch.library.define("rope::rotate_", f"(Tensor(a!)[] xs, {_TABLES}) -> ()")
torch.library.define("rope::rotate_into", f"(Tensor[] xs, Tensor(a!)[] outs, {_TABLES}) -> ()")


@torch.library.impl("rope::rotate", ("cpu", "cuda"))
def rotate(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> list[Tensor]:
    """One or two tensors `[B, H, S, D]` rotated by one launch, into new memory in their order.

    cos, sin: `[N, R/2]` with position_ids `[S]` or `[B, S]`, else four axes that broadcast.
    """
    outs = [fresh_like(x) for x in xs]
    _run(xs, outs, cos, sin, position_ids, interleaved, inverse)
    return outs


@torch.library.impl("rope::rotate_", ("cpu", "cuda"))
def rotate_(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> None:
    """As `rotate`, in place."""
    _run(xs, xs, cos, sin, position_ids, interleaved, inverse)


@torch.library.impl("rope::rotate_into", ("cpu", "cuda"))
def rotate_into(
    xs: Sequence[Tensor],
    outs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> None:
    """As `rotate`, into tensors that exist."""
    _run(xs, outs, cos, sin, position_ids, interleaved, inverse)


def _run(
    xs: Sequence[Tensor],
    outs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> None:
    if len(xs) not in (1, 2):
        raise ValueError(f"rope::rotate takes one or two tensors, not {len(xs)}: call it twice")
    k, k_out = (xs[1], outs[1]) if len(xs) == 2 else (None, None)
    flags = {"interleaved": interleaved, "inverse": inverse}
    launch(xs[0], k, outs[0], k_out, cos, sin, position_ids, **flags)


@torch.library.register_fake("rope::rotate")
def _(xs: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return [fresh_like(x) for x in xs]


@torch.library.register_fake("rope::rotate_")
@torch.library.register_fake("rope::rotate_into")
def _(xs: Sequence[Tensor], *_: Any) -> None:
    return None


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _, cos, sin, position_ids, ctx.interleaved, ctx.inverse = inputs
    ctx.save_for_backward(cos, sin, position_ids)


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    cos, sin, position_ids = ctx.saved_tensors
    turned = torch.ops.rope.rotate(grads, cos, sin, position_ids, ctx.interleaved, not ctx.inverse)
    return turned, None, None, None, None, None


torch.library.register_autograd("rope::rotate", _backward, setup_context=_setup_context)
