"""Compute causal attention over a sequence that is split across devices.

See the chapter "Across devices". Each device rotates its keys to their positions before it sends
them. The receiver then needs only the order of the tokens, which determines the mask.

Shapes: B batch, H heads, H_kv key heads, S_i tokens on this device, S tokens in all, D head
dimension, D_v width of the values, P devices.
"""

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.functional import scaled_dot_product_attention

from rope.parallel.ring import Ring
from rope.parallel.shards import Shards


def context_parallel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mesh: DeviceMesh,
    shards: Shards,
    *,
    method: str = "all_gather",
    scale: float | None = None,
) -> Tensor:
    """Return causal attention for this device's queries over all keys, `[B, H, S_i, D_v]`.

    Each token sees itself and its document's earlier tokens. There is no window, bias, or dropout.

    q: `[B, H, S_i, D]`, k: `[B, H_kv, S_i, D]`, v: `[B, H_kv, S_i, D_v]`, for the tokens
    `shards.tokens[i]` in that order, where i is this process's rank in the mesh. q and k must be
    rotated to `shards.position_ids(i)`. Query head h reads key head h // (H / H_kv).
    mesh: a one-dimensional mesh of P devices. shards: the split, the same on all devices. scale:
    the factor on the scores; None means 1/sqrt(D).
    method: "all_gather" sends all keys and values to every device. "ulysses" exchanges heads, so
    that each device has H/P heads of the entire sequence (DeepSpeed-Ulysses, arXiv 2309.14509).
    "ring" passes keys and values from device to device (Ring Attention, arXiv 2310.01889). In the
    backward pass, keys and values travel around again, with their gradients in float32 or wider.
    q, k, and v get their gradients on their own devices. "ring" supports no second derivatives.
    "all_gather" always builds a mask for this device's queries and all keys. "ulysses" builds a
    mask only for packed documents, over all tokens.
    Every process must call this function and run the backward pass, with equal B, H, H_kv, D, D_v,
    dtype, scale, shards, and requires_grad; otherwise all processes wait until the group's timeout.
    On a device without a loss, use 0 * out.sum() as the loss.
    Raises ValueError, before it sends anything, if the method is unknown, if the mesh or the number
    of tokens doesn't fit the shards, or, with "ulysses", if H is not a multiple of P. If other
    shapes or the dtypes don't match, PyTorch raises errors.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; it must be one of {', '.join(METHODS)}")
    if mesh.ndim != 1 or mesh.size() != len(shards) or mesh.get_coordinate() is None:
        raise ValueError(
            f"mesh has shape {list(mesh.shape)} for {len(shards)} shards; it must have one axis, "
            "with one device per shard, and include this process; select an axis with mesh['name']"
        )
    tokens = len(shards.tokens[mesh.get_local_rank()])
    if {x.shape[2] for x in (q, k, v)} != {tokens}:  # otherwise, the other devices would time out
        raise ValueError(
            f"q, k, and v have {q.shape[2]}, {k.shape[2]}, and {v.shape[2]} tokens, but this "
            f"device's shard has {tokens}; select q, k, and v with shards.local"
        )
    if method == "ulysses" and q.shape[1] % len(shards):
        raise ValueError(
            f"q has {q.shape[1]} heads for {len(shards)} devices; method='ulysses' requires a "
            f"multiple of {len(shards)} heads; use method='ring' or 'all_gather'"
        )
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return METHODS[method](q, k, v, mesh, shards, scale)


def all_gather(
    q: Tensor, k: Tensor, v: Tensor, mesh: DeviceMesh, shards: Shards, scale: float
) -> Tensor:
    """Gather the keys and values of all devices, and attend to them."""
    sizes = [len(part) for part in shards.tokens]
    rows = torch.cat((k, v), dim=-1).movedim(2, 0)  # send k and v in one message
    rows = rows.repeat(len(sizes), 1, 1, 1)
    rows = AllToAll.apply(rows, [q.shape[2]] * len(sizes), sizes, mesh.get_group())
    k, v = rows.movedim(0, 2).split((k.shape[-1], v.shape[-1]), dim=-1)
    mask = shards.attention_mask(shards.tokens[mesh.get_local_rank()], torch.cat(shards.tokens))
    grouped = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(q, k, v, mask.to(q.device), scale=scale, enable_gqa=grouped)


def ulysses(
    q: Tensor, k: Tensor, v: Tensor, mesh: DeviceMesh, shards: Shards, scale: float
) -> Tensor:
    """Attend with H/P heads over all tokens in order; send each output to its token's device."""
    devices, here = len(shards), q.shape[2]
    sizes = [len(part) for part in shards.tokens]
    if k.shape[1] % devices:  # repeat key heads so that P divides their number
        repeats = devices // math.gcd(devices, k.shape[1])
        k, v = (x.repeat_interleave(repeats, dim=1) for x in (k, v))
    order = torch.cat(shards.tokens).to(q.device)
    inverse = shards.inverse_order.to(q.device)

    # Reshape [B, H, S_i, D] to [P * S_i, B, H/P * D], and send q, k, and v in one message.
    parts = [
        x.unflatten(1, (devices, -1)).permute(1, 3, 0, 2, 4).flatten(0, 1).flatten(2)
        for x in (q, k, v)
    ]
    rows, group = torch.cat(parts, dim=-1), mesh.get_group()
    rows = AllToAll.apply(rows, [here] * devices, sizes, group)
    q, k, v = (
        part.unflatten(2, (-1, x.shape[-1])).permute(1, 2, 0, 3).index_select(2, inverse)
        for part, x in zip(rows.split([x.shape[-1] for x in parts], dim=-1), (q, k, v), strict=True)
    )
    mask = None
    if shards.segments is not None:
        tokens = torch.arange(len(order))
        mask = shards.attention_mask(tokens, tokens).to(q.device)
    out = scaled_dot_product_attention(
        q, k, v, mask, is_causal=mask is None, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    rows = out.index_select(2, order).permute(2, 0, 1, 3)
    rows = AllToAll.apply(rows, sizes, [here] * devices, group).unflatten(0, (devices, here))
    return rows.permute(2, 0, 3, 1, 4).flatten(1, 2)


METHODS = {"all_gather": all_gather, "ring": Ring.apply, "ulysses": ulysses}


class AllToAll(torch.autograd.Function):
    """Exchange rows with every device; the backward pass sends the gradients back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], received: list[int], group: Any) -> Tensor:
        ctx.back = received, sent, group
        out = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(out, rows.contiguous(), received, sent, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return AllToAll.apply(grad, *ctx.back), None, None, None
