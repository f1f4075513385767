"""Rotate DTensors, which are spread over several devices: chapter "Across devices".

Rotating a token needs its position but no other token, so each process rotates its own part of a
`torch.distributed.tensor.DTensor` that is replicated or split along batch, heads, or sequence.

Shapes: B batch, H heads, S sequence, D head dimension, N table rows.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_dtensor(*tensors: Tensor | None) -> bool:
    """Return True if any tensor is a DTensor. Doesn't import torch.distributed.

    >>> is_dtensor(torch.ones(2))
    False
    """
    module = sys.modules.get("torch.distributed.tensor")
    if module is not None:
        for x in tensors:
            if isinstance(x, module.DTensor):
                return True
    return False


def rotate_parts(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    inplace: bool,
    rotate_part: Callable[..., Sequence[Tensor]],
) -> list[Tensor]:
    """Rotate each x `[B, H, S, D]` where it is stored: each process rotates its own part.

    cos, sin, position_ids: plain tensors for all tokens, as `rope.rotary_embedding` takes them.
    rotate_part: a function that rotates plain tensors with their part of the tables and positions.
    Raises ValueError for inplace, for a placement that splits the coordinates or is a partial sum,
    and for parts of unexpected shapes. Raises TypeError if cos, sin, position_ids, or only one of q
    and k is a DTensor. The processes exchange no data.
    """
    if inplace:
        raise ValueError("inplace can't be used with a DTensor; rotate x.to_local() instead")
    if not all(map(is_dtensor, xs)):
        raise TypeError("only one of q and k is a DTensor; distribute the other tensor too")
    for name, rows in {"cos": cos, "sin": sin, "position_ids": position_ids}.items():
        if is_dtensor(rows):
            raise TypeError(
                f"{name} is a DTensor; it must be a plain tensor for all tokens, the same in every "
                f"process: pass {name}.full_tensor(), computed once"
            )
    outs: list[Tensor] = []
    for x in cast("Sequence[DTensor]", xs):
        _check_placements(x)
        if position_ids is not None:
            ids = _part(position_ids, (2,) if position_ids.dim() == 1 else (0, 2), x)
            (out,) = rotate_part((x.to_local(),), cos, sin, ids)
        else:
            axes = (2, 3) if cos.dim() == 2 else (0, 1, 2, 3)
            tables = _part(cos, axes, x), _part(sin, axes, x)
            (out,) = rotate_part((x.to_local(),), *tables, None)
        outs.append(_joined(out, x))
    return outs


def _check_placements(x: "DTensor") -> None:
    """Raise ValueError unless this process can rotate its part of x without the other parts."""
    from torch.distributed.tensor import Replicate, Shard

    for placement in x.placements:
        if type(placement) not in (Shard, Replicate) or placement.is_shard(3):
            raise ValueError(
                f"x has placement {placement}; it must be Replicate, or Shard(0) to Shard(2) "
                "(Shard(3) splits coordinates that rotate together): redistribute x first"
            )
    part = list(x.to_local().shape)
    expected = [len(_part(torch.arange(n), [axis], x)) for axis, n in enumerate(x.shape)]
    if part != expected:
        raise ValueError(
            f"this process holds a part of x with shape {part}, but DTensor's split of "
            f"{list(x.shape)} gives it {expected}; use distribute_tensor"
        )


def _joined(out: Tensor, x: "DTensor") -> "DTensor":
    """Return the rotated part as a DTensor with x's placements and order of axes."""
    from torch.distributed.tensor import DTensor

    stride, size = [0] * out.dim(), 1
    for axis in sorted(range(out.dim()), key=lambda axis: (out.stride(axis), x.stride(axis))):
        stride[axis], size = size, size * x.shape[axis]
    return DTensor.from_local(
        out, x.device_mesh, x.placements, run_check=False, shape=x.shape, stride=tuple(stride)
    )


def _part(rows: Tensor, axes: Sequence[int], x: "DTensor") -> Tensor:
    """Return this process's part of `rows`, whose axis i is x's axis axes[i] or has size 1."""
    split = [axis for axis, of_x in enumerate(axes) if rows.shape[axis] == x.shape[of_x]]
    for number, placement in enumerate(x.placements):
        for axis in split:
            if placement.is_shard(axes[axis]):
                parts = rows.chunk(x.device_mesh.size(number), axis)
                at = x.device_mesh.get_local_rank(number)
                rows = parts[at] if at < len(parts) else rows.narrow(axis, 0, 0)
    return rows
