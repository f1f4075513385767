"""Rotate vectors with tables of the angles' cosines and sines.

See the chapter "From math to PyTorch". This module checks the arguments, and `rope.kernels`
computes the result. `rope.kernels.formula` contains the formula.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from rope.checks import (
    check_devices,
    check_flag,
    check_floating,
    check_inplace,
    check_vectors,
)
from rope.kernels.operator import apply_rotation
from rope.positions import check_position_ids


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
    """Rotate the first R of the D coordinates of each vector, and leave the last D - R unchanged.

    x: `[B, H, S, D]`, float16, bfloat16, float32, or float64, with any strides.
    cos, sin: tables `[N, R/2]` with position_ids; without them, `[S, R/2]`, or four axes that
    broadcast to `[B, H, S, R/2]`. Tables from transformers, `[B, S, R]`, contain each plane twice.
    Convert them to `cos[:, None, :, :R//2]` (`[:, None, :, ::2]` for Cohere), or use
    `rope.adapters.transformers`.
    position_ids: integers `[S]`, `[B, S]`, or `[1, S]`, which select rows of the tables.
    interleaved: if True, plane j holds coordinates (2j, 2j+1); if False, (j, j + R/2).
    inverse: if True, rotate by the negative angle. If the tables contain a scale, the function
    applies the scale again instead of undoing it. (`RotaryEmbedding` undoes its own scale.)
    inplace: if True, write the result into x. Autograd and checkpointing detect the change.
    tensor_format: the order of x's axes: "bhsd", "bshd" (x is `[B, S, H, D]`), or "thd" (x is
    packed tokens `[T, H, D]` with position_ids `[T]`). It doesn't affect the shape of the tables.
    Returns x if inplace is True (for "bshd" and "thd", a view of x), otherwise a new tensor with
    x's shape and dtype. The arithmetic is in float32, or in float64 if x or the tables are float64,
    and the result is rounded once.
    Raises TypeError for wrong dtypes, such as half-precision tables for float32 vectors. Raises
    ValueError for shapes or devices that don't match, for positions outside the tables, and if
    inplace is True and x overlaps itself. If a position is outside the tables, code compiled for a
    CPU fails an assertion instead, and the Triton kernel returns NaN.

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
    flags = {"interleaved": interleaved, "inverse": inverse, "inplace": inplace}
    xs = to_bhsd(tensor_format, {"x": x})
    return from_bhsd(tensor_format, _check_and_rotate(xs, cos, sin, position_ids, **flags))[0]


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
    """Rotate queries `[B, H, S, D]` and keys `[B, H_kv, S, D]`, with one kernel launch on a GPU.

    The arguments and errors are the same as in `rotary_embedding`. Also raises ValueError if q and
    k differ in batch, S, D, or device, or if inplace is True and they begin at the same address.

    >>> import torch
    >>> q, k = torch.ones(1, 4, 1, 2), torch.ones(1, 2, 1, 2)
    >>> half_turn = torch.tensor([[-1.0]]), torch.tensor([[0.0]])
    >>> q, k = rotary_embedding_qk(q, k, *half_turn)
    >>> q.shape, k.flatten().tolist()
    (torch.Size([1, 4, 1, 2]), [-1.0, -1.0, -1.0, -1.0])
    """
    flags = {"interleaved": interleaved, "inverse": inverse, "inplace": inplace}
    xs = to_bhsd(tensor_format, {"q": q, "k": k})
    q, k = from_bhsd(tensor_format, _check_and_rotate(xs, cos, sin, position_ids, **flags))
    return q, k


