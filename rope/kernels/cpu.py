"""The rotation on a CPU: one loop in C, built at installation, or else the formula in blocks.

Chapter "Bytes, kernels, launches". The loop (`rotate.c`) reads each number once
and writes it once. Without it the formula goes through a block of the sequence at a time, so that
what lies between its operations stays in the cache. Both give the bits of `rope.kernels.formula`.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rope.checks import FLOATING
from rope.kernels.formula import formula

# The order of `rows` in the C file, by the dtype of the vectors and that of the arithmetic.
_DTYPES = {
    (torch.float32, torch.float32): 0,
    (torch.bfloat16, torch.float32): 1,
    (torch.float16, torch.float32): 2,
    (torch.float64, torch.float64): 3,
}
_WIDE = {  # of vectors and tables in these dtypes, that of the arithmetic
    pair: torch.promote_types(torch.promote_types(*pair), torch.float32)
    for pair in product(FLOATING, FLOATING)
}
_CALL = struct.Struct("39q")
_GRAIN = 1 << 15  # elements below which a second thread is not worth waking
_BLOCK = 1 << 19  # elements that stay in the cache while the formula's operations pass over them


def rotate_into(
    outs: Sequence[Tensor], xs: Sequence[Tensor], cos: Tensor, sin: Tensor, interleaved: bool
) -> None:
    """Write each of xs `[B, H, S, D]` rotated into its out, which is x itself or apart from it.

    cos, sin: `[S, R/2]`, or four axes that broadcast to `[B, H, S, R/2]`. Nothing is checked or
    recorded.

    >>> x, zero = torch.tensor([[[[1.0, 0.0]]]]), torch.zeros(1, 1)
    >>> rotate_into([x], [x], zero, zero + 1, interleaved=False)
    >>> x.flatten()
    tensor([0., 1.])
    """
    loop, _ = library()
    packed_for: torch.dtype | None = None
    of_tables: tuple[int, ...] = ()
    for x, out in zip(xs, outs, strict=True):
        if x.numel() == 0:  # of no heads, say, which no table of as many heads fits
            continue
        wide = _WIDE[x.dtype, cos.dtype]
        dtype, steps, out_steps = _DTYPES.get((x.dtype, wide)), x.stride(), out.stride()
        if loop is None or dtype is None or steps[3] != 1 or out_steps[3] != 1:
            in_blocks(x, out, cos, sin, interleaved)
            continue
        if wide is not packed_for:  # once for queries and keys
            # _tables: held, or their memory were free before the loop reads it
            packed_for, (_tables, of_tables) = wide, _packed(cos, sin, wide)
        threads = min(torch.get_num_threads(), x.numel() // _GRAIN) or 1
        vectors = x.data_ptr(), *x.shape, *steps, out.data_ptr(), *out.shape, *out_steps
        loop(_CALL.pack(dtype, interleaved, threads, *vectors, *of_tables))


def _packed(
    cos: Tensor, sin: Tensor, wide: torch.dtype
) -> tuple[tuple[Tensor, Tensor], tuple[int, ...]]:
    """The tables as the loop takes them, and `struct tensor` of the C file for both.

    The caller keeps the tables, or their memory would be free before the loop reads it. Tables of
    two axes are the same for all B and H.
    """
    if cos.dtype != wide:
        cos, sin = cos.to(wide), sin.to(wide)
    if cos.stride()[-1] != 1 or sin.stride()[-1] != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
    ones, zeros = ((1, 1), (0, 0)) if cos.dim() == 2 else ((), ())
    of_cos = cos.data_ptr(), *ones, *cos.shape, *zeros, *cos.stride()
    return (cos, sin), (*of_cos, sin.data_ptr(), *ones, *sin.shape, *zeros, *sin.stride())


def in_blocks(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> None:
    """One tensor by the formula, for a block of the sequence at a time; arguments as above.

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
    """The loop, or None; and how it works and where it is, or why it is not there."""
    candidates = [Path(__file__).with_name("rotate" + suffix) for suffix in EXTENSION_SUFFIXES]
    path = next((path for path in candidates if path.exists()), None)
    if path is None:
        source = Path(__file__).parents[2]
        if (source / "setup.py").exists():
            return None, f"it was not built in {source}, from which Python takes the package"
        return None, "it was not built when the package was installed, for want of a C compiler"
    try:
        loaded = ctypes.CDLL(str(path))
        call_bytes, threaded = (
            ctypes.c_int.in_dll(loaded, name).value for name in ("call_bytes", "threaded")
        )
    except (OSError, ValueError) as error:
        return None, f"it does not load ({error})"
    if call_bytes != _CALL.size:
        return None, f"it was built from another version of its source ({path})"
    loaded.rotate.argtypes, loaded.rotate.restype = (ctypes.c_char_p,), None
    threads = "on all threads" if threaded else "on one thread, for want of OpenMP"
    return loaded.rotate, f"{threads}: {path}"
