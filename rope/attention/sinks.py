"""Sinks whose distances end at the size of the cache: chapter "Keys that move".

    s_mn = (R_m q)^T (R_n k) / sqrt(D),    for a sink n    (R_min(m, span-1) q)^T (R_n k) / sqrt(D).

In a cache of span slots query m stands at min(m, span-1), and sinks see it there; for the others
only m - n counts. It is rotated twice, and no key is moved (StreamingLLM, arXiv 2309.17453).

Shapes: B batch, H heads, H_kv key heads, S queries, T keys, D head dimension, D_v that of values.
"""

import torch
from torch import Tensor


def attention_with_sinks(
    q: Tensor, near: Tensor, k: Tensor, v: Tensor, mask: Tensor, sinks: Tensor, scale: float
) -> Tensor:
    """Attention in which some keys see the queries at other positions: `[B, H, S, D_v]`.

    q: `[B, H, S, D]`, and near, the same, rotated as the sinks see them; k: `[B, H_kv, T, D]`;
    v: `[B, H_kv, T, D_v]`; mask: bool `[B, S, T]`; sinks: bool `[B, T]`, which keys they are.
    The scores of all queries with all keys are held, twice, in float32 at least.

    >>> q, k = torch.ones(1, 1, 1, 2), torch.eye(2)[None, None]
    >>> mask, sinks = torch.ones(1, 1, 2, dtype=torch.bool), torch.tensor([[True, False]])
    >>> weights = attention_with_sinks(q, 3 * q, k, k, mask, sinks, scale=1.0)[0, 0, 0]
    >>> torch.allclose(weights, torch.tensor([3.0, 1.0]).softmax(0))
    True
    """
    heads, held = k.shape[1], torch.promote_types(q.dtype, torch.float32)
    rows = torch.stack((q, near), dim=2).unflatten(1, (heads, -1))  # [B, H_kv, H/H_kv, 2, S, D]
    with torch.autocast(q.device.type, enabled=False):  # or it would undo the float32
        scores = rows.to(held).flatten(2, 4) @ k.to(held).mT
        far, close = scores.unflatten(2, rows.shape[2:5]).unbind(dim=3)  # [B, H_kv, H/H_kv, S, T]
        scores = scale * torch.where(sinks[:, None, None, None], close, far)
        weights = scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(dim=-1)
        out = weights.flatten(2, 3) @ v.to(held)
    return out.unflatten(2, weights.shape[2:4]).flatten(1, 2).to(q.dtype)
