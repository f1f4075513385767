"""Causal attention over a sequence that lies on several devices: chapter "Across devices".

Keys are rotated where their tokens are, by their own positions, before they are sent: what arrives
needs no position any more, only the order of the tokens, for the mask.

Shapes: B batch, H heads, H_kv key heads, S_i tokens of this device, S of all, D head dimension, P
devices.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.functional import scaled_dot_product_attention

from rope.checks import check_devices, check_floating
from rope.parallel.ring import Ring
from rope.parallel.shards import Shards
from rope.scalars import check_number


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
    """Causal attention of this device's queries over the keys of all: `[B, H, S_i, D_v]`.

    A token sees those of its document that stand before it in the sequence, and itself; there is no
    window, bias or dropout.

    q: `[B, H, S_i, D]`, k: `[B, H_kv, S_i, D]`, v: `[B, H_kv, S_i, D_v]`, of the tokens
    `shards.tokens[i]` in their order, i being this process's place in the mesh; q and k rotated by
    `shards.position_ids(i)`. Query head h reads key head h // (H / H_kv).
    mesh: of one axis, over P devices; shards: the same on all of them. scale: of the scores,
    1/sqrt(D) when None.
    method: "all_gather" sends all keys and values to all; "ulysses" sends heads, so that each
    device has whole sequences of H/P of them (DeepSpeed-Ulysses, arXiv 2309.14509); "ring" passes
    keys and values on from device to device (Ring Attention, arXiv 2310.01889), in the backward
    pass again, with their gradients in float32 at least, asked for or not.
    Gradients reach q, k and v on their own devices; those of "ring" have none themselves. The
    first two hold a mask of all keys that this device's heads see, unless it is the causal one.
    Raises ValueError or TypeError, before anything is sent, for arguments that do not agree here.
    Every process must call it, and the backward pass, with equal B, heads, D, dtype, scale, shards
    and requires_grad: else all wait until the group's timeout, or are ended by it. Where a device
    has no loss, add 0 * out.sum() to another.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; it must be one of {', '.join(METHODS)}")
    _check(q, k, v, mesh, shards)
    if method == "ulysses" and q.shape[1] % len(shards):
        raise ValueError(
            f"q has {q.shape[1]} heads for {len(shards)} devices; for ulysses each must get as "
            "many: use method='ring' or 'all_gather', or fewer devices"
        )
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1])
    else:
        check_number("scale", scale)
    return METHODS[method](q, k, v, mesh, shards, scale)


def all_gather(
    q: Tensor, k: Tensor, v: Tensor, mesh: DeviceMesh, shards: Shards, scale: float
) -> Tensor:
    """All keys and values come here, in the order of the devices."""
    sizes = [len(part) for part in shards.tokens]
    rows = torch.cat((k, v), dim=-1).movedim(2, 0)  # one message for both
    rows = rows.repeat(len(sizes), 1, 1, 1)
    rows = _exchanged(rows, [q.shape[2]] * len(sizes), sizes, mesh)
    k, v = rows.movedim(0, 2).split((k.shape[-1], v.shape[-1]), dim=-1)
    mask = shards.sees(shards.tokens[mesh.get_local_rank()], torch.cat(shards.tokens))
    grouped = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(q, k, v, mask.to(q.device), scale=scale, enable_gqa=grouped)