def _check_and_rotate(
    xs: Mapping[str, Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    **flags: bool,
) -> Sequence[Tensor]:
    """Check all arguments, then rotate the tensors in xs, whose keys are "x", or "q" and "k"."""
    check_flag("interleaved", flags["interleaved"])
    _check_tables(cos, sin)
    check_vectors(xs, 2 * cos.shape[-1])
    for name, x in xs.items():
        if x.device != cos.device:
            check_devices(**{name: x, "cos": cos})
        if cos.dtype.itemsize == 2 < x.dtype.itemsize:
            raise TypeError(
                f"cos is {cos.dtype}, but {name} is {x.dtype}; pass float32 tables, because "
                "half-precision cosines rotate by the wrong angles"
            )
        if position_ids is None:
            _check_rows(cos, x)
        elif cos.dim() != 2:
            raise ValueError(
                f"cos has shape {list(cos.shape)}; with position_ids, it must be [rows, planes]"
            )
    if position_ids is not None:
        check_position_ids(position_ids, x)
    if flags["inplace"]:
        check_inplace(xs, flags["inplace"])
    return apply_rotation(tuple(xs.values()), cos, sin, position_ids, **flags)


def _check_tables(cos: Tensor, sin: Tensor) -> None:
    """Raise TypeError or ValueError unless cos and sin are tables of the same shape and dtype."""
    check_floating("cos", cos.dtype)
    if cos.shape != sin.shape or cos.dtype != sin.dtype:
        kind = ValueError if cos.dtype == sin.dtype else TypeError
        raise kind(
            f"cos is {cos.dtype} {list(cos.shape)} and sin is {sin.dtype} {list(sin.shape)}; they "
            "must match; compute both with one call to rotary_tables"
        )
    if cos.device != sin.device:
        check_devices(cos=cos, sin=sin)
    if cos.dim() not in (2, 4) or cos.shape[-1] == 0:
        raise ValueError(
            f"cos has shape {list(cos.shape)}; it must be [rows, planes] or [B, H, S, planes] with "
            "at least one plane; tables from transformers, [B, S, R], contain each plane twice, so "
            "pass cos[:, None, :, : R // 2] (cos[:, None, :, ::2] for Cohere)"
        )


def _check_rows(cos: Tensor, x: Tensor) -> None:
    """Raise ValueError unless the tables, used without position_ids, fit axes B, H, and S of x."""
    if cos.dim() == 2:
        if cos.shape[0] != x.shape[2]:
            raise ValueError(
                f"cos has {cos.shape[0]} rows, but x has {x.shape[2]} tokens; slice cos and sin "
                "(cos[:S]), or pass position_ids to select their rows"
            )
        return
    for axis, rows, size in zip("BHS", cos.shape, x.shape, strict=False):
        if rows != 1 and rows != size:
            raise ValueError(
                f"cos has shape {list(cos.shape)} and x has shape {list(x.shape)}; axis {axis} of "
                f"cos has size {rows}, but it must have size 1 or {size}"
            )


def to_bhsd(tensor_format: str, xs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return views `[B, H, S, D]` of the named tensors, with B = 1 for packed tokens.

    Raises ValueError for an unknown format or a wrong number of axes.

    >>> import torch
    >>> to_bhsd("thd", {"x": torch.ones(5, 3, 2)})["x"].shape
    torch.Size([1, 3, 5, 2])
    """
    if tensor_format == "bhsd":
        return xs
    if tensor_format not in ("bshd", "thd"):
        raise ValueError(f"tensor_format is {tensor_format!r}; it must be 'bhsd', 'bshd', or 'thd'")
    for name, x in xs.items():
        if x.dim() != len(tensor_format):
            raise ValueError(
                f"{name} has shape {list(x.shape)}; it must have {len(tensor_format)} axes with "
                f"tensor_format {tensor_format!r}"
            )
    views = {name: x.transpose(-3, -2) for name, x in xs.items()}
    return {name: x[None] for name, x in views.items()} if tensor_format == "thd" else views


def from_bhsd(tensor_format: str, xs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return views of tensors `[B, H, S, D]` in tensor_format. This is the inverse of `to_bhsd`."""
    if tensor_format == "bhsd":
        return xs
    views = (x[0] if tensor_format == "thd" else x for x in xs)
    return tuple(x.transpose(-3, -2) for x in views)
