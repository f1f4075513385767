"""The positions themselves, one row an axis.

A grid of patches counts its rows and columns. A sequence of text and vision counts as Qwen2-VL
does (arXiv 2409.12191, section 2.1): text moves all three axes together, a grid spreads them, and
whatever follows starts past the largest position so far.

Shapes: A axes, S tokens. int64.
"""

from collections.abc import Iterable
from math import floor

import torch
from torch import Tensor

from rope.checks import check_count
from rope.scalars import check_number

Segment = int | tuple[int, int, int] | tuple[int, int, int, float]


def grid_positions(*sizes: int, device: torch.device | str | None = None) -> Tensor:
    """The coordinates of every cell of a grid, row-major: the last axis runs fastest.

    sizes: A counts, such as height and width. Returns int64 `[A, S]`, S their product.
    A resized image keeps the extent it was trained with when these are multiplied by
    trained_size / size, which makes real positions. Raises TypeError or ValueError for bad sizes.

    >>> grid_positions(2, 3)
    tensor([[0, 0, 0, 1, 1, 1],
            [0, 1, 2, 0, 1, 2]])
    """
    for axis, size in enumerate(sizes):
        check_count(f"sizes[{axis}]", size)
    steps = [torch.arange(size, device=device) for size in sizes]
    return torch.stack(torch.meshgrid(*steps, indexing="ij")).flatten(1)


def mrope_position_ids(
    segments: Iterable[Segment], *, device: torch.device | str | None = None
) -> Tensor:
    """Time, height and width of each token of a sequence that mixes text and vision.

    segments: in the order of the sequence, an int n for n text tokens, (t, h, w) for a grid of
    vision tokens (after patches are merged), or (t, h, w, step) for a video whose frames lie
    `step` positions apart, rounded down (Qwen2.5-VL: tokens a second times seconds a frame).
    Every segment starts at 1 + the largest position before it, the paper's rule: a video with more
    frames than rows or columns pushes the text behind its last frame.
    Returns int64 `[3, S]`; the next token of the sequence stands at its largest entry + 1.
    Raises TypeError or ValueError for a segment that is neither, sizes below 1, frames past 2**53.

    >>> mrope_position_ids([2, (1, 2, 2), 1])
    tensor([[0, 1, 2, 2, 2, 2, 4],
            [0, 1, 2, 2, 3, 3, 4],
            [0, 1, 2, 3, 2, 3, 4]])
    """
    parts = [torch.empty(3, 0, dtype=torch.int64, device=device)]
    start = 0
    for number, segment in enumerate(segments):
        part, span = _segment(f"segments[{number}]", segment, device)
        parts.append(part + start)
        start += span
    return torch.cat(parts, dim=1)


def _segment(name: str, segment: Segment, device: torch.device | str | None) -> tuple[Tensor, int]:
    """The segment's positions from zero, and how far it reaches: 1 + the largest of them."""
    if not isinstance(segment, (tuple, list)):
        check_count(name, segment, smallest=0)
        return torch.arange(segment, device=device).expand(3, -1), int(segment)
    if len(segment) not in (3, 4):
        raise ValueError(
            f"{name} has {len(segment)} numbers; a grid must be (t, h, w) or (t, h, w, step), of a "
            "video whose frames lie step positions apart: give a still image as (1, h, w)"
        )
    time, height, width, step = segment if len(segment) == 4 else (*segment, 1)
    for axis, size in enumerate((time, height, width)):
        check_count(f"{name}[{axis}]", size)
    check_number(f"{name}[3]", step, at_least=0)
    # Products in float64: a float32 one may fall to the other side of a whole number.
    last = (time - 1) * float(step)
    check_number(f"(t - 1) * step of {name}", last)
    check_count(f"the last frame of {name}", floor(last), smallest=0)
    frames = [floor(frame * float(step)) for frame in range(time)]
    ids = grid_positions(time, height, width, device=device)
    ids[0] = torch.tensor(frames, device=device)[ids[0]]
    return ids, 1 + max(frames[-1], height - 1, width - 1)
