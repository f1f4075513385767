"""Rotate DTensors, PyTorch's distributed tensors: chapter "Across devices".

Shapes: B batch, H heads, S sequence, D head dimension.
"""

from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard

from rope.module import RotaryEmbedding
from rope.positions import check_position_ids


def rotate_dtensor(
    rotary: RotaryEmbedding,
    x: DTensor,
    position_ids: Tensor,
    *,
    seq_len: int | None = None,
    inverse: bool = False,
) -> DTensor:
    """Rotate queries or keys on the devices that hold them, without sending any data.

    x: `[B, H, S, D]`, replicated or split along B, H, or S. position_ids: the positions of all
    tokens, integers `[S]`, `[1, S]`, or `[B, S]`, as a plain tensor that is equal in every process.
    seq_len, inverse: as in `RotaryEmbedding.forward`.
    Returns a new DTensor with x's dtype and placements. Gradients reach x.
    Raises ValueError for a placement that splits the coordinates of a vector or holds a partial
    sum, and the errors of `RotaryEmbedding.rotate`, for example for shards of unusual sizes.
    """
    for placement in x.placements:
        if type(placement) not in (Shard, Replicate) or placement.is_shard(3):
            raise ValueError(
                f"x has placement {placement}; it must be Replicate, or Shard(0) to Shard(2) "
                "(Shard(3) splits coordinates that rotate together); redistribute x first"
            )
    check_position_ids(position_ids, x)
    if seq_len is None and rotary.fixed_length is None:
        seq_len = int(position_ids.max()) + 1  # the largest position may be in another process
    ids = _local_ids(position_ids.expand(x.shape[0], -1), x)
    out = rotary.rotate(x.to_local(), ids, seq_len=seq_len, inverse=inverse)
    return DTensor.from_local(
        out, x.device_mesh, x.placements, run_check=False, shape=x.shape, stride=x.stride()
    )


def _local_ids(ids: Tensor, x: DTensor) -> Tensor:
    """Return this process's part of ids `[B, S]`, which are split in the same way as x."""
    for number, placement in enumerate(x.placements):
        for axis, axis_of_x in enumerate((0, 2)):
            if placement.is_shard(axis_of_x):
                parts = ids.chunk(x.device_mesh.size(number), axis)
                rank = x.device_mesh.get_local_rank(number)
                ids = parts[rank] if rank < len(parts) else ids.narrow(axis, 0, 0)
    return ids
