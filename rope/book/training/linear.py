"""Compute linear attention with rotary positions: RoFormer (arXiv 2104.09864), equation 19.

    o_m = sum_n (R_m phi(q_m))^T (R_n phi(k_n)) v_n  /  sum_n phi(q_m)^T phi(k_n),

with n <= m and phi(x) = elu(x) + 1 (Katharopoulos et al., arXiv 2006.16236). Each term
is a product of a function of m and a function of n, so running sums replace the S x S matrix.
Only the numerator is rotated. The denominator therefore stays positive, but weights may be negative
and don't have to sum to one.

Shapes: B batch, H heads, S sequence, D head dimension, D_v width of the values.
"""

import torch
from torch import Tensor
from torch.nn.functional import elu

from rope.functional import rotary_embedding_qk

CHUNK = 64  # tokens per matrix product: large enough to be fast, small compared with S


def linear_attention(q: Tensor, k: Tensor, v: Tensor, *tables: Tensor) -> Tensor:
    """Return the outputs o of equation 19, computed in time linear in S.

    q, k: `[B, H, S, D]`. v: `[B, H, S, D_v]`. tables: cos and sin, which `rotary_embedding` accepts
    without position_ids. If there are no tables, nothing is rotated. The function allocates a state
    `[B, H, D, D_v]`, a block of weights `[B, H, CHUNK, CHUNK]`, and the running sums of the keys
    `[B, H, S, D]`.
    Returns `[B, H, S, D_v]`. Raises the same errors as `rotary_embedding`.

    >>> cos, sin = torch.ones(3, 1), torch.zeros(3, 1)
    >>> x = torch.zeros(1, 1, 3, 2)
    >>> linear_attention(x, x, torch.arange(3.0).view(1, 1, 3, 1), cos, sin).flatten()
    tensor([0.0000, 0.5000, 1.0000])
    """
    q, k = elu(q) + 1, elu(k) + 1
    rotated = rotary_embedding_qk(q, k, *tables) if tables else (q, k)
    denominator = (q * k.cumsum(dim=-2)).sum(dim=-1, keepdim=True)  # [B, H, S, 1]
    return _running_product(*rotated, v) / denominator


def _running_product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return sum_{n <= m} (q_m^T k_n) v_n, with one state that sums over earlier chunks."""
    state = q.new_zeros(*q.shape[:2], k.shape[-1], v.shape[-1])  # sum of k_n v_n^T
    outputs = []
    for q_chunk, k_chunk, v_chunk in zip(*(x.split(CHUNK, dim=-2) for x in (q, k, v)), strict=True):
        within = (q_chunk @ k_chunk.mT).tril() @ v_chunk
        outputs.append(q_chunk @ state + within)
        state = state + k_chunk.mT @ v_chunk
    return torch.cat(outputs, dim=-2)
