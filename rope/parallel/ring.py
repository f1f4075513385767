"""Compute ring attention: keys and values pass from device to device (arXiv 2310.01889).

See the chapter "Across devices". A device merges each arriving block, with scores s_n and values
v_n, into its output o and into l, the logarithm of the softmax denominator:

    l' = log(e^l + sum_n e^{s_n}),      o' = e^{l - l'} o + sum_n e^{s_n - l'} v_n.

Shapes: B batch, H heads, H_kv key heads, G = H / H_kv, S_i queries on this device, T keys in a
block, D head dimension.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributed.device_mesh import DeviceMesh

from rope.parallel.shards import Shards

ROWS = 512  # compute the scores of this many queries at a time, to limit memory use


class Ring(torch.autograd.Function):
    """Compute the outputs for this device's queries, with scores in float32 or wider."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mesh: DeviceMesh, shards: Shards, scale: float
    ) -> Tensor:
        ctx.settings = mesh, shards, scale
        wide = torch.promote_types(q.dtype, torch.float32)
        rows = _grouped(q, k.shape[1]).to(wide)  # [B, H_kv, G, S_i, D]
        out = rows.new_zeros(*rows.shape[:-1], v.shape[-1])
        total = rows.new_full((*rows.shape[:-1], 1), -torch.inf)  # l in the formula above
        block: Sequence[Tensor] = (k, v)
        with torch.autocast(q.device.type, enabled=False):  # autocast would round to half precision
            for step in range(len(shards)):
                if step:
                    block = _send_recv(block, step, mesh, shards)
                keys, values = (x[:, :, None].to(wide) for x in block)
                for part, hidden in _visible_parts(step, mesh, shards, q.device):
                    scores = (scale * rows[..., part, :] @ keys.mT).masked_fill_(hidden, -torch.inf)
                    before = total[..., part, :]
                    after = torch.logaddexp(before, scores.logsumexp(-1, keepdim=True))
                    out[..., part, :] *= (before - after).exp()
                    out[..., part, :] += scores.sub_(after).exp_() @ values
                    total[..., part, :] = after
        ctx.save_for_backward(q, k, v, out, total)
        return out.flatten(1, 2).to(q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Send the blocks around again; a block's gradients travel with it to its own device."""
        mesh, shards, scale = ctx.settings
        q, k, v, out, total = ctx.saved_tensors
        rows, grad = (_grouped(x, k.shape[1]).to(out.dtype) for x in (q, grad))
        inner = (grad * out).sum(-1, keepdim=True)
        q_grad = torch.zeros_like(rows)
        block: Sequence[Tensor] = (k, v)
        k_grad, v_grad = (torch.zeros_like(x, dtype=out.dtype) for x in (k, v))
        with torch.autocast(q.device.type, enabled=False):
            for step in range(len(shards)):
                if step:
                    *block, k_grad, v_grad = _send_recv(
                        (*block, k_grad, v_grad), step, mesh, shards
                    )
                keys, values = (x[:, :, None].to(out.dtype) for x in block)
                for part, hidden in _visible_parts(step, mesh, shards, q.device):
                    queries, out_grad = rows[..., part, :], grad[..., part, :]
                    weights = (scale * queries @ keys.mT).sub_(total[..., part, :])
                    weights = weights.masked_fill_(hidden, -torch.inf).exp_()
                    v_grad = v_grad + (weights.mT @ out_grad).sum(2)
                    scores_grad = (out_grad @ values.mT).sub_(inner[..., part, :])
                    scores_grad = scores_grad.mul_(weights).mul_(scale)
                    q_grad[..., part, :] += scores_grad @ keys
                    k_grad = k_grad + (scores_grad.mT @ queries).sum(2)
            if len(shards) > 1:
                k_grad, v_grad = _send_recv((k_grad, v_grad), len(shards), mesh, shards)
        return q_grad.flatten(1, 2).to(q.dtype), k_grad.to(k.dtype), v_grad.to(v.dtype), *[None] * 3


def _grouped(x: Tensor, heads: int) -> Tensor:
    """Group the query heads by the key head that they read; return `[B, H_kv, G, S, D]`."""
    return x.unflatten(1, (heads, -1))


def _visible_parts(
    step: int, mesh: DeviceMesh, shards: Shards, device: torch.device
) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of up to ROWS queries that see keys of the block, with a mask of hidden keys."""
    here = mesh.get_local_rank()
    queries, keys = shards.tokens[here], shards.tokens[here - step]
    for start in range(0, len(queries), ROWS):
        part = slice(start, start + ROWS)
        mask = shards.attention_mask(queries[part], keys)
        if mask.any():
            yield part, ~mask.to(device)


def _send_recv(
    tensors: Sequence[Tensor], step: int, mesh: DeviceMesh, shards: Shards
) -> tuple[Tensor, ...]:
    """Send tensors to the next device; return the tensors that started `step` devices back."""
    group, here = mesh.get_group(), mesh.get_local_rank()
    there, back = (dist.get_global_rank(group, (here + n) % len(shards)) for n in (1, -1))
    length = len(shards.tokens[(here - step) % len(shards)])
    arrived = tuple(x.new_empty(*x.shape[:2], length, x.shape[3]) for x in tensors)
    sends = [dist.P2POp(dist.isend, x.contiguous(), there, group) for x in tensors]
    receives = [dist.P2POp(dist.irecv, x, back, group) for x in arrived]
    for work in dist.batch_isend_irecv([*sends, *receives]):
        work.wait()
    return arrived
