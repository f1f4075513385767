"""The two formulas compiled for a CPU, so that each element is read once and written once.

Chapter "As fast as memory allows", section on the CPU. The loop is in `rope/kernels/rotate.c`; it
is built by the first call in a process, which takes a second, and gives the bits of the eager path.

Tables are `[S, R/2]`, or have four axes, `[B, H, S, R/2]` or 1 in place of B, H, S; they have the
dtype of the arithmetic, and the sine the sign of the direction.
Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import ctypes
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rope._blocks import rotate as in_blocks
from rope._compiler import build
from rope._formula import storage_order
from rope._pages import fresh_like

_SOURCE = Path(__file__).with_name("kernels") / "rotate.c"
# The order of `rows` in the C file, with the dtype of the arithmetic.
_DTYPES = {
    (torch.float32, torch.float32): 0,
    (torch.bfloat16, torch.float32): 1,
    (torch.float16, torch.float32): 2,
    (torch.float64, torch.float64): 3,
}
_GRAIN = 1 << 15  # elements below which a second thread is not worth waking
_CALL = struct.Struct("25q")


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, out: Tensor | None) -> Tensor:
    """As `rope._blocks.rotate`, to the bit, with no memory beside the result.

    Nothing is recorded for autograd. Raises RuntimeError where there is no C compiler, or it fails.
    """
    dtype = _DTYPES.get((x.dtype, cos.dtype))
    if dtype is None or x.stride(3) != 1 or (out is not None and out.stride(3) != 1):
        if cos.dim() == 2:
            cos, sin = cos[None, None], sin[None, None]
        return in_blocks(x, cos, sin, interleaved, out)
    loop = _built[0] if _built else _build()
    made = fresh_like(x) if out is None else out
    size = x.numel()
    if size:
        # These names hold tables that are made here until the loop is done.
        cos, sin = (t if t.stride(-1) == 1 else t.contiguous() for t in (cos, sin))
        threads = min(torch.get_num_threads(), size // _GRAIN) or 1
        loop(_call(dtype, interleaved, threads, x, cos, sin, made))
    if out is not None and not out.is_inference():
        torch.autograd.graph.increment_version(out)  # torch has not seen the writing
    return made


def _call(
    dtype: int, interleaved: bool, threads: int, x: Tensor, cos: Tensor, sin: Tensor, out: Tensor
) -> bytes:
    """The fields of `struct call`, in their order."""
    a, b, c, _ = storage_order(x)
    shape, size, wide, planes = x.shape, x.element_size(), cos.element_size(), cos.shape[-1]
    width = 2 * planes * size
    from_, to, cosine, sine = x.stride(), out.stride(), _steps(cos), _steps(sin)
    return _CALL.pack(
        *(dtype, interleaved, threads, planes, width, shape[3] * size - width),
        *(shape[a], shape[b], shape[c]),
        *(x.data_ptr(), cos.data_ptr(), sin.data_ptr(), out.data_ptr()),
        *(size * from_[a], size * from_[b], size * from_[c]),
        *(wide * cosine[a], wide * cosine[b], wide * cosine[c]),
        *(wide * sine[a], wide * sine[b], wide * sine[c]),
        *(size * to[a], size * to[b], size * to[c]),
    )


def _steps(table: Tensor) -> tuple[int, int, int]:
    """Elements from one row to the next along B, H and S; 0 where all share the row."""
    steps = table.stride()
    if len(steps) == 2:
        return 0, 0, steps[0] if table.shape[0] > 1 else 0
    b, h, s, _ = table.shape
    return steps[0] if b > 1 else 0, steps[1] if h > 1 else 0, steps[2] if s > 1 else 0


_lock = threading.Lock()
_built: list[Callable[[Any], None]] = []


def _build() -> Callable[[Any], None]:
    """The loop, built once in a process."""
    with _lock:
        if not _built:
            loop = build(_SOURCE).rotate
            loop.argtypes, loop.restype = (ctypes.c_char_p,), None
            _built.append(loop)
    return _built[0]
