"""Latent attention, with a rotary part of its own: DeepSeek-V2 (arXiv 2405.04434), section 2.1.

    c_n = norm(W_c x_n),    r_n = R_n W_r x_n:    all that a cache keeps, for all heads;
    s_mn = (q_m^T W_k c_n + (R_m p_m)^T r_n) / sqrt(nope_dim + rope_dim),
    o_m  = sum_n softmax_n(s_mn) W_v c_n,

for each head, with its query (q_m, p_m) and its W_k and W_v, which make keys and values of latents.
Absorbed, this is (W_k^T q_m)^T c_n and W_v sum_n softmax_n(s_mn) c_n: no head's key or value is
formed. A rotation between q_m and W_k would forbid it, asking for another matrix at each distance.

Shapes: B batch, S sequence, E embedding width, H heads, T keys in sight.
"""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rope.attention.cache import KVCache
from rope.attention.decoding import Ids, Layer, alone, decode
from rope.module import RotaryEmbedding


class LatentAttention(nn.Module):
    """Causal multi-head latent attention with a decoupled rotary key (MLA, arXiv 2405.04434).

    latent_dim: width of c_n; rope_dim: of the rotated part of each query and of the one rotated
    key; nope_dim, value_dim: of each head's keys without position, and values; query_latent_dim:
    of a latent that queries are made of, straight from x when None.
    rotary: the `RotaryEmbedding` of width rope_dim, whose softmax_scale multiplies the scale of all
    scores; when None a plain one of half-split pairs. DeepSeek's weights are interleaved: for them
    take `RotaryEmbedding.from_config`. Parameters have the names of DeepSeek's checkpoints.
    Raises ValueError where rotary is of another width.

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
                f"rotary turns {rotary.dim} coordinates and rope_dim is {rope_dim}; they must be "
                f"equal, the rest of a head being nope_dim: pass RotaryEmbedding({rope_dim})"
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
        """Attend over x, or, with a cache, over everything the cache holds and x.

        x: `[B, S, E]`; position_ids: integers `[S]`, `[1, S]` or `[B, S]`, when None 0 ... S-1, or,
        with a cache, counted on from each row's last position; cache: a
        `KVCache(B, 1, N, rope_dim + latent_dim, value_dim=0)`, whose keys are the rotated parts and
        then the latents; attention_mask: `[B, S]`, 0 for padding, as in `RotaryAttention`.
        absorbed: whether queries are compared with the latents (True) or with keys made of them
        (False), the same but for rounding; when None, the one of fewer `multiply_adds`. Absorbed
        takes kv_b_proj's weight alone: hooks and adapters around that module act on the other form.
        Returns `[B, S, E]` in x's dtype (autocast's under autocast).
        Raises as `RotaryAttention` does; the cache is then unchanged.

        >>> layer = LatentAttention(8, 2, latent_dim=4, rope_dim=2, nope_dim=4, value_dim=4)
        >>> cache = KVCache(1, 1, 4, 2 + 4, value_dim=0)
        >>> with torch.no_grad():
        ...     first = layer(torch.ones(1, 3, 8), cache=cache)
        ...     second = layer(torch.ones(1, 1, 8), cache=cache)
        >>> second.shape, cache.length
        (torch.Size([1, 1, 8]), 4)
        """
        plain = self.query_latent_dim is None
        q = self.q_proj(x) if plain else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = q.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # [B, H, S, nope + rope]
        q = q.roll(self.rope_dim, dims=-1)  # the part to be rotated first, in queries and keys
        latent, k = self.kv_a_proj_with_mqa(x).split((self.latent_dim, self.rope_dim), dim=-1)
        latent = self.kv_a_layernorm(latent).to(k.dtype)  # autocast may widen a norm
        k = torch.cat((k, latent), dim=-1)[:, None]  # [B, 1, S, rope_dim + latent_dim]
        layer = Layer(partial(self._attend, absorbed), self.rotary)
        ids = Ids.of(k, position_ids, attention_mask)
        if cache is None:
            out = alone(layer, q, k, k[..., :0], ids, causal=True)
        else:
            out = decode(layer, cache, q, k, k[..., :0], ids)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def multiply_adds(self, queries: int, keys: int, absorbed: bool) -> int:
        """Multiplications of one row between its latents and its outputs, masked ones too.

        That is by W_k and W_v, of queries with keys, and of weights with values; the projections
        before and after cost the same in both forms.

        >>> layer = LatentAttention(8, 2, latent_dim=4, rope_dim=2, nope_dim=4, value_dim=4)
        >>> layer.multiply_adds(1, 100, absorbed=False), layer.multiply_adds(1, 100, absorbed=True)
        (8400, 2064)
        """
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
        starts: bool,
    ) -> Tensor:
        """`[B, H, S, value_dim]`; mask: bool `[B, S, T]`; starts: S is T, causal without a mask.

        q: `[B, H, S, rope_dim + nope_dim]`; k: `[B, 1, T, rope_dim + latent_dim]`.
        """
        if absorbed is None:
            sizes = q.shape[2], k.shape[2]
            absorbed = self.multiply_adds(*sizes, True) < self.multiply_adds(*sizes, False)
        scale = self.rotary.softmax_scale / math.sqrt(self.nope_dim + self.rope_dim)
        causal = starts and mask is None
        latent = k[..., self.rope_dim :]
        if absorbed:  # one key head, to which the queries of all heads are rows
            weights = self.kv_b_proj.weight.unflatten(0, (self.num_heads, -1))
            w_k, w_v = weights.split((self.nope_dim, self.value_dim), dim=1)  # [H, ..., latent_dim]
            turned, q = q.split((self.rope_dim, self.nope_dim), dim=-1)
            rows = torch.cat((turned, torch.einsum("bhsd,hdl->bhsl", q, w_k)), dim=-1)
            if causal:
                mask = q.new_ones(1, q.shape[2], q.shape[2], dtype=torch.bool).tril()
            mask = None if mask is None else mask.tile(self.num_heads, 1)[:, None]
            rows = rows.flatten(1, 2)[:, None]  # [B, 1, H*S, rope_dim + latent_dim]
            out = scaled_dot_product_attention(rows, k, latent, attn_mask=mask, scale=scale)
            return torch.einsum("bhsl,hdl->bhsd", out.unflatten(2, q.shape[1:3])[:, 0], w_v)
        expanded = self.kv_b_proj(latent[:, 0]).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        content, v = expanded.split((self.nope_dim, self.value_dim), dim=-1)  # [B, H, T, ...]
        turned = k[..., : self.rope_dim].expand(-1, self.num_heads, -1, -1)
        keys = torch.cat((turned, content), dim=-1)
        mask = None if mask is None else mask[:, None]
        return scaled_dot_product_attention(
            q, keys, v, attn_mask=mask, is_causal=causal, scale=scale
        )
