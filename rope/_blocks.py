"""The two formulas for a CPU: in blocks that stay in its cache, into memory that exists.

Chapter "As fast as memory allows", section on the CPU. Written as operations on whole tensors, a
rotation reads and writes main memory in each of them. In blocks the first operations read from
there and the last result goes back, and what lies between stays in the cache.

Tables have four axes, `[B, H, S, R/2]` or 1 in place of B, H, S, in the dtype of the arithmetic;
the sine has the sign of the direction.
Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from contextlib import nullcontext
from itertools import repeat

import torch
from torch import Tensor

from rope._formula import formula, storage_order
from rope._pages import fresh_like

# Elements: a chunk of the sequence in one head, and a block for each thread. Torch gives no thread
# fewer than _GRAIN elements, and many times that no longer fit its own cache.
_CHUNK = 1 << 15
_CHUNK_WIDENED = 31 << 10  # two pieces of scratch, which together stay below 2^20 bytes a thread
_BLOCK = 1 << 16
_GRAIN = 1 << 15
# Operations and views that autograd does not look at start sooner, and here are hundreds of them.
_below_autograd = getattr(torch._C, "_AutoDispatchBelowADInplaceOrView", nullcontext)
_VECTOR = 16  # complex numbers that torch's loops take at a time, at most


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, out: Tensor | None) -> Tensor:
    """x rotated, written into out (which may be x), or into new memory in x's own order.

    Nothing is recorded for autograd. The bits are those of `rope._formula.formula`.

    >>> x, quarter = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.zeros(1, 1, 1, 1)
    >>> rotate(x, quarter, quarter + 1, False, out=x) is x, x.flatten().tolist()
    (True, [0.0, 1.0])
    """
    if out is None:
        out = fresh_like(x, together=True)
    if storage_order(x)[3] != 3 or not x.numel():  # coordinates far apart: no rows to work on
        return out.copy_(formula(x, cos, sin, interleaved))
    try:
        with _below_autograd():
            _rotate(x, out, cos, sin, interleaved)
    finally:
        if not out.is_inference():
            torch.autograd.graph.increment_version(out)  # below autograd nobody counts the writing
    return out


def _rotate(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> None:
    batch, heads, length, head_dim = x.shape
    width = 2 * cos.shape[3]
    if width < head_dim and out is not x:
        out[..., width:].copy_(x[..., width:])
    widened = x.dtype != cos.dtype and not interleaved
    rows = min(length, max(1, (_CHUNK_WIDENED if widened else _CHUNK) // width))
    block = _BLOCK * torch.get_num_threads()
    some = min(heads, max(1, block // (rows * width)))
    several = max(1, block // (some * rows * width))
    turn = (_Pairs if interleaved else _Widened if widened else _Halves)(cos.dtype)
    x, result = x[..., :width], out[..., :width]
    for b in range(0, batch, several):
        here = slice(b, b + several)
        x_b, out_b = x[here], result[here]
        cos_b, sin_b = (t[here] if t.shape[0] > 1 else t for t in (cos, sin))
        for s in range(0, length, rows):
            now = slice(s, s + rows)
            cos_s, sin_s = (t[:, :, now] if t.shape[2] > 1 else t for t in (cos_b, sin_b))
            turn(x_b[:, :, now], out_b[:, :, now], cos_s, sin_s, some)


class _Scratch:
    """Memory in the dtype of the arithmetic, which all blocks use in turn."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.memory = torch.empty(0, dtype=dtype, device="cpu")
        self.made: dict[torch.Size, tuple[Tensor, Tensor, Tensor]] = {}

    def like(self, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The whole, and views of its two halves."""
        found = self.made.get(block.shape)
        if found is None:
            if self.memory.numel() < block.numel():  # the first block is the largest
                self.memory = self.memory.new_empty(block.numel())
            whole = self.memory[: block.numel()].view(block.shape)
            first, second = whole.chunk(2, dim=3)
            found = self.made[block.shape] = whole, first, second
        return found


def _each(tables: Tensor, some: int) -> "repeat[Tensor] | tuple[Tensor, ...]":
    """The tables of each group of heads, the same ones for all unless heads have their own."""
    return repeat(tables) if tables.shape[1] == 1 else tables.split(some, dim=1)


def _twice(tables: Tensor, some: int) -> "repeat[Tensor] | tuple[Tensor, ...]":
    """Over the whole width."""
    return _each(torch.cat((tables, tables), 3), some)


class _Halves:
    """Plane j in coordinates (j, j + R/2).

    Products go along whole rows, which is what a CPU fetches ahead; the halves of the second one
    change places while they are added, in the cache.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.crossed = _Scratch(dtype)

    def __call__(self, x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, some: int) -> None:
        blocks = (t.split(some, 1) for t in (x, out, *out.chunk(2, dim=3)))
        tables = _twice(cos, some), _twice(sin, some)
        for x_block, out_block, one, other, cosines, sines in zip(*blocks, *tables, strict=False):
            crossed, first, second = self.crossed.like(x_block)
            torch.mul(x_block, sines, out=crossed)
            torch.mul(x_block, cosines, out=out_block)
            one.sub_(second)
            other.add_(first)


class _Widened:
    """The same by way of the dtype of the arithmetic, half by half: the tables stay as they are."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.crossed, self.wide = _Scratch(dtype), _Scratch(dtype)

    def __call__(self, x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, some: int) -> None:
        tables = _each(cos, some), _each(sin, some)
        blocks = zip(x.split(some, 1), out.split(some, 1), *tables, strict=False)
        for x_block, out_block, cosines, sines in blocks:
            wide, one, other = self.wide.like(x_block)
            _, first, second = self.crossed.like(x_block)
            wide.copy_(x_block)
            torch.mul(one, sines, out=first)
            torch.mul(other, sines, out=second)
            one.mul_(cosines).sub_(second)
            other.mul_(cosines).add_(first)
            out_block.copy_(wide)


class _Pairs:
    """Plane j in coordinates (2j, 2j+1): each is a complex number as it lies there."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.wide = _Scratch(dtype)

    def __call__(self, x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, some: int) -> None:
        if not all(
            rounds_each(block) for block in (x[:, :some], x[:, x.shape[1] // some * some :])
        ):
            tables = (_each(table, some) for table in (cos, sin))
            for x_block, out_block, cosines, sines in zip(
                x.split(some, 1), out.split(some, 1), *tables, strict=False
            ):
                out_block.copy_(formula(x_block, cosines, sines, True))
            return
        direct = x.dtype == cos.dtype and are_complex(x) and are_complex(out)
        if direct:
            x, out = _as_complex(x), _as_complex(out)
        turns = _each(torch.complex(cos, sin), some)
        for x_block, out_block, turn in zip(
            x.split(some, 1), out.split(some, 1), turns, strict=False
        ):
            if direct:
                torch.mul(x_block, turn, out=out_block)
            else:
                wide = self.wide.like(x_block)[0]
                _as_complex(wide.copy_(x_block)).mul_(turn)
                out_block.copy_(wide)


def rounds_each(x: Tensor) -> bool:
    """Whether torch multiplies all these complex numbers with each product and sum rounded.

    Its loops over whole vectors do; what is left over at the end of a row, or of a thread's part,
    goes through code that compilers turn into fused multiply-adds, which round once less.

    >>> rounds_each(torch.ones(1, 8, 1, 64)), rounds_each(torch.ones(1, 8, 1, 6))
    (True, False)
    """
    planes, count = x.shape[3] // 2, x.numel() // 2
    threads = min(torch.get_num_threads(), -(-count // _GRAIN))
    return planes % _VECTOR == 0 and -(-count // max(1, threads)) % _VECTOR == 0


def are_complex(x: Tensor) -> bool:
    """Whether pairs of numbers lie so that they can be read as complex ones."""
    steps = x.stride()
    return steps[3] == 1 and not any(n % 2 for n in (x.storage_offset(), *steps[:3]))


def _as_complex(x: Tensor) -> Tensor:
    return x.view(torch.complex64 if x.dtype == torch.float32 else torch.complex128)
