"""Rotate on a CPU: with one loop in C, built at installation, or with the formula in blocks.

See the chapter "Bytes and kernels". The loop (`rotate.c`) reads and writes each number only once.
Without the loop, the formula works on one block of the sequence at a time, so that intermediate
results stay in the cache. In both cases, the results match `rope.kernels.formula` bit for bit.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rope.checks import FLOATING
from rope.kernels.formula import formula, rows_of
from rope.positions import check_positions_in_table

# The index in `row_functions` of rotate.c, by (dtype of the vectors, dtype of the arithmetic).
_DTYPES = {
    (torch.float32, torch.float32): 0,
    (torch.bfloat16, torch.float32): 1,
    (torch.float16, torch.float32): 2,
    (torch.float64, torch.float64): 3,
}
_WIDE = {  # the dtype of the arithmetic for each pair (dtype of the vectors, dtype of the tables)
    pair: torch.promote_types(torch.promote_types(*pair), torch.float32)
    for pair in product(FLOATING, FLOATING)
}
_NO_IDS: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # sizes and strides
_GRAIN = 1 << 15  # the fewest elements per thread; waking a thread for fewer takes too long
_BLOCK = 1 << 19  # block size in elements; blocks stay in the cache from operation to operation


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
def _call_spec(flags: tuple[int, ...], *axes: tuple[int, ...]) -> _CallSpec:
    """Return the struct for a call; calls with equal arguments share one struct.

    flags: dtype, interleaved, inverse, threads. axes: the sizes of x, the strides of x, and so on
    for out, cos, sin, and the ids. Tables with two axes apply to every sequence and head. The loop
    only reads the struct, so several threads can use it at once.
    """
    int64s, each_axes = ctypes.c_int64 * 4, []
    for size, stride in zip(axes[::2], axes[1::2], strict=True):
        missing = 4 - len(size)
        each_axes.append(_Axes(int64s(*(1,) * missing, *size), int64s(*(0,) * missing, *stride)))
    return _CallSpec(*flags, *each_axes)


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
    """Rotate each x `[B, H, S, D]` in xs, and write the result to its out, which may be x itself.

    cos, sin: `[N, R/2]` with position_ids `[S]` or `[B, S]`; otherwise `[S, R/2]`, or four axes
    that broadcast to `[B, H, S, R/2]`. Shapes aren't checked, and autograd records nothing.
    Raises ValueError for a position outside the tables, before anything is written.

    >>> x, zero = torch.tensor([[[[1.0, 0.0]]]]), torch.zeros(1, 1)
    >>> rotate_into([x], [x], zero, zero + 1, interleaved=False)
    >>> x.flatten()
    tensor([0., 1.])
    """
    loop, _ = library()
    if cos.stride(-1) != 1 or sin.stride(-1) != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
    address, of_ids = 0, _NO_IDS
    if position_ids is not None:
        position_ids = position_ids.long()
        size, stride = position_ids.shape, position_ids.stride()  # [S], or [B, S] as [B, 1, S, 1]
        of_ids = ((*size[:-1], 1, size[-1], 1), (*stride[:-1], 0, stride[-1], 0))
        address = position_ids.data_ptr()
    for x, out in zip(xs, outs, strict=True):
        elements = x.numel()
        if elements == 0:  # skip an x without heads, because tables per head don't fit it
            continue
        wide = _WIDE[x.dtype, cos.dtype]
        dtype, stride, out_stride = _DTYPES.get((x.dtype, wide)), x.stride(), out.stride()
        if loop is None or dtype is None or stride[3] != 1 or out_stride[3] != 1:
            c, s = cos, sin
            if position_ids is not None:
                check_positions_in_table(position_ids, len(cos))
                c, s = rows_of(cos, sin, position_ids)
            in_blocks(x, out, c, -s if inverse else s, interleaved)
            continue
        c, s = (cos, sin) if cos.dtype == wide else (cos.to(wide), sin.to(wide))
        threads = min(torch.get_num_threads(), elements // _GRAIN) or 1
        flags, size, rows = (dtype, interleaved, inverse, threads), x.shape, c.shape
        strides = (size, stride, size, out_stride, rows, c.stride(), rows, s.stride())
        call = _call_spec(flags, *strides, *of_ids)
        done = loop(x.data_ptr(), out.data_ptr(), c.data_ptr(), s.data_ptr(), address, call)
        if not done and position_ids is not None:
            check_positions_in_table(position_ids, len(cos))  # raises ValueError


def in_blocks(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> None:
    """Rotate x into out with the formula, one block of the sequence at a time.

    x, out, cos, sin: as in `rotate_into` without position_ids.

    >>> x, zero = torch.tensor([[[[1.0, 0.0]]]]), torch.zeros(1, 1)
    >>> in_blocks(x, x, zero, zero + 1, interleaved=False)
    >>> x.flatten()
    tensor([0., 1.])
    """
    step = max(1, _BLOCK * x.shape[2] // max(x.numel(), 1))
    for start in range(0, x.shape[2], step):
        block = slice(start, start + step)
        cos_s, sin_s = (t if t.shape[-2] == 1 else t[..., block, :] for t in (cos, sin))
        out[:, :, block].copy_(formula(x[:, :, block], cos_s, sin_s, interleaved))


@cache
def library() -> tuple[Any, str]:
    """Return the loop in C and a note on its threads and path, or None and why it is absent."""
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
