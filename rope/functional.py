"""The operation: rotate plane j of each vector by the angle of its position.

Chapter "From maths to PyTorch". With x_j, y_j the two coordinates of plane j,

    x_j' = x_j cos - y_j sin,        y_j' = y_j cos + x_j sin,

which is multiplication by e^{i m theta_j} (RoFormer, arXiv 2104.09864, equation 34). Here the
arguments are checked; `rope.kernels` computes.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

import torch
from torch import Tensor

from rope.checks import FLOATING, check_devices, check_floating, check_heads, check_pair, is_plain
from rope.kernels.operator import apply_rotation
from rope.positions import check_position_ids
from rope.scalars import check_flag
from rope.writable import check_writable


def rotary_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: bool = False,
    inverse: bool = False,
    inplace: bool = False,
    tensor_format: str = "bhsd",
) -> Tensor:
    """Rotate the first R of the D coordinates of each vector; the rest passes through untouched.

    x: `[B, H, S, D]`, float16, bfloat16, float32 or float64, of any strides; with tensor_format
    "bshd" `[B, S, H, D]`, with "thd" packed tokens `[T, H, D]`, whose positions are `[T]`.
    cos, sin: `[N, R/2]`, whose rows are looked up by integer position_ids `[S]`, `[B, S]` or
    `[1, S]`. Without position_ids: `[S, R/2]`, or four axes that broadcast to `[B, H, S, R/2]`.
    interleaved: plane j holds coordinates (2j, 2j+1); otherwise (j, j + R/2).
    inverse: rotate back, by the negative angle; a scale within the tables is applied again and not
    undone (`RotaryEmbedding` undoes its own).
    inplace: write into x, the same bits; autograd sees the change, and checkpointing repeats it.
    tensor_format: "bhsd", "bshd" or "thd", of x alone and not of the tables.
    Tables of transformers, `[B, S, R]`, hold each plane twice: pass `cos[:, None, :, :R//2]`, or
    `[:, None, :, ::2]` for Cohere, and sin likewise, or use `rope.adapters.transformers`.
    Returns x, or a view of it in another format, or a new tensor of its shape and dtype; the
    arithmetic is in float32, or float64 when x or the tables are, and its result is rounded to x's
    dtype at the end alone.
    Raises TypeError for integer or complex values and for boolean or floating position_ids,
    ValueError for shapes or devices that do not agree and for positions outside the tables
    (under `torch.compile` and on CUDA that last one is an asynchronous assertion; the Triton kernel
    makes such a token NaN instead), and in place for a leaf that records gradients or memory in
    which several elements of x share a place (under `torch.compile`, expansions alone); nothing is
    then changed.

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
    if tensor_format != "bhsd":
        (x,) = to_bhsd(tensor_format, x=x)
    _check({"x": x}, cos, sin, position_ids, interleaved, inplace)
    (x,) = apply_rotation((x,), cos, sin, position_ids, interleaved, inverse, inplace)
    return x if tensor_format == "bhsd" else from_bhsd(tensor_format, x)[0]


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
    tensor_format: str = "bhsd",
) -> tuple[Tensor, Tensor]:
    """Rotate queries `[B, H, S, D]` and keys `[B, H_kv, S, D]` together: on a GPU, in one launch.

    Arguments and errors are those of `rotary_embedding`. Raises ValueError for q and k that differ
    in more than their heads, and in place for two that share memory, or lie among each other with
    unlike strides (under `torch.compile`, for one tensor given as both alone); nothing is then
    changed.

    >>> import torch
    >>> q, k = torch.ones(1, 4, 1, 2), torch.ones(1, 2, 1, 2)
    >>> half_turn = torch.tensor([[-1.0]]), torch.tensor([[0.0]])
    >>> q, k = rotary_embedding_qk(q, k, *half_turn)
    >>> q.shape, k.flatten().tolist()
    (torch.Size([1, 4, 1, 2]), [-1.0, -1.0, -1.0, -1.0])
    """
    if tensor_format != "bhsd":
        q, k = to_bhsd(tensor_format, q=q, k=k)
    _check({"q": q, "k": k}, cos, sin, position_ids, interleaved, inplace)
    q, k = apply_rotation((q, k), cos, sin, position_ids, interleaved, inverse, inplace)
    if tensor_format != "bhsd":
        q, k = from_bhsd(tensor_format, q, k)
    return q, k


