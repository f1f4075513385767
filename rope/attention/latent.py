"""Compute latent attention with a decoupled rotary key (DeepSeek-V2, arXiv 2405.04434, sec. 2.1).

    c_n = norm(W_c x_n),    r_n = R_n W_r x_n    (cached; all heads share c_n and r_n),
    s_mn = (q_m^T W_k c_n + (R_m p_m)^T r_n) / sqrt(nope_dim + rope_dim),
    o_m  = sum_n softmax_n(s_mn) W_v c_n,

for each head, with its query (q_m, p_m) and its matrices W_k and W_v, which map latents to keys and
values. The absorbed form computes (W_k^T q_m)^T c_n and W_v sum_n softmax_n(s_mn) c_n instead, and
never computes keys or values per head. It works only because there is no rotation between q_m and
W_k. If there were, each distance would need its own matrix.

Shapes: B batch, S sequence, E embedding width, H heads, T visible keys.
"""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rope.attention.cache import KVCache
from rope.attention.decoding import CoreAttention
from rope.module import RotaryEmbedding


class LatentAttention(nn.Module):
    """Compute causal latent attention (MLA); heads share one latent and one rotary key per token.

    latent_dim: the width of c_n. rope_dim: the width of the shared rotated key and of each query's
    rotated part. nope_dim: the width of the unrotated part of each head's queries and keys.
    value_dim: the width of each head's values. query_latent_dim: the width of the latent from which
    queries are projected. If None, queries are projected from x.
    rotary: a `RotaryEmbedding` of width rope_dim. Its softmax_scale multiplies all scores. If None,
    the layer creates one with half-split pairs. DeepSeek's weights need interleaved pairs: create
    rotary with `RotaryEmbedding.from_config`. Parameters are named as in DeepSeek's checkpoints.
    Raises ValueError if rotary.dim is not rope_dim.

    >>> layer = LatentAttention(16, 4, latent_dim=8, rope_dim=2, nope_dim=4, value_dim=4)
    >>> layer(torch.ones(1, 5, 16)).shape
    torch.Size([1, 5, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        latent_dim: int,
        rope_dim: int,
        nope_dim: int,
        value_dim: int,
        query_latent_dim: int | None = None,
        rotary: RotaryEmbedding | None = None,
    ) -> None:
        super().__init__()
        rotary = RotaryEmbedding(rope_dim) if rotary is None else rotary
        if rotary.dim != rope_dim:
            raise ValueError(
                f"rotary.dim is {rotary.dim} but must equal rope_dim, which is {rope_dim}; "
                f"pass RotaryEmbedding({rope_dim})"
            )
        self.num_heads, self.query_latent_dim, self.rotary = num_heads, query_latent_dim, rotary
        self.latent_dim, self.rope_dim = latent_dim, rope_dim
        self.nope_dim, self.value_dim = nope_dim, value_dim
        queries = num_heads * (nope_dim + rope_dim)
        if query_latent_dim is None:
            self.q_proj = nn.Linear(embed_dim, queries, bias=False)
        else:
            self.q_a_proj = nn.Linear(embed_dim, query_latent_dim, bias=False)
            self.q_a_layernorm = nn.RMSNorm(query_latent_dim, eps=1e-6)
            self.q_b_proj = nn.Linear(query_latent_dim, queries, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(embed_dim, latent_dim + rope_dim, bias=False)
        self.kv_a_layernorm = nn.RMSNorm(latent_dim, eps=1e-6)
        self.kv_b_proj = nn.Linear(latent_dim, num_heads * (nope_dim + value_dim), bias=False)
        self.o_proj = nn.Linear(num_heads * value_dim, embed_dim, bias=False)

    def forward(
        self,
        x: Tensor,
        position_ids: Tensor | None = None,
        *,
        cache: KVCache | None = None,
        attention_mask: Tensor | None = None,
        absorbed: bool | None = None,
    ) -> Tensor:
        """Attend over x and, if there is a cache, over all cached tokens.

        x: `[B, S, E]`. position_ids, attention_mask: see `RotaryAttention.forward`. cache: a
        `KVCache(B, 1, N, rope_dim + latent_dim, value_dim=0)`. Each cached key is the rotated part
        followed by the latent.
        absorbed: True compares queries with the latents; False compares queries with keys computed
        from the latents. Both results are equal up to rounding. None chooses the form with fewer
        multiplications. The absorbed form reads only kv_b_proj.weight, so hooks and adapters on
        kv_b_proj don't run.
        Returns `[B, S, E]` in x's dtype (autocast's dtype under autocast).
        Raises the same errors as `RotaryAttention.forward`. After an error, the cache is unchanged.

        >>> layer = LatentAttention(8, 2, latent_dim=4, rope_dim=2, nope_dim=4, value_dim=4)
        >>> cache = KVCache(1, 1, 4, 2 + 4, value_dim=0)
        >>> with torch.no_grad():
        ...     first = layer(torch.ones(1, 3, 8), cache=cache)
        ...     second = layer(torch.ones(1, 1, 8), cache=cache)
        >>> second.shape, cache.length
        (torch.Size([1, 1, 8]), 4)
        """
        if self.query_latent_dim is None:
            q = self.q_proj(x)
        else:
            q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = q.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # [B, H, S, nope + rope]
        q = q.roll(self.rope_dim, dims=-1)  # put the rotated part first, as in k
        latent, k = self.kv_a_proj_with_mqa(x).split((self.latent_dim, self.rope_dim), dim=-1)
        latent = self.kv_a_layernorm(latent).to(k.dtype)  # under autocast, norms can return float32
        k = torch.cat((k, latent), dim=-1)[:, None]  # [B, 1, S, rope_dim + latent_dim]
        core = CoreAttention(partial(self._attend, absorbed), self.rotary)
        out = core(q, k, k[..., :0], cache, position_ids, attention_mask)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def _multiplications(self, queries: int, keys: int, absorbed: bool) -> int:
        """Count one form's multiplications per batch row, without steps that both forms share."""
        content = 2 * self.latent_dim if absorbed else self.nope_dim + self.value_dim
        expanded = (queries if absorbed else keys) * (self.nope_dim + self.value_dim)
        pairs = queries * keys * (content + self.rope_dim)
        return self.num_heads * (expanded * self.latent_dim + pairs)

    def _attend(
        self,
        absorbed: bool | None,
        q: Tensor,
        k: Tensor,
        _: Tensor,
        mask: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        """Return the heads' outputs `[B, H, S, value_dim]`.

        q: `[B, H, S, rope_dim + nope_dim]`; k: `[B, 1, T, rope_dim + latent_dim]`; mask: bool
        `[B, S, T]`; is_causal: if True and mask is None, attention is causal, and S = T.
        """
        if absorbed is None:
            sizes = q.shape[2], k.shape[2]
            absorbed = self._multiplications(*sizes, True) < self._multiplications(*sizes, False)
        scale = self.rotary.softmax_scale / math.sqrt(self.nope_dim + self.rope_dim)
        causal = is_causal and mask is None
        latent = k[..., self.rope_dim :]
        if absorbed:  # there is one key head, so the queries of all heads become rows of one head
            weights = self.kv_b_proj.weight.unflatten(0, (self.num_heads, -1))
            w_k, w_v = weights.split((self.nope_dim, self.value_dim), dim=1)  # [H, ..., latent_dim]
            rotated, q = q.split((self.rope_dim, self.nope_dim), dim=-1)
            rows = torch.cat((rotated, torch.einsum("bhsd,hdl->bhsl", q, w_k)), dim=-1)
            if causal:
                mask = q.new_ones(1, q.shape[2], q.shape[2], dtype=torch.bool).tril()
            mask = None if mask is None else mask.tile(self.num_heads, 1)[:, None]
            rows = rows.flatten(1, 2)[:, None]  # [B, 1, H*S, rope_dim + latent_dim]
            out = scaled_dot_product_attention(rows, k, latent, attn_mask=mask, scale=scale)
            return torch.einsum("bhsl,hdl->bhsd", out.unflatten(2, q.shape[1:3])[:, 0], w_v)
        expanded = self.kv_b_proj(latent[:, 0]).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        content, v = expanded.split((self.nope_dim, self.value_dim), dim=-1)  # [B, H, T, ...]
        rotated = k[..., : self.rope_dim].expand(-1, self.num_heads, -1, -1)
        keys = torch.cat((rotated, content), dim=-1)
        mask = None if mask is None else mask[:, None]
        return scaled_dot_product_attention(
            q, keys, v, attn_mask=mask, is_causal=causal, scale=scale
        )
