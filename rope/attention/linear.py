"""Linear attention with rotary positions: RoFormer (arXiv 2104.09864), equation 19.

    o_m = sum_n (R_m phi(q_m))^T (R_n phi(k_n)) v_n  /  sum_n phi(q_m)^T phi(k_n),

n <= m when causal. Numerator and denominator are sums over n of products, so a running sum
replaces the S x S matrix. The rotation enters the numerator alone: the denominator stays
positive, but the weights may be negative and need not sum to one.

Shapes: B batch, H heads, S sequence, D head dimension, D_v width of the values.
"""

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import elu

from rope.checks import check_heads
from rope.functional import rotary_embedding_qk

FeatureMap = Callable[[Tensor], Tensor]
CHUNK = 64  # tokens handled at once: large enough for matmuls, small beside any S that matters


def elu_plus_one(x: Tensor) -> Tensor:
    """phi(x) = elu(x) + 1, positive: the feature map of Katharopoulos et al. (arXiv 2006.16236).

    >>> elu_plus_one(torch.tensor([0.0, 2.0]))
    tensor([1., 3.])
    """
    return elu(x) + 1


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    feature_map: FeatureMap = elu_plus_one,
    causal: bool = True,
    interleaved: bool = False,
    rotate: bool = True,
) -> Tensor:
    """Equation 19 at a cost linear in S.

    q, k: `[B, H, S, D]`; v: `[B, H, S, D_v]`; cos, sin: as `rotary_embedding` takes them without
    position_ids. rotate=False leaves out the rotation. Returns `[B, H, S, D_v]` in v's dtype, the
    arithmetic in float32 or wider. Beside its inputs it holds one state `[B, H, D, D_v]`, one
    `CHUNK x CHUNK` block of weights a head, and running sums of the keys `[B, H, S, D]`.
    Raises as `rotary_embedding` does, and ValueError when q, k, v do not agree.

    >>> cos, sin = torch.ones(3, 1), torch.zeros(3, 1)
    >>> x = torch.zeros(1, 1, 3, 2)
    >>> linear_attention(x, x, torch.arange(3.0).view(1, 1, 3, 1), cos, sin).flatten()
    tensor([0.0000, 0.5000, 1.0000])
    """
    q, k, values = _features(q, k, v, feature_map)
    turned = rotary_embedding_qk(q, k, cos, sin, interleaved=interleaved) if rotate else (q, k)
    with _wide_sums(q):
        if causal:
            numerator = _running_product(*turned, values)
            key_sums = k.cumsum(dim=-2)  # [B, H, S, D]
        else:
            numerator = turned[0] @ (turned[1].mT @ values)
            key_sums = k.sum(dim=-2, keepdim=True)  # [B, H, 1, D]
        denominator = (q * key_sums).sum(dim=-1, keepdim=True)  # [B, H, S, 1]
        return (numerator / denominator).to(v.dtype)


def linear_attention_quadratic(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    feature_map: FeatureMap = elu_plus_one,
    causal: bool = True,
    interleaved: bool = False,
    rotate: bool = True,
) -> Tensor:
    """The same numbers through the S x S weights: what `linear_attention` is checked against.

    Arguments, result and errors are those of `linear_attention`.

    >>> cos, sin = torch.ones(3, 1), torch.zeros(3, 1)
    >>> x = torch.zeros(1, 1, 3, 2)
    >>> linear_attention_quadratic(x, x, torch.arange(3.0).view(1, 1, 3, 1), cos, sin).flatten()
    tensor([0.0000, 0.5000, 1.0000])
    """
    q, k, values = _features(q, k, v, feature_map)
    turned = rotary_embedding_qk(q, k, cos, sin, interleaved=interleaved) if rotate else (q, k)
    with _wide_sums(q):
        rotated, plain = turned[0] @ turned[1].mT, q @ k.mT  # [B, H, S, S]
        if causal:
            rotated, plain = rotated.tril(), plain.tril()
        weights = rotated / plain.sum(dim=-1, keepdim=True)
        return (weights @ values).to(v.dtype)


def _features(
    q: Tensor, k: Tensor, v: Tensor, feature_map: FeatureMap
) -> tuple[Tensor, Tensor, Tensor]:
    """phi(q), phi(k) and v, widened to float32 at least."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_heads(name, tensor, rotary_dim=0)
    if q.shape != k.shape or q.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"q, k, v have shapes {list(q.shape)}, {list(k.shape)}, {list(v.shape)}; q and k must "
            "be equal and v share their first three axes: repeat the key heads for grouped queries"
        )
    wide = reduce(torch.promote_types, (x.dtype for x in (q, k, v)), torch.float32)
    return feature_map(q.to(wide)), feature_map(k.to(wide)), v.to(wide)


def _wide_sums(x: Tensor) -> torch.autocast:
    """A context in which autocast leaves sums over a whole sequence alone."""
    return torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False)


def _running_product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """sum_{n <= m} (q_m^T k_n) v_n, chunk by chunk: earlier chunks through their summed state."""
    state = q.new_zeros(*q.shape[:2], k.shape[-1], v.shape[-1])  # sum of k_n v_n^T
    outputs = []
    for q_chunk, k_chunk, v_chunk in zip(*(x.split(CHUNK, dim=-2) for x in (q, k, v)), strict=True):
        within = (q_chunk @ k_chunk.mT).tril() @ v_chunk
        outputs.append(q_chunk @ state + within)
        state = state + k_chunk.mT @ v_chunk
    return torch.cat(outputs, dim=-2)
