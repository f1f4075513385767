"""cos and sin of angle_j = sum over a of p_a Theta_{a, j}, their use, and what may be a position.

Shapes: A axes, B batch, H heads, S sequence, R rotated width.
"""

import torch
from torch import Tensor

from rope.checks import (
    INTEGER,
    check_devices,
    check_float64,
    check_number,
    check_table_dtype,
    check_tensor,
)
from rope.functional import rotary_embedding

REAL = (torch.float32, torch.float64)


def axis_tables(
    position_ids: Tensor,
    frequencies: Tensor,
    *,
    dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The tables cos and sin of the angles that positions on A axes add up to.

    position_ids: `[A, S]` or `[A, B, S]`, integers, or real positions in float32 or float64 (a
    resized image has them); negative ones turn back. Past 2**24 float32 skips whole numbers, and
    a position is the one it holds: give far ones as integers. frequencies: float64 `[A, R/2]`, or
    `[H, A, R/2]` when heads differ, in radians per position. scale: what both tables are
    multiplied by, an extension's `attention_scaling`.
    Returns `[S, R/2]`, `[B, 1, S, R/2]`, `[1, H, S, R/2]` or `[B, H, S, R/2]`, for use as
    `rotary_embedding(x, cos, sin)`: summed in float64, rounded once to `dtype`. Gradients reach
    frequencies and real positions.
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
    check_number("scale", scale, above=0)
    check_frequencies(frequencies)
    check_table_dtype(dtype)
    check_tensor("position_ids", position_ids)
    if position_ids.dim() not in (2, 3):
        raise ValueError(
            f"position_ids has shape {list(position_ids.shape)}; it must be [axes, sequence] or "
            "[axes, batch, sequence]: stack one row of positions an axis"
        )
    check_axes(position_ids, frequencies.shape[-2])
    check_devices(frequencies=frequencies, position_ids=position_ids)
    _check_finite(position_ids)

    rows = position_ids.to(torch.float64).unsqueeze(-1)  # [A, S, 1] or [A, B, S, 1]
    heads = frequencies.dim() == 3
    if heads and rows.dim() == 4:
        rows = rows.unsqueeze(-3)  # [A, B, 1, S, 1]
    theta = frequencies.unsqueeze(-2)  # [A, 1, R/2] or [H, A, 1, R/2]
    # Elementwise, never a matmul: TF32 would round every position past 2,048.
    angle = rows[0] * theta.select(-3, 0)
    for axis in range(1, len(rows)):
        angle = angle + rows[axis] * theta.select(-3, axis)
    if angle.dim() == 3:  # [H, S, R/2] or [B, S, R/2]
        angle = angle.unsqueeze(0 if heads else 1)
    cos, sin = angle.cos(), angle.sin()
    if scale != 1:
        cos, sin = cos * scale, sin * scale
    return cos.to(dtype), sin.to(dtype)


def check_frequencies(frequencies: Tensor) -> None:
    """Refuse what is not float64 [A, R/2] or [H, A, R/2] with an axis and a plane at least."""
    check_float64("frequencies", frequencies, "axial_frequencies or section_frequencies")
    if frequencies.dim() not in (2, 3) or 0 in frequencies.shape:
        raise ValueError(
            f"frequencies has shape {list(frequencies.shape)}; it must be [axes, planes], or "
            "[heads, axes, planes], none of them 0: add the missing axis with unsqueeze"
        )


def check_fixed(frequencies: Tensor) -> None:
    """Refuse a Theta that is one a head, on meta, learned, or not finite."""
    if frequencies.dim() != 2:
        raise ValueError(
            f"frequencies has shape {list(frequencies.shape)}; here it must be [axes, planes]: "
            "call axis_tables yourself where heads differ, or use MixedRotaryEmbedding"
        )
    if frequencies.is_meta:
        raise ValueError(
            "frequencies is on meta, where it holds no numbers; it must hold them: "
            "make it with device='cpu'"
        )
    if frequencies.requires_grad:
        raise ValueError(
            "frequencies requires a gradient; this layer keeps fixed ones: "
            "pass frequencies.detach(), or use MixedRotaryEmbedding"
        )
    if not frequencies.isfinite().all():
        worst = frequencies[~frequencies.isfinite()][0].item()
        raise ValueError(f"frequencies holds {worst}; all must be finite: mend that entry")


def check_axes(position_ids: Tensor, axes: int) -> None:
    """Refuse positions of another kind than integer or real, or of another number of axes."""
    check_tensor("position_ids", position_ids)
    if position_ids.dtype not in (*INTEGER, *REAL):
        raise TypeError(
            f"position_ids is {position_ids.dtype}; whole positions may have any integer dtype, "
            "real ones float32 or float64 alone, since half types cannot hold them: make them in "
            "float32 from the start"
        )
    if position_ids.dim() and position_ids.shape[0] != axes:
        raise ValueError(
            f"position_ids has shape {list(position_ids.shape)}, whose first axis counts "
            f"{position_ids.shape[0]}; the frequencies have {axes} axes, so it must be {axes}: "
            "stack one row of positions an axis"
        )


def check_axis_positions(position_ids: Tensor, axes: int, x: Tensor) -> None:
    """Refuse positions that are not [A, S] or [A, B, S] for x [B, H, S, D], on its device."""
    check_axes(position_ids, axes)
    batch, seq_len = x.shape[0], x.shape[2]
    if tuple(position_ids.shape) not in ((axes, seq_len), (axes, batch, seq_len)):
        raise ValueError(
            f"position_ids has shape {list(position_ids.shape)}; it must be [{axes}, {seq_len}] "
            f"or [{axes}, {batch}, {seq_len}], the axes and the sequence of x: expand or slice it "
            "to one of the two"
        )
    check_devices(x=x, position_ids=position_ids)


def table_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 when one of the tensors is, float32 otherwise."""
    wide = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32


def turn(
    x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool, inverse: bool = False
) -> Tensor:
    """x `[B, H, S, D]` rotated by tables of any precision, rounded to that of its arithmetic."""
    cos, sin = cos.to(table_dtype(x)), sin.to(table_dtype(x))
    return rotary_embedding(x, cos, sin, interleaved=interleaved, inverse=inverse)


def _check_finite(position_ids: Tensor) -> None:
    """Refuse NaN and infinity, which would spoil whole rows of scores."""
    if position_ids.dtype in INTEGER or position_ids.is_meta:
        return
    finite = position_ids.isfinite().all()
    if torch.compiler.is_compiling() or position_ids.is_cuda:
        # Reading a value would break a traced graph, and on a GPU make the host wait.
        torch._assert_async(finite, "position_ids must be finite")
    elif not finite:
        worst = position_ids[~position_ids.isfinite()][0].item()
        raise ValueError(
            f"position_ids holds {worst}; positions must be finite: "
            "give padding any finite position and mask it in the attention"
        )