def _check(
    xs: dict[str, Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    inplace: bool,
) -> None:
    """Everything checked before anything is computed."""
    check_flag("interleaved", interleaved)
    _check_tables(cos, sin)
    for name, x in xs.items():
        check_heads(name, x, 2 * cos.shape[-1])
        if x.device != cos.device:
            check_devices(**{name: x, "cos": cos})
    if len(xs) == 2:
        check_pair(**xs)
    if position_ids is None:
        for x in xs.values():
            _check_lined_up(x, cos)
    elif cos.dim() != 2:
        raise ValueError(
            f"cos has shape {list(cos.shape)}; with position_ids it must be [rows, planes]: "
            "leave position_ids out when the tables are already lined up with x"
        )
    else:
        check_position_ids(position_ids, x)
    if inplace:
        check_writable(**xs)
        for name, x in xs.items():
            _check_apart(name, x, cos, sin)


def _check_apart(name: str, x: Tensor, *tables: Tensor) -> None:
    """Refuse tables in the memory that is written to."""
    if torch.compiler.is_compiling() or x.is_meta or not all(map(is_plain, (x, *tables))):
        return
    written = x.untyped_storage().data_ptr()
    if any(table.untyped_storage().data_ptr() == written for table in tables):
        raise ValueError(
            f"{name} and the tables lie in one storage; in place the tables must lie elsewhere, or "
            "they would be written over while they are read: pass cos.clone() and sin.clone()"
        )


def _check_tables(cos: Tensor, sin: Tensor) -> None:
    """Refuse tables that are not floating, or not a pair of one shape, dtype and device."""
    if cos.dtype not in FLOATING:
        check_floating("cos", cos)
    if cos.shape != sin.shape or cos.dtype != sin.dtype:
        kind = ValueError if cos.dtype == sin.dtype else TypeError
        raise kind(
            f"cos is {cos.dtype} {list(cos.shape)} and sin {sin.dtype} {list(sin.shape)}; they "
            "must be the same: take both from one call of rotary_tables"
        )
    if cos.device != sin.device:
        check_devices(cos=cos, sin=sin)
    if cos.dim() not in (2, 4) or cos.shape[-1] == 0:
        raise ValueError(
            f"cos has shape {list(cos.shape)}; it must be [rows, planes] or [B, H, S, planes], one "
            "plane at least: add the missing axis with unsqueeze; tables of transformers, "
            "[B, S, R], also hold each plane twice, so pass cos[:, None, :, : R // 2] "
            "(cos[:, None, :, ::2] for Cohere)"
        )


def _check_lined_up(x: Tensor, cos: Tensor) -> None:
    """Refuse tables that, without position ids, do not line up with x."""
    if cos.dim() == 2:
        if cos.shape[0] != x.shape[2]:
            raise ValueError(
                f"cos has {cos.shape[0]} rows and x a sequence of {x.shape[2]}; without "
                "position_ids they must be equal: slice the tables (cos[:S]), build longer ones, "
                "or say which rows with position_ids=torch.arange(S)"
            )
        return
    for axis, rows, size in zip("BHS", cos.shape[:3], x.shape[:3], strict=True):
        if rows != 1 and rows != size:  # a traced size is in no tuple
            raise ValueError(
                f"cos has shape {list(cos.shape)}, whose axis {axis} is {rows}; for x of shape "
                f"{list(x.shape)} it must be 1 or {size}: slice or expand the tables"
            )


def to_bhsd(tensor_format: str, **tensors: Tensor) -> list[Tensor]:
    """Tensors in the format "bshd" or "thd" seen as `[B, H, S, D]`, with B = 1 for packed ones.

    tensors: by name. Raises ValueError for an unknown format or another number of axes.

    >>> to_bhsd("thd", x=torch.ones(5, 3, 2))[0].shape
    torch.Size([1, 3, 5, 2])
    """
    if tensor_format not in ("bshd", "thd"):
        raise ValueError(
            f"tensor_format is {tensor_format!r}; it must be 'bhsd', 'bshd' or 'thd': pass the one "
            "whose letters name the axes (b batch, h heads, s sequence, t packed tokens)"
        )
    for name, x in tensors.items():
        if x.dim() != len(tensor_format):
            raise ValueError(
                f"{name} has shape {list(x.shape)}; in the format {tensor_format!r} it must have "
                f"{len(tensor_format)} axes: add the missing one, or name another format"
            )
    views = [x.transpose(-3, -2) for x in tensors.values()]
    views = [x[None] for x in views] if tensor_format == "thd" else views
    first, *others = tensors.values()
    if others and others[0] is first:
        return views[:1] * 2  # one tensor as both stays one, by which in place it is refused
    return views


def from_bhsd(tensor_format: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The way back: tensors `[B, H, S, D]` in the format "bshd" or "thd".

    >>> from_bhsd("bshd", torch.ones(1, 3, 5, 2))[0].shape
    torch.Size([1, 5, 3, 2])
    """
    views = (x[0] if tensor_format == "thd" else x for x in tensors)
    return tuple(x.transpose(-3, -2) for x in views)
