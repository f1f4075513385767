"""Latent attention, with a rotary part of its own: DeepSeek-V2 (arXiv 2405.04434), section 2.1.

    c_n = norm(W_c x_n),    r_n = R_n W_r x_n,    both of them all that a cache keeps;
    s_mn = (q_m^T W_k c_n + (R_m p_m)^T r_n) / sqrt(nope_dim + rope_dim),
    o_m  = sum_n softmax_n(s_mn) W_v c_n,

for each head, whose query is (q_m, p_m), and whose W_k and W_v make keys and values of the latent.
Nothing stands between q_m and W_k but a transpose, so it may as well be (W_k^T q_m)^T c_n and
W_v sum_n softmax_n(s_mn) c_n: no key or value of a head is formed. A rotation between them would
forbid that, a matrix W_k^T R_{m-n} q_m for every distance; hence r_n, which all heads share.

Shapes: B batch, S sequence, E embedding width, H heads, T keys in sight.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rope.attention.cache import KVCache
from rope.checks import check_count, check_dim, check_flag, check_floating, check_number
from rope.module import RotaryEmbedding


class LatentAttention(nn.Module):
    """Causal multi-head latent attention with the decoupled rotary key (MLA, arXiv 2405.04434).

    latent_dim: width of c_n; rope_dim: of the rotated part of queries, and of the one rotated key;
    nope_dim, value_dim: of each head's keys without position, and values. query_latent_dim: queries
    come of a latent too; straight from x when None. norm_eps: of the latents' RMS norms.
    rotary: the `RotaryEmbedding` of width rope_dim, whose softmax_scale multiplies the scale of all
    scores; when None a plain one, of half-split pairs. DeepSeek's weights are interleaved: for them
    take `RotaryEmbedding.from_config`. Parameters have the names of DeepSeek's checkpoints.
    Raises ValueError or TypeError for sizes that do not fit.

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
        norm_eps: float = 1e-6,
    ) -> None:
        super().__init__()
        sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "latent_dim": latent_dim}
        sizes |= {"nope_dim": nope_dim, "value_dim": value_dim}
        if query_latent_dim is not None:
            sizes["query_latent_dim"] = query_latent_dim
        for name, size in sizes.items():
            check_count(name, size)
        check_dim(rope_dim, "rope_dim")
        check_number("norm_eps", norm_eps, at_least=0)
        rotary = RotaryEmbedding(rope_dim) if rotary is None else rotary
        if not isinstance(rotary, RotaryEmbedding):
            raise TypeError(
                f"rotary is a {type(rotary).__name__}; it must be a rope.RotaryEmbedding, or None: "
                f"pass RotaryEmbedding({rope_dim})"
            )
        if rotary.dim != rope_dim:
            raise ValueError(
                f"rotary turns {rotary.dim} coordinates and rope_dim is {rope_dim}; they must be "
                f"equal, the rest of a head being nope_dim: pass RotaryEmbedding({rope_dim})"
            )
        self.num_heads, self.latent_dim, self.rope_dim = num_heads, latent_dim, rope_dim
        self.nope_dim, self.value_dim, self.query_latent_dim = nope_dim, value_dim, query_latent_dim
        self.rotary = rotary
        queries = num_heads * (nope_dim + rope_dim)
        if query_latent_dim is None:
            self.q_proj = nn.Linear(embed_dim, queries, bias=False)
        else:
            self.q_a_proj = nn.Linear(embed_dim, query_latent_dim, bias=False)
            self.q_a_layernorm = nn.RMSNorm(query_latent_dim, eps=norm_eps)
            self.q_b_proj = nn.Linear(query_latent_dim, queries, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(embed_dim, latent_dim + rope_dim, bias=False)
        self.kv_a_layernorm = nn.RMSNorm(latent_dim, eps=norm_eps)
        self.kv_b_proj = nn.Linear(latent_dim, num_heads * (nope_dim + value_dim), bias=False)
        self.o_proj = nn.Linear(num_heads * value_dim, embed_dim, bias=False)

    def forward(
        self,
        x: Tensor,
        position_ids: Tensor | None = None,
        *,
        cache: KVCache | None = None,
        absorbed: bool | None = None,
    ) -> Tensor:
        """Attend over x, or, with a cache, over everything the cache holds and x.

        x: `[B, S, E]`; position_ids: integers `[S]` or `[B, S]`, when None 0 ... S-1, or, with a
        cache, counted on from each row's last position; cache: a
        `KVCache(B, 1, N, rope_dim, value_dim=latent_dim)`, whose keys are the rotated keys and
        whose values the latents. absorbed: whether to compare queries with the latents themselves
        (True) or with keys made of them (False), equal but for rounding; when None, the one of
        fewer `multiply_adds`.
        Returns `[B, S, E]` in x's dtype (autocast's under autocast).
        Raises as `RotaryAttention` does; the cache is then unchanged.

        >>> layer = LatentAttention(8, 2, latent_dim=4, rope_dim=2, nope_dim=4, value_dim=4)
        >>> cache = KVCache(1, 1, 4, 2, value_dim=4)
        >>> with torch.no_grad():
        ...     first = layer(torch.ones(1, 3, 8), cache=cache)
        ...     second = layer(torch.ones(1, 1, 8), cache=cache)
        >>> second.shape, cache.length
        (torch.Size([1, 1, 8]), 4)
        """
        self._check(x, cache, absorbed)
        seq_len = x.shape[1]
        q, q_rope = self._queries(x).split((self.nope_dim, self.rope_dim), dim=-1)  # [B, H, S, ...]
        latent, k_rope = self.kv_a_proj_with_mqa(x)[:, None].split(
            (self.latent_dim, self.rope_dim), dim=-1
        )  # [B, 1, S, latent_dim], [B, 1, S, rope_dim]
        latent = self.kv_a_layernorm(latent).to(k_rope.dtype)  # autocast widens a norm
        past, longest = 0, None
        if cache is not None:
            past = cache.length
            cache.check(k_rope, latent, position_ids)
            position_ids, _ = cache.next_ids(seq_len, position_ids, None)
            if self.rotary.fixed_length is None and self.rotary.extension.length_dependent:
                longest = cache.keys.shape[2]  # one length must hold for all keys
        offset = past if position_ids is None else 0
        q_rope, k_rope = self.rotary(q_rope, k_rope, position_ids, offset=offset, seq_len=longest)
        if cache is not None:
            k_rope, latent = cache.append(k_rope, latent, position_ids)
        if absorbed is None:
            naive, folded = (
                self.multiply_adds(seq_len, past + seq_len, way) for way in (False, True)
            )
            absorbed = folded < naive
        attend = self._absorbed if absorbed else self._naive
        mask = self._mask(x, past)
        out = attend(q, q_rope, latent, k_rope, mask)  # [B, H, S, value_dim]
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def multiply_adds(self, queries: int, keys: int, absorbed: bool) -> int:
        """Multiplications of one row's queries with its keys, from the latents to the outputs.

        Counted are the products with W_k and W_v, the scores, and the sums of values, masked or
        not; the projections of x and of the output cost the same in both forms.

        >>> layer = LatentAttention(8, 2, latent_dim=4, rope_dim=2, nope_dim=4, value_dim=4)
        >>> layer.multiply_adds(1, 100, absorbed=False), layer.multiply_adds(1, 100, absorbed=True)
        (8400, 2064)
        """
        made = self.latent_dim * (self.nope_dim + self.value_dim)  # by W_k and W_v
        if absorbed:
            each = queries * made + queries * keys * (2 * self.latent_dim + self.rope_dim)
        else:
            width = self.nope_dim + self.rope_dim + self.value_dim
            each = keys * made + queries * keys * width
        return self.num_heads * each

    def _queries(self, x: Tensor) -> Tensor:
        """`[B, H, S, nope_dim + rope_dim]`."""
        if self.query_latent_dim is None:
            q = self.q_proj(x)
        else:
            q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        return q.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _naive(
        self, q: Tensor, q_rope: Tensor, latent: Tensor, k_rope: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Keys and values of every head made of the latents."""
        made = self.kv_b_proj(latent[:, 0]).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k, v = made.split((self.nope_dim, self.value_dim), dim=-1)  # [B, H, T, ...]
        k = torch.cat((k, k_rope.expand(-1, self.num_heads, -1, -1)), dim=-1)
        return self._attend(torch.cat((q, q_rope), dim=-1), k, v, mask)

    def _absorbed(
        self, q: Tensor, q_rope: Tensor, latent: Tensor, k_rope: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Queries brought to the latents: one key head, to which all heads' queries are rows."""
        weights = self.kv_b_proj.weight.unflatten(0, (self.num_heads, -1))
        w_k, w_v = weights.split((self.nope_dim, self.value_dim), dim=1)  # [H, ..., latent_dim]
        q = torch.cat((torch.einsum("bhsd,hdl->bhsl", q, w_k), q_rope), dim=-1)
        k = torch.cat((latent, k_rope), dim=-1)  # [B, 1, T, latent_dim + rope_dim]
        rows = None if mask is None else mask.tile(self.num_heads, 1)
        out = self._attend(q.flatten(1, 2)[:, None], k, latent, rows)  # [B, 1, H*S, latent_dim]
        out = out.unflatten(2, (self.num_heads, -1))[:, 0]
        return torch.einsum("bhsl,hdl->bhsd", out, w_v)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        scale = self.rotary.softmax_scale / math.sqrt(self.nope_dim + self.rope_dim)
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)

    def _mask(self, x: Tensor, past: int) -> Tensor | None:
        """The keys in sight, bool `[S, T]`."""
        seq_len = x.shape[1]
        if seq_len == 1:
            return None
        everything = torch.ones(seq_len, past + seq_len, dtype=torch.bool, device=x.device)
        return everything.tril(diagonal=past)

    def _check(self, x: Tensor, cache: KVCache | None, absorbed: bool | None) -> None:
        check_floating("x", x)
        if absorbed is not None:
            check_flag("absorbed", absorbed)
        embed_dim = self.o_proj.out_features
        if x.dim() != 3 or x.shape[-1] != embed_dim:
            raise ValueError(
                f"x has shape {list(x.shape)}; it must be [batch, sequence, {embed_dim}]: add a "
                "missing batch axis with unsqueeze(0), or make the layer for another embed_dim"
            )
        if cache is not None and not isinstance(cache, KVCache):
            raise TypeError(
                f"cache is a {type(cache).__name__}; it must be a rope.attention.KVCache, one for "
                "each layer: make one"
            )
