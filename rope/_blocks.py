"""The two formulas for a CPU: in blocks that stay in its cache, into memory that exists.

Chapter "As fast as memory allows", section on the CPU. Written as operations on whole tensors, a
rotation reads and writes main memory in each of them. In blocks the first operations read from
there and the last result goes back, and what lies between stays in the cache. Interleaved pairs
that need no conversion are one operation, and go whole.

Tables are `[S, R/2]`, or have four axes, `[B, H, S, R/2]` or 1 in place of B, H, S; they have the
dtype of the arithmetic, and the sine the sign of the direction.
Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from rope._formula import formula, storage_order
from rope._pages import fresh_like
from rope._ways import Halves, Pairs, Widened, are_complex, pieces, rounds_each

# Elements: a chunk of the sequence in one head, and a block for each thread. Torch gives no thread
# fewer than 2^15 elements, and many times that no longer fit its own cache.
_CHUNK = 1 << 15
_CHUNK_WIDENED = 31 << 10  # two pieces of scratch, which together stay below 2^20 bytes a thread
_BLOCK = 1 << 16
# Operations and views that autograd does not look at start sooner, and here are hundreds of them.
below_autograd = getattr(torch._C, "_AutoDispatchBelowADInplaceOrView", nullcontext)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, out: Tensor | None) -> Tensor:
    """x rotated, written into out (which may be x), or into new memory in x's own order.

    Nothing is recorded for autograd. The bits are those of `rope._formula.formula`.

    >>> x, quarter = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.zeros(1, 1, 1, 1)
    >>> rotate(x, quarter, quarter + 1, False, out=x) is x, x.flatten().tolist()
    (True, [0.0, 1.0])
    """
    return rotate_all((x,), cos, sin, interleaved, None if out is None else (out,))[0]


def rotate_all(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
    outs: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """The same for queries and keys of one dtype, which share what is made of the tables."""
    made = [fresh_like(x, together=True) for x in xs] if outs is None else list(outs)
    if cos.dim() == 2:
        cos, sin = cos[None, None], sin[None, None]
    pairs = []
    for x, out in zip(xs, made, strict=True):
        if storage_order(x)[3] == 3 and x.numel():
            pairs.append((x, out))
        else:  # coordinates far apart: no rows to work on
            out.copy_(formula(x, cos, sin, interleaved))
    try:
        with below_autograd():
            _rotate(pairs, cos, sin, interleaved)
    finally:
        for _, out in pairs:
            if not out.is_inference():
                torch.autograd.graph.increment_version(out)  # below autograd nobody counts
    return made


def _rotate(
    pairs: Sequence[tuple[Tensor, Tensor]], cos: Tensor, sin: Tensor, interleaved: bool
) -> None:
    """Each x into its out, with the tables made ready for a part of the positions at a time."""
    if not pairs:
        return
    first, width = pairs[0][0], 2 * cos.shape[3]
    for x, out in pairs:
        if width < x.shape[3] and out is not x:
            out[..., width:].copy_(x[..., width:])
    batch, _, length, _ = first.shape
    widened = first.dtype != cos.dtype and not interleaved
    way = (Pairs if interleaved else Widened if widened else Halves)(cos.dtype)
    rows = min(length, max(1, (_CHUNK_WIDENED if widened else _CHUNK) // width))
    block = _BLOCK * torch.get_num_threads()
    # Tables made ready for so many sequences and positions fill a block of memory at most; where
    # pairs need no conversion nothing else is held, and they may fill four. Shared by all
    # sequences, they are made once. For a single head they cover as many positions as a block of
    # it has, and fill two: threads could not share it otherwise.
    each = 2 * width * cos.shape[1]
    single = cos.shape[1] == 1 and min(x.shape[1] for x, _ in pairs) == 1
    alone = interleaved and first.dtype == cos.dtype
    room = block * (4 if alone else 2 if single else 1)
    group = batch if cos.shape[0] == 1 else max(1, room // (each * length))
    span = max(rows, room // each // rows * rows)
    both = [t if t.shape[3] == width else t[..., :width] for pair in pairs for t in pair]
    for *both_b, cos_b, sin_b in pieces(both, (cos, sin), group, 0):
        for *parts, cos_s, sin_s in pieces(both_b, (cos_b, sin_b), span, 2):
            tables = way.tables(cos_s, sin_s)
            for x, out in zip(parts[::2], parts[1::2], strict=True):
                if interleaved and are_complex(x, out, cos.dtype) and rounds_each(x):
                    # One operation, after which none wants to find anything in the cache.
                    _in_blocks(way, x, out, tables, x.shape[2], x.numel())
                else:
                    _in_blocks(way, x, out, tables, rows, block)


def _in_blocks(
    way: Halves | Widened | Pairs,
    x: Tensor,
    out: Tensor,
    tables: Sequence[Tensor],
    rows: int,
    block: int,
) -> None:
    """Blocks of so many rows of some heads, or of several sequences where they are short."""
    rows = max(rows, min(x.shape[2], block // (x.shape[1] * x.shape[3])))
    some = min(x.shape[1], max(1, block // (rows * x.shape[3])))
    several = max(1, block // (some * rows * x.shape[3]))
    for x_b, out_b, *tables_b in pieces((x, out), tables, several, 0):
        for x_s, out_s, *tables_s in pieces((x_b, out_b), tables_b, rows, 2):
            way.turn(x_s, out_s, tables_s, some)
