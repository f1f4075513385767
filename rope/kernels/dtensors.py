"""Tensors that lie on several devices: chapter "Across devices".

A rotation needs a token's position and nothing of other tokens, so each device rotates its own part
of a `torch.distributed.tensor.DTensor`: split in batch, heads, sequence, or not at all.

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
    """Whether one of these lies on several devices; who has made one has imported its module.

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
    """Each of xs `[B, H, S, D]` rotated where it is, a part in each process.

    cos, sin, position_ids: plain tensors of all tokens, as `rope.rotary_embedding` has them.
    rotate_part: what rotates a plain tensor, with the tables and positions of its part.
    Raises ValueError in place, TypeError where one of q and k is no DTensor, and as `_part_of`.
    """
    if inplace:
        raise ValueError(
            "inplace is True for a DTensor; it must be False: rotate x.to_local() in place"
        )
    outs: list[Tensor] = []
    for x in xs:
        if not is_dtensor(x):
            raise TypeError(
                "one of q and k is a DTensor; both must be, or neither: distribute the other "
                "one too, or pass the local part of this one"
            )
        part, *rows = _part_of(cast("DTensor", x), cos, sin, position_ids)
        (out,) = rotate_part((part,), *rows)
        outs.append(_joined(out, cast("DTensor", x)))
    return outs


def _part_of(
    x: "DTensor", cos: Tensor, sin: Tensor, position_ids: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """This device's part of x and what goes with it, from tables and positions of all tokens.

    Raises ValueError for a split inside the heads, a sum that is not taken yet, parts of sizes that
    DTensor does not cut, or a mesh without this process, TypeError for tables or positions that are
    DTensors themselves; nothing is sent.
    """
    from torch.distributed.tensor import Replicate, Shard

    if x.device_mesh.get_coordinate() is None:
        raise ValueError("this process is not in x's mesh; only those in it may rotate their part")

    for placement in x.placements:
        if type(placement) not in (Shard, Replicate):
            raise ValueError(
                f"x is placed {placement}; it must be a Shard or Replicate: redistribute it first"
            )
        if placement.is_shard(3):
            raise ValueError(
                "x is split inside its heads, Shard(3), which parts coordinates that rotate "
                "together; it must be split in batch, heads or sequence, Shard(0) to Shard(2): "
                "redistribute it first"
            )
    for name, rows in {"cos": cos, "sin": sin, "position_ids": position_ids}.items():
        if is_dtensor(rows):
            raise TypeError(
                f"{name} is a DTensor; beside a DTensor x it must be a plain tensor of all tokens, "
                f"the same in every process: pass {name}.full_tensor(), made once"
            )
    part = x.to_local()
    wanted = [len(_part(torch.arange(n), [axis], x)) for axis, n in enumerate(x.shape)]
    if list(part.shape) != wanted:
        raise ValueError(
            f"this process has {list(part.shape)} of x, {list(x.shape)}; it must have {wanted}, as "
            "DTensor cuts: use distribute_tensor"
        )
    if position_ids is not None:
        position_ids = _part(position_ids, (2,) if position_ids.dim() == 1 else (0, 2), x)
        return part, cos, sin, position_ids
    axes = (2, 3) if cos.dim() == 2 else (0, 1, 2, 3)
    return part, _part(cos, axes, x), _part(sin, axes, x), None


def _joined(out: Tensor, x: "DTensor") -> "DTensor":
    """The rotated part, as a part of a tensor placed as x is."""
    from torch.distributed.tensor import DTensor

    stride, size = [0] * out.dim(), 1
    for axis in sorted(range(out.dim()), key=lambda axis: (out.stride(axis), x.stride(axis))):
        stride[axis], size = size, size * x.shape[axis]
    return DTensor.from_local(
        out, x.device_mesh, x.placements, run_check=False, shape=x.shape, stride=tuple(stride)
    )


def _part(rows: Tensor, axes: Sequence[int], x: "DTensor") -> Tensor:
    """This device's part of what has these axes of x, cut as DTensor cuts; those of 1 are whole."""
    split = [axis for axis, of_x in enumerate(axes) if rows.shape[axis] == x.shape[of_x]]
    for number, placement in enumerate(x.placements):
        for axis in split:
            if placement.is_shard(axes[axis]):
                parts = rows.chunk(x.device_mesh.size(number), axis)
                at = x.device_mesh.get_local_rank(number)
                rows = parts[at] if at < len(parts) else rows.narrow(axis, 0, 0)
    return rows
