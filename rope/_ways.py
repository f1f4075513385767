"""What is done to one block: the formulas as few operations, each of which rounds as they do.

Chapter "As fast as memory allows", section on the CPU. With halves, two products over the whole
width and two sums that cross; with pairs, one product of complex numbers. Vectors narrower than
the arithmetic are widened before and rounded after.

Vectors are `[B, H, S, R]`; tables have four axes, `[B, H, S, R/2]` or 1 in place of B, H, S.
Shapes: B batch, H heads, S sequence, R rotated width.
"""

import math
import os
from collections.abc import Iterable, Sequence
from itertools import repeat

import torch
from torch import Tensor

from rope._formula import formula

_GRAIN = 1 << 15  # elements that torch gives to a thread, at least
_FEWER_THREADS = any(name in os.environ for name in ("OMP_THREAD_LIMIT", "OMP_DYNAMIC"))
_VECTOR = 16  # complex numbers that torch's loops take at a time, at most


def pieces(
    xs: Sequence[Tensor], tables: Sequence[Tensor], size: int, axis: int
) -> Iterable[tuple[Tensor, ...]]:
    """Vectors and tables cut alike along an axis, but for tables that all of it shares."""
    cut = [_cut(x, size, axis) for x in xs]
    rows = [_cut(t, size, axis) if t.shape[axis] > 1 else repeat(t) for t in tables]
    return zip(*cut, *rows, strict=False)


def _cut(x: Tensor, size: int, axis: int) -> Sequence[Tensor]:
    count = x.shape[axis]
    if count <= size:
        return (x,)
    if count % size:
        return x.split(size, axis)
    return x.unflatten(axis, (count // size, size)).unbind(axis)  # in less time than split takes


class _Scratch:
    """Memory in the dtype of the arithmetic, which all blocks use in turn."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.memory = torch.empty(0, dtype=dtype, device="cpu")
        self.made: dict[Sequence[int], tuple[Tensor, Tensor, Tensor]] = {}

    def shaped(self, shape: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """The whole, and views of its two halves."""
        found = self.made.get(shape)
        if found is None:
            count = math.prod(shape)
            if self.memory.numel() < count:  # the first one is nearly always the largest
                self.memory = self.memory.new_empty(count)
            whole = self.memory[:count].view(shape)
            first, second = whole.chunk(2, dim=3)
            found = self.made[shape] = whole, first, second
        return found


class Halves:
    """Plane j in coordinates (j, j + R/2).

    Products go along whole rows, which is what a CPU fetches ahead; the halves of the second one
    change places while they are added, in the cache.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.crossed, self.cos, self.sin = _Scratch(dtype), _Scratch(dtype), _Scratch(dtype)

    def tables(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        """Over the whole width: R/2 numbers, and again."""
        shape = (*cos.shape[:3], 2 * cos.shape[3])
        cos_twice, sin_twice = self.cos.shaped(shape)[0], self.sin.shaped(shape)[0]
        torch.cat((cos, cos), 3, out=cos_twice)
        torch.cat((sin, sin), 3, out=sin_twice)
        return cos_twice, sin_twice

    def turn(self, x: Tensor, out: Tensor, tables: Sequence[Tensor], some: int) -> None:
        """One block after another, of so many heads."""
        blocks = pieces((x, out, *out.chunk(2, dim=3)), tables, some, 1)
        for x_block, out_block, one, other, cos, sin in blocks:
            crossed, first, second = self.crossed.shaped(x_block.shape)
            torch.mul(x_block, sin, out=crossed)
            torch.mul(x_block, cos, out=out_block)
            one.sub_(second)
            other.add_(first)


class Widened:
    """The same by way of the dtype of the arithmetic, half by half: the tables stay as they are."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.crossed, self.wide = _Scratch(dtype), _Scratch(dtype)

    def tables(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        return cos, sin

    def turn(self, x: Tensor, out: Tensor, tables: Sequence[Tensor], some: int) -> None:
        for x_block, out_block, cos, sin in pieces((x, out), tables, some, 1):
            wide, one, other = self.wide.shaped(x_block.shape)
            _, first, second = self.crossed.shaped(x_block.shape)
            wide.copy_(x_block)
            torch.mul(one, sin, out=first)
            torch.mul(other, sin, out=second)
            one.mul_(cos).sub_(second)
            other.mul_(cos).add_(first)
            out_block.copy_(wide)


class Pairs:
    """Plane j in coordinates (2j, 2j+1): each is a complex number as it lies there."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.turns, self.wide = _Scratch(dtype), _Scratch(dtype)

    def tables(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        turns = _as_complex(self.turns.shaped((*cos.shape[:3], 2 * cos.shape[3]))[0])
        return (torch.complex(cos, sin, out=turns),)

    def turn(self, x: Tensor, out: Tensor, tables: Sequence[Tensor], some: int) -> None:
        rest, dtype = x.shape[1] // some * some, self.wide.memory.dtype
        exact = all(rounds_each(block) for block in (x[:, :some], x[:, rest:]))
        direct = exact and are_complex(x, out, dtype)
        if direct:
            x, out = _as_complex(x), _as_complex(out)
        for x_block, out_block, turns in pieces((x, out), tables, some, 1):
            if direct:
                torch.mul(x_block, turns, out=out_block)
            elif exact:
                wide = self.wide.shaped(x_block.shape)[0]
                _as_complex(wide.copy_(x_block)).mul_(turns)
                out_block.copy_(wide)
            else:
                out_block.copy_(formula(x_block, turns.real, turns.imag, True))


def rounds_each(x: Tensor) -> bool:
    """Whether torch multiplies all these complex numbers with each product and sum rounded.

    Its loops over whole vectors do; what is left over at the end of a row, or of a thread's part,
    goes through code that compilers turn into fused multiply-adds, which round once less. The
    other factor's last axis must be dense. Where OpenMP may give fewer threads than it is asked
    for, all that it may give are looked at.

    >>> rounds_each(torch.ones(1, 8, 1, 64)), rounds_each(torch.ones(1, 8, 1, 6))
    (True, False)
    """
    planes, count = x.shape[3] // 2, x.numel() // 2
    threads = min(torch.get_num_threads(), -(-count // _GRAIN))
    given = range(1, threads + 1) if _FEWER_THREADS else (max(1, threads),)
    return planes % _VECTOR == 0 and all(-(-count // n) % _VECTOR == 0 for n in given)


def are_complex(x: Tensor, out: Tensor, dtype: torch.dtype) -> bool:
    """Whether pairs of numbers lie so that they can be read as complex ones."""
    for t in (x, out):
        steps = t.stride()
        if t.dtype != dtype or steps[3] != 1:
            return False
        if any(n % 2 for n in (t.storage_offset(), *steps[:3])):
            return False
    return True


def _as_complex(x: Tensor) -> Tensor:
    return x.view(torch.complex64 if x.dtype == torch.float32 else torch.complex128)
