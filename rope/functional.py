"""The operation: rotate plane j of each vector by the angle of its position.

Chapter "From maths to PyTorch". With x_j, y_j the two coordinates of plane j,

    x_j' = x_j cos - y_j sin,        y_j' = y_j cos + x_j sin,

which is multiplication by e^{i m theta_j} (RoFormer, arXiv 2104.09864, equation 34). Here the
arguments are checked; `rope.rotation` computes.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

from torch import Tensor

from rope.checks import (
    check_devices,
    check_flag,
    check_heads,
    check_pair,
    check_rows,
    check_tables,
    check_writable,
)
from rope.positions import check_position_ids
from rope.rotation import rotate


def rotary_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: bool = False,
    inverse: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Rotate the first R of the D coordinates of each vector; the rest passes through untouched.

    x: `[B, H, S, D]`, float16, bfloat16, float32 or float64, of any strides: what is stored as
    `[B, S, H, D]` and seen through a transpose is not copied first.
    cos, sin: `[N, R/2]`, whose rows are looked up by integer position_ids `[S]` or `[B, S]`.
    Without position_ids: `[S, R/2]`, or four axes that broadcast to `[B, H, S, R/2]`.
    interleaved: plane j holds coordinates (2j, 2j+1); otherwise (j, j + R/2).
    inverse: rotate back, by the negative angle; a scale within the tables is applied again and not
    undone (`RotaryEmbedding` undoes its own).
    inplace: write into x, the same bits; autograd sees the change.
    Returns x, or a new tensor of its shape and dtype; the arithmetic is in float32, or float64 when
    x or the tables are, and its result is rounded to x's dtype at the end alone.
    Raises TypeError for integer or complex values and for boolean or floating position_ids,
    ValueError for shapes or devices that do not agree and for positions outside the tables
    (under `torch.compile` and on CUDA that last one is an asynchronous assertion; the Triton kernel
    makes such a token NaN instead), and in place for a leaf that records gradients or memory in
    which several elements of x share a place; nothing is then changed.

    >>> import torch
    >>> from rope.frequencies import inverse_frequencies, rotary_tables
    >>> cos, sin = rotary_tables(2, inverse_frequencies(4, base=100.0))
    >>> x = torch.ones(1, 1, 2, 4)
    >>> rotary_embedding(x, cos, sin)[0, 0, 1]
    tensor([-0.3012,  0.8952,  1.3818,  1.0948])
    >>> rotated = rotary_embedding(x, cos, sin, interleaved=True)
    >>> torch.allclose(rotary_embedding(rotated, cos, sin, interleaved=True, inverse=True), x)
    True
    """
    _check({"x": x}, cos, sin, position_ids, interleaved, inverse, inplace)
    return rotate((x,), cos, sin, position_ids, interleaved, inverse, inplace)[0]


def rotary_embedding_qk(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: bool = False,
    inverse: bool = False,
    inplace: bool = False,
) -> tuple[Tensor, Tensor]:
    """Rotate queries `[B, H, S, D]` and keys `[B, H_kv, S, D]` together: on a GPU, in one launch.

    Arguments and errors are those of `rotary_embedding`. Raises ValueError for q and k that differ
    in more than their heads, and in place for one tensor given as both; nothing is then changed.

    >>> import torch
    >>> q, k = torch.ones(1, 4, 1, 2), torch.ones(1, 2, 1, 2)
    >>> half_turn = torch.tensor([[-1.0]]), torch.tensor([[0.0]])
    >>> q, k = rotary_embedding_qk(q, k, *half_turn)
    >>> q.shape, k.flatten().tolist()
    (torch.Size([1, 4, 1, 2]), [-1.0, -1.0, -1.0, -1.0])
    """
    _check({"q": q, "k": k}, cos, sin, position_ids, interleaved, inverse, inplace)
    q, k = rotate((q, k), cos, sin, position_ids, interleaved, inverse, inplace)
    return q, k


def _check(
    xs: dict[str, Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inverse: bool,
    inplace: bool,
) -> None:
    """Everything checked before anything is computed."""
    check_flag("interleaved", interleaved)
    check_flag("inverse", inverse)
    check_flag("inplace", inplace)
    check_tables(cos, sin)
    for name, x in xs.items():
        check_heads(name, x, 2 * cos.shape[-1])
        check_devices(**{name: x, "cos": cos})
    if len(xs) == 2:
        check_pair(**xs)
    if position_ids is None:
        for x in xs.values():
            check_rows(x, cos)
    elif cos.dim() != 2:
        raise ValueError(
            f"cos has shape {list(cos.shape)}; with position_ids it must be [rows, planes]: "
            "leave position_ids out when the tables are already lined up with x"
        )
    else:
        check_position_ids(position_ids, x.shape[0], x.shape[2])
        check_devices(x=x, position_ids=position_ids)
    if inplace:
        check_writable(**xs)