def ulysses(
    q: Tensor, k: Tensor, v: Tensor, mesh: DeviceMesh, shards: Shards, scale: float
) -> Tensor:
    """Some heads of all tokens come here, in the order of the text, and their outputs go back."""
    devices, here = len(shards), q.shape[2]
    sizes = [len(part) for part in shards.tokens]
    if k.shape[1] % devices:  # too few key heads to go round: as many copies as it takes
        repeats = devices // math.gcd(devices, k.shape[1])
        k, v = (x.repeat_interleave(repeats, dim=1) for x in (k, v))
    order = torch.cat(shards.tokens).to(q.device)
    back = shards.back.to(q.device)

    # Heads and tokens change places: [B, H, S_i, D] to [P * S_i, B, H/P * D], in one message.
    parts = [
        x.unflatten(1, (devices, -1)).permute(1, 3, 0, 2, 4).flatten(0, 1).flatten(2)
        for x in (q, k, v)
    ]
    rows = _exchanged(torch.cat(parts, dim=-1), [here] * devices, sizes, mesh)
    q, k, v = (
        part.unflatten(2, (-1, x.shape[-1])).permute(1, 2, 0, 3).index_select(2, back)
        for part, x in zip(rows.split([x.shape[-1] for x in parts], dim=-1), (q, k, v), strict=True)
    )
    mask = None
    if shards.segments is not None:
        tokens = torch.arange(len(order))
        mask = shards.sees(tokens, tokens).to(q.device)
    out = scaled_dot_product_attention(
        q, k, v, mask, is_causal=mask is None, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    rows = out.index_select(2, order).permute(2, 0, 1, 3)
    rows = _exchanged(rows, sizes, [here] * devices, mesh).unflatten(0, (devices, here))
    return rows.permute(2, 0, 3, 1, 4).flatten(1, 2)


def ring(q: Tensor, k: Tensor, v: Tensor, mesh: DeviceMesh, shards: Shards, scale: float) -> Tensor:
    out: Tensor = Ring.apply(q, k, v, mesh, shards, scale)
    return out


METHODS = {"all_gather": all_gather, "ring": ring, "ulysses": ulysses}


def _exchanged(rows: Tensor, away: Sequence[int], here: Sequence[int], mesh: DeviceMesh) -> Tensor:
    """So many rows to each device, and so many from each."""
    return _Exchange.apply(rows, [*away], [*here], mesh.get_group())


class _Exchange(torch.autograd.Function):
    """`all_to_all_single`, whose gradients go back the same way."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, away: list[int], here: list[int], group: Any) -> Tensor:
        ctx.back = here, away, group
        arrived = rows.new_empty(sum(here), *rows.shape[1:])
        dist.all_to_all_single(arrived, rows.contiguous(), here, away, group=group)
        return arrived

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _Exchange.apply(grad, *ctx.back), None, None, None


def _check(q: Tensor, k: Tensor, v: Tensor, mesh: DeviceMesh, shards: Shards) -> None:
    for name, x in {"q": q, "k": k, "v": v}.items():
        check_floating(name, x)
        if x.dim() != 4:
            raise ValueError(f"{name} has shape {list(x.shape)}; it must be [B, H, S, D]")
    check_devices(q=q, k=k, v=v)
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            f"q is {q.dtype}, k {k.dtype} and v {v.dtype}; they must be the same: cast them to one"
        )
    if mesh.ndim != 1 or mesh.size() != len(shards):
        raise ValueError(
            f"mesh has shape {list(mesh.shape)} and shards {len(shards)} devices; the mesh must "
            f"have one axis of as many: pass mesh['name of the axis'], or make other shards"
        )
    if mesh.get_coordinate() is None:
        raise ValueError("this process is not in the mesh; only those in it may call")
    here = len(shards.tokens[mesh.get_local_rank()])
    if {x.shape[2] for x in (q, k, v)} != {here}:
        raise ValueError(
            f"q, k and v have {q.shape[2]}, {k.shape[2]} and {v.shape[2]} tokens; they must have "
            f"{here}, those of the shards on this device: take them with shards.of"
        )
    if q.shape[0] != k.shape[0] or k.shape[:2] != v.shape[:2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q, k and v have shapes {list(q.shape)}, {list(k.shape)} and {list(v.shape)}; batches "
            "must agree, key and value heads too, and D of q and k"
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"q has {q.shape[1]} heads and k {k.shape[1]}; those of q must be a multiple of k's: "
            "check which is which"
        )
