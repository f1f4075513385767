"""The two formulas compiled for a CPU, so that each element is read once and written once.

Chapter "As fast as memory allows", section on the CPU. The loop is in `rope/kernels/rotate.c`; it
is built by the first call in a process, which takes a second, and gives the bits of the eager path
with no memory beside the result.

Tables are `[S, R/2]`, or have four axes, `[B, H, S, R/2]` or 1 in place of B, H, S; they have the
dtype of the arithmetic, and the sine the sign of the direction.
Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
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
    """As `rope._blocks.rotate`, to the bit, but for the bits of NaN; what has no rows goes there.

    Nothing is recorded for autograd. Raises RuntimeError where there is no C compiler, or it fails.
    """
    return _rotated(x, _Tables(cos, sin), interleaved, out)


def rotate_all(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
    outs: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """The same for queries and keys of one dtype, for which the tables are looked at once."""
    _loop()  # before anything is written: the build may fail
    tables = _Tables(cos, sin)
    into = (None,) * len(xs) if outs is None else outs
    return [_rotated(x, tables, interleaved, out) for x, out in zip(xs, into, strict=True)]


class _Tables:
    """What `struct call` holds of the tables: found once for queries and keys."""

    __slots__ = ("cos", "dtype", "places", "planes", "sin", "steps")

    def __init__(self, cos: Tensor, sin: Tensor) -> None:
        # Held here until the loop is done, since they may have been made here.
        self.cos, self.sin = (t if t.stride(-1) == 1 else t.contiguous() for t in (cos, sin))
        self.dtype, self.planes = cos.dtype, cos.shape[-1]
        self.places = self.cos.data_ptr(), self.sin.data_ptr()
        self.steps = _steps(self.cos), _steps(self.sin)


def _steps(table: Tensor) -> tuple[int, int, int]:
    """Bytes from one row to the next along B, H and S; 0 where all share the row."""
    steps, size = table.stride(), table.element_size()
    if len(steps) == 2:
        return 0, 0, steps[0] * size if table.shape[0] > 1 else 0
    b, h, s, _ = (step * size if n > 1 else 0 for step, n in zip(steps, table.shape, strict=True))
    return b, h, s


def _rotated(x: Tensor, tables: _Tables, interleaved: bool, out: Tensor | None) -> Tensor:
    dtype, strides = _DTYPES.get((x.dtype, tables.dtype)), x.stride()
    a, b, c, last = storage_order(x)
    rows = last == 3 and strides[3] == 1 and (out is None or out.stride(3) == 1)
    if dtype is None or not rows:
        return in_blocks(x, tables.cos, tables.sin, interleaved, out)
    loop = _loop()
    made = fresh_like(x) if out is None else out
    shape, size, to = x.shape, x.element_size(), made.stride()
    count, width = x.numel(), 2 * tables.planes * size
    if count:
        cosine, sine = tables.steps
        loop(
            _CALL.pack(
                *(dtype, interleaved, min(torch.get_num_threads(), count // _GRAIN) or 1),
                *(tables.planes, width, shape[3] * size - width),
                *(shape[a], shape[b], shape[c]),
                *(x.data_ptr(), *tables.places, made.data_ptr()),
                *(size * strides[a], size * strides[b], size * strides[c]),
                *(cosine[a], cosine[b], cosine[c], sine[a], sine[b], sine[c]),
                *(size * to[a], size * to[b], size * to[c]),
            )
        )
    if out is not None and not out.is_inference():
        torch.autograd.graph.increment_version(out)  # torch has not seen the writing
    return made


def _loop() -> Callable[[Any], None]:
    return _built[0] if _built else _build()


_lock = threading.Lock()
_built: list[Callable[[Any], None]] = []
_failed: list[str] = []  # a compiler that fails is not asked again


def _build() -> Callable[[Any], None]:
    """The loop, built once in a process."""
    with _lock:
        if _failed:
            raise RuntimeError(_failed[0])
        if not _built:
            try:
                loop = build(_SOURCE).rotate
            except RuntimeError as error:
                _failed.append(str(error))
                raise
            loop.argtypes, loop.restype = (ctypes.c_char_p,), None
            _built.append(loop)
    return _built[0]
