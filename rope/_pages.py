"""New memory for results: in the order of the input, and in large pages where it is large.

Chapter "As fast as memory allows", section on the CPU. The C library takes large blocks, from 32
MiB on nearly always, from the operating system afresh each time, and the first write to each 4 KiB
page of them stops for the system to clear that page. Asked to, Linux clears 2 MiB at once.
"""

import ctypes
import mmap
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from rope._formula import storage_order

_LARGE = 8 << 20  # bytes from which it is worth asking
_HUGE = 2 << 20
_GRAIN = 1 << 15  # elements to a thread, at least


def fresh_like(x: Tensor, together: bool = False) -> Tensor:
    """Unwritten memory for a result of x's shape, dtype and device, dense and in x's order.

    together: have all threads clear large pages now, for results written in many small operations,
    in each of which one thread's new page keeps the others waiting.

    >>> x = torch.ones(2, 3, 5, 8).transpose(1, 2)
    >>> fresh_like(x).stride() == x.stride()
    True
    """
    strides, step = [0] * 4, 1
    for axis in reversed(storage_order(x)):
        strides[axis], step = step, step * max(1, x.shape[axis])
    # Not a permuted view of another tensor, which autograd would take for one.
    made = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
    if made.numel() * made.element_size() >= _LARGE and made.device.type == "cpu":
        _advise(made, together)
    return made


def _advise(x: Tensor, together: bool) -> None:
    """Ask for large pages; it is advice, and without an answer all works as before."""
    advise = _madvise()
    if advise is None:
        return
    size = x.element_size()
    start = -(-x.data_ptr() // _HUGE) * _HUGE
    pages = (x.data_ptr() + x.numel() * size - start) // _HUGE
    if pages < 1 or advise(start, pages * _HUGE, mmap.MADV_HUGEPAGE) or not together:
        return
    # So many elements of each page that torch gives every thread its share of the pages.
    first, each = (start - x.data_ptr()) // size, _HUGE // size
    some = min(each, -(-_GRAIN * torch.get_num_threads() // pages))
    memory = x.as_strided((x.numel(),), (1,))
    memory[first : first + pages * each].view(pages, each)[:, :some].zero_()


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
