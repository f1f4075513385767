"""The two formulas for a CPU: in blocks that stay in its cache, into memory that exists.

Chapter "As fast as memory allows", section on the CPU. Written as operations on whole tensors, a
rotation reads and writes main memory in each of them. In blocks the first operations read from
there and the last result goes back, and what lies between stays in the cache.

Tables have four axes, `[B, H, S, R/2]` or 1 in place of B, H, S, in the dtype of the arithmetic;
the sine has the sign of the direction.
Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from itertools import repeat

import torch
from torch import Tensor

from rope._formula import formula, storage_order
from rope._pages import fresh_like

# Elements: a chunk of the sequence in one head, and a block for each thread. Torch gives no thread
# fewer than _GRAIN elements, and many times that no longer fit its own cache.
_CHUNK = 1 << 15
_BLOCK = 1 << 16
_GRAIN = 1 << 15
_VECTOR = 16  # complex numbers that torch's loops take at a time, at most


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, out: Tensor | None) -> Tensor:
    """x rotated, written into out (which may be x), or into new memory in x's own order.

    Nothing is recorded for autograd. The bits are those of `rope._formula.formula`.

    >>> x, quarter = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.zeros(1, 1, 1, 1)
    >>> rotate(x, quarter, quarter + 1, False, out=x) is x, x.flatten().tolist()
    (True, [0.0, 1.0])
    """
    if out is None:
        out = fresh_like(x)
    if storage_order(x)[3] != 3 or not x.numel():  # coordinates far apart: no rows to work on
        return out.copy_(formula(x, cos, sin, interleaved))
    batch, heads, length, head_dim = x.shape
    width = 2 * cos.shape[3]
    if width < head_dim and out is not x:
        out[..., width:].copy_(x[..., width:])
    rows = min(length, max(1, _CHUNK // width))
    block = _BLOCK * torch.get_num_threads()
    some = min(heads, max(1, block // (rows * width)))
    several = max(1, block // (some * rows * width))
    turn = (_Pairs if interleaved else _Halves)(cos.dtype)
    x, result = x[..., :width], out[..., :width]
    for b in range(0, batch, several):
        here = slice(b, b + several)
        x_b, out_b = x[here], result[here]
        cos_b, sin_b = (t[here] if t.shape[0] > 1 else t for t in (cos, sin))
        for s in range(0, length, rows):
            now = slice(s, s + rows)
            cos_s, sin_s = (t[:, :, now] if t.shape[2] > 1 else t for t in (cos_b, sin_b))
            turn(x_b[:, :, now], out_b[:, :, now], cos_s, sin_s, some)
    return out


class _Scratch:
    """Memory in the dtype of the arithmetic, which blocks of one size share."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.made: dict[torch.Size, tuple[Tensor, Tensor, Tensor]] = {}

    def like(self, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The whole, and views of its two halves."""
        found = self.made.get(block.shape)
        if found is None:
            whole = torch.empty(block.shape, dtype=self.dtype, device=block.device)
            first, second = whole.chunk(2, dim=3)
            found = self.made[block.shape] = whole, first, second
        return found


def _each(tables: Tensor, some: int) -> "repeat[Tensor] | tuple[Tensor, ...]":
    """The tables of each group of heads, the same ones for all unless heads have their own."""
    return repeat(tables) if tables.shape[1] == 1 else tables.split(some, dim=1)


class _Halves:
    """Plane j in coordinates (j, j + R/2)."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.crossed, self.wide = _Scratch(dtype), _Scratch(dtype)

    def __call__(self, x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, some: int) -> None:
        tables = _each(torch.cat((cos, cos), 3), some), _each(torch.cat((sin, -sin), 3), some)
        blocks = zip(x.split(some, 1), out.split(some, 1), *tables, strict=False)
        block = self._direct if x.dtype == cos.dtype else self._widened
        for x_block, out_block, cosines, sines in blocks:
            block(x_block, out_block, cosines, sines)

    def _direct(self, x: Tensor, out: Tensor, cos: Tensor, sin: Tensor) -> None:
        # Products go along whole rows, which is what a CPU fetches ahead; the halves of the
        # second one then change places while they are added, in the cache.
        crossed, first, second = self.crossed.like(x)
        torch.mul(x, sin, out=crossed)
        torch.mul(x, cos, out=out)
        out_first, out_second = out.chunk(2, dim=3)
        out_first.add_(second)
        out_second.add_(first)

    def _widened(self, x: Tensor, out: Tensor, cos: Tensor, sin: Tensor) -> None:
        # Here the halves change places first, so that all arithmetic goes along whole rows.
        wide, first, second = self.wide.like(x)
        crossed, crossed_first, crossed_second = self.crossed.like(x)
        wide.copy_(x)
        crossed_first.copy_(second)
        crossed_second.copy_(first)
        out.copy_(wide.mul_(cos).sub_(crossed.mul_(sin)))


class _Pairs:
    """Plane j in coordinates (2j, 2j+1): each is a complex number as it lies there."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.wide = _Scratch(dtype)

    def __call__(self, x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, some: int) -> None:
        direct = x.dtype == cos.dtype and are_complex(x) and are_complex(out)
        tables = (_each(table, some) for table in (torch.complex(cos, sin), cos, sin))
        blocks = zip(x.split(some, 1), out.split(some, 1), *tables, strict=False)
        for x_block, out_block, turn, cosines, sines in blocks:
            if not rounds_each(x_block):
                out_block.copy_(formula(x_block, cosines, sines, True))
            elif direct:
                torch.mul(_as_complex(x_block), turn, out=_as_complex(out_block))
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
