"""Compute positions on several axes, and cos and sin of angle_j = sum over a of p_a Theta_{a, j}.

`grid_positions` numbers the tokens of a grid by row and column. `mrope_position_ids` numbers text
mixed with vision as in Qwen2-VL (arXiv 2409.12191, section 2.1): text advances on all three axes
together, a grid spreads over the axes, and each segment starts after the largest position so far.

Shapes: A axes, B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Iterable
from math import floor

import torch
from torch import Tensor

from rope.checks import INTEGER, check_count, check_finite, check_float64, check_number
from rope.frequencies import tables_of

Segment = int | tuple[int, int, int] | tuple[int, int, int, float]
REAL = (torch.float32, torch.float64)


def grid_positions(*sizes: int, device: torch.device | str | None = None) -> Tensor:
    """Return the coordinates of all cells of a grid, int64 `[A, S]`. The last axis varies fastest.

    sizes: the grid's A sizes, such as height and width; their product is S. For a resized image,
    multiply the result by trained_size / size, which gives real positions in the trained range.
    Raises TypeError or ValueError for sizes that are not positive integers.

    >>> grid_positions(2, 3)
    tensor([[0, 0, 0, 1, 1, 1],
            [0, 1, 2, 0, 1, 2]])
    """
    for axis, size in enumerate(sizes):
        check_count(f"sizes[{axis}]", size)
    steps = [torch.arange(size, device=device) for size in sizes]
    return torch.stack(torch.meshgrid(*steps, indexing="ij")).flatten(1)


def mrope_position_ids(
    segments: Iterable[Segment],
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return positions in time, height, and width, int64 `[3, S]`, for text mixed with vision.

    segments: an int n stands for n text tokens, and (t, h, w) for a grid of vision tokens (after
    patches are merged). (t, h, w, step) stands for a video with `step` positions per frame; the
    function rounds times down. In Qwen2.5-VL, step is tokens per second times seconds per frame.
    (Qwen3-Omni doesn't round times, so compute its positions yourself.)
    Each segment starts one position after the largest position so far. This is the paper's rule:
    text after a video starts after the last frame, however many frames there are.
    Raises TypeError or ValueError for any other segment and for sizes below 1.

    >>> mrope_position_ids([2, (1, 2, 2), 1])
    tensor([[0, 1, 2, 2, 2, 2, 4],
            [0, 1, 2, 2, 3, 3, 4],
            [0, 1, 2, 3, 2, 3, 4]])
    """
    parts = [torch.empty(3, 0, dtype=torch.int64, device=device)]
    start = 0
    for number, segment in enumerate(segments):
        name = f"segments[{number}]"
        if not isinstance(segment, (tuple, list)):
            check_count(name, segment, smallest=0)
            part, span = torch.arange(segment, device=device).expand(3, -1), segment
        else:
            *sizes, step = segment if len(segment) == 4 else (*segment, 1)
            for axis, size in enumerate(sizes):
                check_count(f"{name}[{axis}]", size)
            check_number(f"{name}[3]", step, at_least=0)
            # In float32, a product could round to the other side of an integer.
            times = [floor(frame * float(step)) for frame in range(sizes[0])]
            part = grid_positions(*sizes, device=device)
            span = 1 + max(times[-1], sizes[1] - 1, sizes[2] - 1)
            part[0] = torch.tensor(times, device=device)[part[0]]
        parts.append(part + start)
        start += span
    return torch.cat(parts, dim=1)


