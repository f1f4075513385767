"""The rotation as operators of PyTorch, whose dispatcher finds the kernel for a device.

Chapter "Bytes, kernels, launches". `rope::rotate` gives new tensors, `rope::rotate_` writes into
its arguments; their caller, `rope.rotation`, has checked them, and says what the gradient is.

q: `[B, H, S, D]`; k: `[B, H_kv, S, D]`, H_kv = 0 where there is none. cos, sin: `[N, R/2]` with
position_ids `[S]` or `[B, S]`, else `[S, R/2]` or four axes that broadcast to `[B, H, S, R/2]`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from rope.checks import FLOATING
from rope.kernels import cpu

#: The number formats of each kind of device that has a kernel.
DTYPES: dict[str, tuple[torch.dtype, ...]] = {"cpu": FLOATING}
if find_spec("triton"):  # which does not import it
    DTYPES["cuda"] = (torch.float16, torch.bfloat16, torch.float32)

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


_ARGUMENTS = "Tensor cos, Tensor sin, Tensor? position_ids, bool interleaved, bool inverse"
torch.library.define("rope::rotate", f"(Tensor q, Tensor k, {_ARGUMENTS}) -> (Tensor, Tensor)")
torch.library.define("rope::rotate_", f"(Tensor(a!) q, Tensor(b!) k, {_ARGUMENTS}) -> ()")


@torch.library.impl("rope::rotate", tuple(DTYPES))
def rotate(q: Tensor, k: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    outs = torch.empty_like(q), torch.empty_like(k)
    _into(q, k, *outs, *given)
    return outs


@torch.library.impl("rope::rotate_", tuple(DTYPES))
def rotate_(q: Tensor, k: Tensor, *given: Any) -> None:
    _into(q, k, q, k, *given)
    for x in (q, k):
        if not x.is_inference():
            torch.autograd.graph.increment_version(x)  # torch has not seen the writing


def _into(
    q: Tensor,
    k: Tensor,
    q_out: Tensor,
    k_out: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> None:
    """Queries and keys by the kernel of their device, into tensors that may be themselves."""
    if q.is_cuda:
        from rope.kernels.triton import launch  # which imports Triton

        launch(q, k, q_out, k_out, cos, sin, position_ids, interleaved=interleaved, inverse=inverse)
        return
    if position_ids is not None:
        cos, sin = look_up(cos, sin, position_ids)
    sin = -sin if inverse else sin
    cpu.rotate(q, q_out, cos, sin, interleaved)
    cpu.rotate(k, k_out, cos, sin, interleaved)


def look_up(cos: Tensor, sin: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of the tables `[N, R/2]` at each token's position.

    position_ids: `[S]` or `[B, S]`, within the rows, which is not checked here.
    Returns cos and sin, `[S, R/2]` or `[B, 1, S, R/2]`.

    >>> table = torch.tensor([[0.0], [1.0], [2.0]])
    >>> look_up(table, table, torch.tensor([[2, 0]]))[0].shape
    torch.Size([1, 1, 2, 1])
    """
    rows = position_ids.long()  # a uint8 index would be read as a mask
    rows = rows[:, None] if rows.dim() == 2 else rows
    return cos[rows], sin[rows]


@torch.library.register_fake("rope::rotate")
def _(q: Tensor, k: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k)


@torch.library.register_fake("rope::rotate_")
def _(*_: Any) -> None:
    return None
