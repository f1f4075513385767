"""Rotate on a CPU with one loop in C, built at installation, or with the formula in blocks.

See the chapter "Bytes and kernels". The loop (`rotate.c`) reads and writes each number only once.
Without the loop, the formula works on one block of the sequence at a time, so that intermediate
results stay in the cache. In both cases, the results match `rope.kernels.formula` bit for bit.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import ctypes
import math
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rope.kernels.formula import formula, rows_of
from rope.positions import check_positions_in_table

# Maps the dtypes of the vectors and of the tables to an index in `row_functions` of rotate.c.
_DTYPES = {
    (torch.float32, torch.float32): 0,
    (torch.bfloat16, torch.float32): 1,
    (torch.float16, torch.float32): 2,
    (torch.float64, torch.float64): 3,
}
_NO_IDS: tuple[int, ...] = ()
_GRAIN = 1 << 15  # the fewest elements per thread; waking a thread for fewer takes too long
_BLOCK = 1 << 19  # elements per block; a block this small stays in the cache between operations


class _Axes(ctypes.Structure):
    """Mirror `struct axes` of rotate.c: the sizes and strides of a tensor `[B, H, S, last]`."""

    _fields_ = (("size", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4))


class _CallSpec(ctypes.Structure):
    """Mirror `struct call_spec` of rotate.c: everything about a call except its addresses."""

    _fields_ = (
        ("dtype", ctypes.c_int64),
        ("interleaved", ctypes.c_int64),
        ("inverse", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("x", _Axes),
        ("out", _Axes),
        ("cos", _Axes),
        ("sin", _Axes),
        ("ids", _Axes),
    )


@lru_cache(maxsize=1024)
def _call_spec(
    dtypes: tuple[torch.dtype, ...], flags: tuple[int, ...], *axes: tuple[int, ...]
) -> _CallSpec | None:
    """Return the struct for a call, or None if the loop can't rotate these tensors.

    dtypes: the dtypes of x and cos. flags: interleaved, inverse, and torch's number of threads.
    axes: the sizes of x, cos, and the ids, then the strides of x, out, cos, sin, and the ids.
    Tables with two axes apply to every sequence and head. Calls with equal arguments share one
    struct. The loop only reads the struct, so several threads can use it at once.
    """
    (x, rows, ids), strides = axes[:3], axes[3:]
    if dtypes not in _DTYPES or strides[0][3] != 1 or strides[1][3] != 1:
        return None
    interleaved, inverse, threads = flags
    threads = min(threads, math.prod(x) // _GRAIN) or 1
    int64s, each_axes = ctypes.c_int64 * 4, []
    for size, stride in zip((x, x, rows, rows, ids), strides, strict=True):
        missing = 4 - len(size)
        each_axes.append(_Axes(int64s(*(1,) * missing, *size), int64s(*(0,) * missing, *stride)))
    return _CallSpec(_DTYPES[dtypes], interleaved, inverse, threads, *each_axes)


def rotate_into(
    outs: Sequence[Tensor],
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: bool,
    inverse: bool = False,
) -> None:
    """Rotate each x `[B, H, S, D]` in xs, and write the results to outs, which may be xs.

    cos, sin: `[N, R/2]` with position_ids `[S]` or `[B, S]`; otherwise `[S, R/2]`, or four axes
    that broadcast to `[B, H, S, R/2]`. The caller must check the shapes. Autograd records nothing.
    Raises ValueError for a position outside the tables, before writing anything.

    >>> x, zero = torch.tensor([[[[1.0, 0.0]]]]), torch.zeros(1, 1)
    >>> rotate_into([x], [x], zero, zero + 1, interleaved=False)
    >>> x.flatten()
    tensor([0., 1.])
    """
    loop, _ = library()
    if cos.dtype.itemsize == 2:
        cos, sin = cos.float(), sin.float()
    if cos.stride(-1) != 1 or sin.stride(-1) != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
    address, ids_size, ids_stride = 0, _NO_IDS, _NO_IDS
    if position_ids is not None:
        position_ids = position_ids.long()
        size, stride = position_ids.shape, position_ids.stride()  # the loop needs [B, 1, S, 1]
        ids_size, ids_stride = (*size[:-1], 1, size[-1], 1), (*stride[:-1], 0, stride[-1], 0)
        address = position_ids.data_ptr()
    strides = cos.stride(), sin.stride(), ids_stride
    flags = interleaved, inverse, torch.get_num_threads()
    for x, out in zip(xs, outs, strict=True):
        axes = x.shape, cos.shape, ids_size, x.stride(), out.stride(), *strides
        call = _call_spec((x.dtype, cos.dtype), flags, *axes)
        if loop is not None and call is not None:
            done = loop(x.data_ptr(), out.data_ptr(), cos.data_ptr(), sin.data_ptr(), address, call)
            if not done and position_ids is not None:
                check_positions_in_table(position_ids, len(cos))  # raises ValueError
        elif x.numel():  # skip an x without heads, because tables per head don't fit it
            c, s = cos, -sin if inverse else sin
            if position_ids is not None:
                check_positions_in_table(position_ids, len(cos))
                c, s = rows_of(c, s, position_ids)
            in_blocks(x, out, c, s, interleaved)


def in_blocks(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> None:
    """Rotate x into out with the formula, one block of the sequence at a time.

    x, out, cos, sin: tensors that `rotate_into` accepts without position_ids.
    """
    step = max(1, _BLOCK * x.shape[2] // max(x.numel(), 1))
    for start in range(0, x.shape[2], step):
        block = slice(start, start + step)
        cos_s, sin_s = (t if t.shape[-2] == 1 else t[..., block, :] for t in (cos, sin))
        out[:, :, block].copy_(formula(x[:, :, block], cos_s, sin_s, interleaved))


@cache
def library() -> tuple[Any, str]:
    """Return the loop in C and a note on its threads and path, or None and why it is missing."""
    candidates = [Path(__file__).with_name("rotate" + suffix) for suffix in EXTENSION_SUFFIXES]
    path = next((path for path in candidates if path.exists()), None)
    if path is None:
        return None, f"it was not built in {Path(__file__).parent}"
    try:
        loaded = ctypes.CDLL(str(path))
        call_spec_bytes, threaded = (
            ctypes.c_int.in_dll(loaded, name).value for name in ("call_spec_bytes", "threaded")
        )
    except (OSError, ValueError) as error:
        return None, f"it does not load ({error})"
    if call_spec_bytes != ctypes.sizeof(_CallSpec):
        return None, f"it was built from another version of its source ({path})"
    loaded.rotate.argtypes = (*(ctypes.c_void_p,) * 5, ctypes.POINTER(_CallSpec))
    threads = "on all threads" if threaded else "on one thread, because OpenMP is missing"
    return loaded.rotate, f"{threads}: {path}"