def axis_tables(
    position_ids: Tensor,
    frequencies: Tensor,
    *,
    dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return the tables cos and sin for positions on A axes.

    position_ids: `[A, S]`, `[A, 1, S]`, or `[A, B, S]`, integers, or real positions in float32 or
    float64 (for example, for resized images); they may be negative. Above 2**24, float32 skips
    integers, so pass such positions as integers. frequencies: Theta, float64 `[A, R/2]`, or
    `[H, A, R/2]` if heads differ, in radians per position. scale: the factor on cos and sin, such
    as an extension's `attention_scaling`.
    Returns `[S, R/2]`, `[B, 1, S, R/2]`, `[1, H, S, R/2]`, or `[B, H, S, R/2]` on the positions'
    device, ready for `rotary_embedding(x, cos, sin)`. Angles are summed in float64 on the device of
    the frequencies; cos and sin are rounded once, to `dtype`. Gradients flow to frequencies and
    real positions.
    Raises TypeError for positions in half precision, which skips integers, and for frequencies that
    are not float64. Raises ValueError for shapes that don't fit, a scale that is not positive, and
    positions that are not finite (RuntimeError under `torch.compile` and on CUDA, asynchronously).

    >>> theta = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
    >>> cos, sin = axis_tables(torch.tensor([[0, 0, 3], [0, 2, 0]]), theta)
    >>> cos
    tensor([[ 1.0000,  1.0000],
            [ 1.0000, -0.4161],
            [-0.9900,  1.0000]])
    """
    check_frequencies(frequencies)
    check_axis_positions(position_ids, frequencies.shape[-2])
    if position_ids.is_floating_point():
        check_finite("position_ids", position_ids, "give padding any finite position, and mask it")
    # Move first, because MPS doesn't support float64. The shape is [A, S, 1] or [A, B, S, 1].
    rows = position_ids.to(frequencies.device).double().unsqueeze(-1)
    per_head = frequencies.dim() == 3
    if per_head and rows.dim() == 4:
        rows = rows.unsqueeze(-3)  # [A, B, 1, S, 1]
    theta = frequencies.unsqueeze(-2)  # [A, 1, R/2] or [H, A, 1, R/2]
    # Keep float64: a float32 matmul in TF32 would round positions past 2,048.
    angle = rows[0] * theta.select(-3, 0)
    for axis in range(1, len(rows)):
        angle = angle + rows[axis] * theta.select(-3, axis)
    if angle.dim() == 3:  # [H, S, R/2] or [B, S, R/2]
        angle = angle.unsqueeze(0 if per_head else 1)
    cos, sin = tables_of(angle, dtype, scale)
    return cos.to(position_ids.device), sin.to(position_ids.device)


def check_frequencies(frequencies: Tensor) -> None:
    """Raise TypeError or ValueError unless frequencies is float64 `[A, R/2]` or `[H, A, R/2]`."""
    check_float64("frequencies", frequencies, "axial_frequencies or section_frequencies")
    if frequencies.dim() not in (2, 3) or 0 in frequencies.shape:
        raise ValueError(
            f"frequencies has shape {list(frequencies.shape)}; it must be [axes, planes] or "
            "[heads, axes, planes], and not empty"
        )


def check_axis_positions(position_ids: Tensor, axes: int, x: Tensor | None = None) -> None:
    """Raise TypeError or ValueError unless position_ids is `[A, S]`, `[A, 1, S]`, or `[A, B, S]`.

    x: the vectors `[B, H, S, D]` to rotate, which determine B and S; if None, any B and S pass.
    """
    if position_ids.dtype not in (*INTEGER, *REAL):
        raise TypeError(
            f"position_ids is {position_ids.dtype}; it must be integer, float32, or float64, "
            "because half precision can't represent all integers"
        )
    batch, seq_len = ("batch", "sequence") if x is None else (x.shape[0], x.shape[2])
    shape = tuple(position_ids.shape)
    fits = shape[:1] == (axes,) and len(shape) in (2, 3)
    if not fits or (
        x is not None and shape[1:] not in ((seq_len,), (1, seq_len), (batch, seq_len))
    ):
        raise ValueError(
            f"position_ids has shape {list(shape)}; it must be [{axes}, {seq_len}] or "
            f"[{axes}, {batch}, {seq_len}], one row per axis"
        )
