"""The two formulas compiled for a CPU, so that each element is read once and written once.

Chapter "As fast as memory allows", section on the CPU. torch.compile makes one loop of the
formulas only where it can write each result straight to its place. Two things keep it from that:
halves of one tensor count as one piece of memory that may overlap, and a copy back into a tensor
without gaps is one long loop, which does not fit the loop over heads that reads the tables. So
the halves go in as tensors of their own, and in parts between which there are gaps.

Pairs that lie side by side are read as one integer: loops over vectors take those, and would take
every second number one by one.

Tables have four axes, `[B, H, S, R/2]` or 1 in place of B, H, S, in the dtype of the arithmetic;
the sine has the sign of the direction.
Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import platform
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from rope._blocks import are_complex
from rope._blocks import rotate as in_blocks
from rope._formula import formula, split, storage_order, turn
from rope._pages import fresh_like

# Elements up to which the blocks are as quick; the compiler keeps few variants, and one is spent on
# each kind of shape. And those up to which a second call costs more than what is gained by it.
_SMALL, _ONE_CALL = 1 << 16, 1 << 18
_LOW, _HIGH = (1 << 16) - 1, -1 << 16


@torch.no_grad()  # one mode for all calls: compiled code is kept apart for each
def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, out: Tensor | None) -> Tensor:
    """As `rope._blocks.rotate`, to the rounding of a product that is added without its own.

    Nothing is recorded for autograd.
    """
    if x.numel() <= _SMALL:
        return in_blocks(x, cos, sin, interleaved, out)
    if out is None:
        out = fresh_like(x)
    width = 2 * cos.shape[3]
    if width < x.shape[3] and out is not x:
        out[..., width:].copy_(x[..., width:])
    result = out[..., :width]
    source = result if out is x else x[..., :width]
    if interleaved:
        _rotate_pairs(source, result, cos, sin)
    elif storage_order(x)[3] == 3:
        _rotate_halves(source, result, cos, sin)
    else:
        _compiled(_plainly)(source, result, cos, sin, False)
    return out


def _rotate_pairs(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor) -> None:
    integers = _INTEGERS.get((x.dtype, cos.dtype)) if sys.byteorder == "little" else None
    if integers is None or not (are_complex(x) and are_complex(out)):
        _compiled(_plainly)(x, out, cos, sin, True)
        return
    dtype, pairs = integers
    result = out.view(dtype)
    source = result if out is x else x.view(dtype)
    _compiled(pairs, short=True)(source, result, cos, sin)


def _rotate_halves(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor) -> None:
    halves = _compiled(_halves)
    width = x.shape[3]
    for part in _parts(x):
        place = [_apart(half) for half in split(out[part], width, 3, False)]
        given = place if out is x else [_apart(half) for half in split(x[part], width, 3, False)]
        rows = [
            t[tuple(p if n > 1 else slice(None) for p, n in zip(part, t.shape, strict=False))]
            for t in (cos, sin)
        ]
        halves(*given, *place, *rows)
    torch.autograd.graph.increment_version(out)  # nobody has seen the writing


def _parts(x: Tensor) -> Iterator[tuple[slice, ...]]:
    """Slices of the first three axes that halve the innermost one, and with a batch the next."""
    inner = storage_order(x)[2::-1][: 2 if x.shape[0] > 1 else 1]
    parts: list[tuple[slice, ...]] = [(slice(None),) * 3]
    for axis in inner if x.numel() > _ONE_CALL else ():
        middle = x.shape[axis] // 2
        if middle:
            parts = [
                (*part[:axis], here, *part[axis + 1 :])
                for part in parts
                for here in (slice(0, middle), slice(middle, None))
            ]
    return iter(parts)


def _apart(x: Tensor) -> Tensor:
    """The same memory, as a tensor that torch does not know to share it."""
    return from_dlpack(x.detach())


def _plainly(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> None:
    out.copy_(formula(x, cos, sin, interleaved))


def _halves(
    first: Tensor, second: Tensor, to_first: Tensor, to_second: Tensor, cos: Tensor, sin: Tensor
) -> None:
    one, two = turn(first, second, cos, sin)
    to_first.copy_(one)
    to_second.copy_(two)


def _pairs_32(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Two float32 in one int64."""
    first = x.to(torch.int32).view(torch.float32)
    second = (x >> 32).to(torch.int32).view(torch.float32)
    one, two = (t.view(torch.int32).long() for t in turn(first, second, cos, sin))
    out.copy_((two << 32) | (one & 0xFFFFFFFF))


def _pairs_16(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Two bfloat16, which are the upper halves of float32, in one int32."""
    first, second = (x << 16).view(torch.float32), (x & _HIGH).view(torch.float32)
    one, two = (_rounded(t) for t in turn(first, second, cos, sin))
    out.copy_((two & _HIGH) | ((one >> 16) & _LOW))


def _rounded(x: Tensor) -> Tensor:
    """The bits of float32 whose upper half is that of the nearest bfloat16, ties to even."""
    bits = x.view(torch.int32)
    return torch.where(x != x, bits | 0x400000, bits + (0x7FFF + ((bits >> 16) & 1)))


_INTEGERS = {
    (torch.float32, torch.float32): (torch.int64, _pairs_32),
    (torch.bfloat16, torch.float32): (torch.int32, _pairs_16),
}


@cache
def _compiled(function: Callable[..., None], short: bool = False) -> Callable[..., Any]:
    """short: vectors of 256 bits, where a change of type by way of memory does not wait."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    options: dict[str, Any] | None = {"cpp.simdlen": 256} if short and x86 else None
    return torch.compile(function, dynamic=True, options=options)
