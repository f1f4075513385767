"""cos and sin of angle_j = sum over a of p_a Theta_{a, j}, and what may be a position.

Shapes: A axes, B batch, H heads, S sequence, R rotated width.
"""

import torch
from torch import Tensor

from rope.checks import INTEGER, check_devices, check_finite, check_float64
from rope.frequencies import tables_of

REAL = (torch.float32, torch.float64)


def axis_tables(
    position_ids: Tensor,
    frequencies: Tensor,
    *,
    dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The tables cos and sin of the angles that positions on A axes add up to.

    position_ids: `[A, S]`, `[A, 1, S]` or `[A, B, S]`, integers, or real positions in float32 or
    float64 (a resized image has them); negative ones turn back. Past 2**24 float32 skips whole
    numbers, and a position is the one it holds: give far ones as integers. frequencies: float64
    `[A, R/2]`, or `[H, A, R/2]` when heads differ, in radians per position. scale: what both are
    multiplied by, an extension's `attention_scaling`.
    Returns `[S, R/2]`, `[B, 1, S, R/2]`, `[1, H, S, R/2]` or `[B, H, S, R/2]`, for use as
    `rotary_embedding(x, cos, sin)`: summed in float64, rounded once to `dtype`.
    Gradients reach frequencies and real positions.
    Raises TypeError for positions in half types, which cannot hold them, or frequencies that are
    not float64; ValueError for shapes or devices that do not agree, a scale that is not positive
    and positions that are not finite (under `torch.compile` and on CUDA an asynchronous assertion).

    >>> theta = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
    >>> cos, sin = axis_tables(torch.tensor([[0, 0, 3], [0, 2, 0]]), theta)
    >>> cos
    tensor([[ 1.0000,  1.0000],
            [ 1.0000, -0.4161],
            [-0.9900,  1.0000]])
    """
    check_frequencies(frequencies)
    check_axis_positions(position_ids, frequencies.shape[-2])
    check_devices(frequencies=frequencies, position_ids=position_ids)
    if position_ids.is_floating_point():
        way_out = "give padding any finite position and mask it in the attention"
        check_finite("position_ids", position_ids, way_out)
    rows = position_ids.to(torch.float64).unsqueeze(-1)  # [A, S, 1] or [A, B, S, 1]
    per_head = frequencies.dim() == 3
    if per_head and rows.dim() == 4:
        rows = rows.unsqueeze(-3)  # [A, B, 1, S, 1]
    theta = frequencies.unsqueeze(-2)  # [A, 1, R/2] or [H, A, 1, R/2]
    # Elementwise, never a matmul: TF32 would round every position past 2,048.
    angle = rows[0] * theta.select(-3, 0)
    for axis in range(1, len(rows)):
        angle = angle + rows[axis] * theta.select(-3, axis)
    if angle.dim() == 3:  # [H, S, R/2] or [B, S, R/2]
        angle = angle.unsqueeze(0 if per_head else 1)
    return tables_of(angle, dtype, scale)


def check_frequencies(frequencies: Tensor) -> None:
    """Refuse what is not float64 [A, R/2] or [H, A, R/2] with an axis and a plane at least."""
    check_float64("frequencies", frequencies, "axial_frequencies or section_frequencies")
    if frequencies.dim() not in (2, 3) or 0 in frequencies.shape:
        raise ValueError(
            f"frequencies has shape {list(frequencies.shape)}; it must be [axes, planes], or "
            "[heads, axes, planes], none of them 0: add the missing axis with unsqueeze"
        )


def check_axis_positions(position_ids: Tensor, axes: int, x: Tensor | None = None) -> None:
    """Refuse what is not integer or real, [A, S] or [A, B, S], of the S and B of x if it is given.

    x: vectors `[B, H, S, D]`, which must share a device with position_ids.
    """
    if position_ids.dtype not in (*INTEGER, *REAL):
        raise TypeError(
            f"position_ids is {position_ids.dtype}; whole positions may have any integer dtype, "
            "real ones float32 or float64 alone, since half types cannot hold them: make them in "
            "float32 from the start"
        )
    batch, seq_len = ("batch", "sequence") if x is None else (x.shape[0], x.shape[2])
    shape = tuple(position_ids.shape)
    fits = shape[:1] == (axes,) and len(shape) in (2, 3)
    if not fits or (
        x is not None and shape[1:] not in ((seq_len,), (1, seq_len), (batch, seq_len))
    ):
        raise ValueError(
            f"position_ids has shape {list(shape)}; it must be [{axes}, {seq_len}] or "
            f"[{axes}, {batch}, {seq_len}], positions on {axes} axes: stack one row an axis, as "
            "long as the sequence"
        )
    if x is not None:
        check_devices(x=x, position_ids=position_ids)
