"""New memory for results: in the order of the input, and in large pages where it is large.

Chapter "As fast as memory allows", section on the CPU. The C library takes blocks of more than 32
MiB from the operating system afresh each time, and the first write to each 4 KiB page of them stops
for the system to clear that page. Asked to, Linux clears 2 MiB at once.
"""

import ctypes
import mmap
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from rope._formula import storage_order

_LARGE = 32 << 20  # bytes from which glibc's malloc always asks the system
_HUGE = 2 << 20


def fresh_like(x: Tensor) -> Tensor:
    """Unwritten memory for a result of x's shape, dtype and device, dense and in x's order.

    >>> x = torch.ones(2, 3, 5, 8).transpose(1, 2)
    >>> fresh_like(x).stride() == x.stride()
    True
    """
    order = storage_order(x)
    shape = [x.shape[axis] for axis in order]
    made = torch.empty(shape, dtype=x.dtype, device=x.device)
    if made.device.type == "cpu" and made.numel() * made.element_size() >= _LARGE:
        _advise(made)
    return made.permute([order.index(axis) for axis in range(4)])


def _advise(x: Tensor) -> None:
    """Ask for large pages; it is advice, and without an answer all works as before."""
    advise = _madvise()
    if advise is None:
        return
    start = -(-x.data_ptr() // _HUGE) * _HUGE
    length = (x.data_ptr() + x.numel() * x.element_size() - start) // _HUGE * _HUGE
    if length > 0:
        advise(start, length, mmap.MADV_HUGEPAGE)


def _find() -> Callable[[int, int, int], int] | None:
    if not sys.platform.startswith("linux") or not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    try:
        found = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):  # a C library without it
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return found


_MADVISE: list[Callable[[int, int, int], int] | None] = []


def _madvise() -> Callable[[int, int, int], int] | None:
    """The C library's madvise, looked for once."""
    if not _MADVISE:
        _MADVISE.append(_find())
    return _MADVISE[0]
