"""Causal attention with rotary positions: chapter "Rotary attention".

    o_m = sum_n softmax_n( (R_m q_m)^T (R_n k_n) / sqrt(D) ) v_n,

q, k, v projections of x, H query heads sharing H_kv key heads (grouped queries).

Shapes: B batch, S sequence, E embedding width, H heads, D head dimension, T keys in sight.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rope.attention.cache import KVCache
from rope.attention.packed import check_segment_ids, same_segment
from rope.checks import check_count, check_flag, check_floating
from rope.module import RotaryEmbedding


class RotaryAttention(nn.Module):
    """Multi-head or grouped-query attention whose queries and keys are rotated to their positions.

    num_kv_heads: H_kv, a divisor of H (all of them when None); head_dim: embed_dim / num_heads
    when None; bias: of the four projections.
    rotary: the `RotaryEmbedding`, which layers may share, say `RotaryEmbedding.from_config(...)`;
    when None one of head_dim's width. Its softmax_scale multiplies the usual scale of the scores.
    A configuration says more of attention (norms, windows, soft caps) than this layer has, so there
    is no from_config of it.
    Raises ValueError or TypeError for sizes that do not fit.

    >>> layer = RotaryAttention(embed_dim=16, num_heads=4, num_kv_heads=2)
    >>> layer(torch.ones(1, 5, 16)).shape
    torch.Size([1, 5, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        *,
        head_dim: int | None = None,
        rotary: RotaryEmbedding | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_count("embed_dim", embed_dim)
        check_count("num_heads", num_heads)
        check_count("num_kv_heads", num_kv_heads)
        check_flag("bias", bias)
        if num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads is {num_kv_heads}; it must divide num_heads, {num_heads}, so that "
                "each key head serves as many query heads: pass one of its divisors"
            )
        if head_dim is None:
            if embed_dim % num_heads:
                raise ValueError(
                    f"embed_dim is {embed_dim}; it must be a multiple of num_heads, {num_heads}: "
                    "change one of them, or give head_dim"
                )
            head_dim = embed_dim // num_heads
        check_count("head_dim", head_dim)
        rotary = RotaryEmbedding(head_dim) if rotary is None else rotary
        if not isinstance(rotary, RotaryEmbedding):
            raise TypeError(
                f"rotary is a {type(rotary).__name__}; it must be a rope.RotaryEmbedding, or None: "
                "pass RotaryEmbedding(head_dim)"
            )
        if rotary.dim > head_dim:
            raise ValueError(
                f"rotary turns {rotary.dim} coordinates and a head has {head_dim}; it must have "
                f"them: pass RotaryEmbedding({head_dim}), or less for a part of each head"
            )
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.rotary = rotary
        self.q_proj = nn.Linear(embed_dim, num_heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, num_kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, num_kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(num_heads * head_dim, embed_dim, bias=bias)

    def forward(
        self,
        x: Tensor,
        position_ids: Tensor | None = None,
        *,
        cache: KVCache | None = None,
        segment_ids: Tensor | None = None,
        causal: bool = True,
    ) -> Tensor:
        """Attend over x, or, with a cache, over everything the cache holds and x.

        x: `[B, S, E]`; position_ids: integers `[S]` or `[B, S]`, when None 0 ... S-1, or, with a
        cache, counted on from each row's last position; segment_ids: integers `[S]` or `[B, S]`,
        sequences of one row, or its padding, that do not see each other, at the cost of a mask
        `[S, T]`; when None a cache goes on with each row's last. A cache takes the last token of
        each row for the one to go on from: rows padded on the right need both ids with the first
        step after the prompt too. With a cache, an extension that depends on the length scales to
        all that the cache has room for.
        Returns `[B, S, E]` in x's dtype (autocast's under autocast).
        Raises ValueError for shapes or devices that do not fit, a cache that is full, is not causal
        or gets segment_ids late, TypeError for wrong dtypes; the cache is then unchanged.

        >>> layer = RotaryAttention(8, 2)
        >>> cache = KVCache(1, 2, max_seq_len=4, head_dim=4)
        >>> with torch.no_grad():
        ...     first = layer(torch.ones(1, 3, 8), cache=cache)
        ...     second = layer(torch.ones(1, 1, 8), cache=cache)
        >>> second.shape, cache.length
        (torch.Size([1, 1, 8]), 4)
        """
        self._check(x, cache, segment_ids, causal)
        q = self._heads(self.q_proj(x), self.num_heads)  # [B, H, S, D]
        k = self._heads(self.k_proj(x), self.num_kv_heads)  # [B, H_kv, S, D]
        v = self._heads(self.v_proj(x), self.num_kv_heads)  # [B, H_kv, S, D]
        past = 0 if cache is None else cache.length
        seq_len = None
        if cache is not None:
            cache.check(k, v, position_ids, segment_ids)
            position_ids, segment_ids = cache.next_ids(x.shape[1], position_ids, segment_ids)
            if self.rotary.fixed_length is None and self.rotary.extension.length_dependent:
                # Keys stay as they were rotated, so one length must hold for all: the longest.
                seq_len = cache.keys.shape[2]
        offset = past if position_ids is None else 0
        q, k = self.rotary(q, k, position_ids, offset=offset, seq_len=seq_len)
        if cache is not None:
            k, v = cache.append(k, v, position_ids, segment_ids)
        keys_of = segment_ids if cache is None else cache.segment_ids
        mask = self._mask(x, past, segment_ids, keys_of, causal)
        scale = self.rotary.softmax_scale
        starts = not past  # a bool under torch.compile too, where past == 0 stays a symbol
        out = scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            is_causal=causal and mask is None and starts,
            scale=None if scale == 1 else scale / math.sqrt(self.head_dim),
            enable_gqa=self.num_heads != self.num_kv_heads,
        )  # [B, H, S, D]
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor, num_heads: int) -> Tensor:
        """`[B, S, H*D]` to `[B, H, S, D]`."""
        return x.unflatten(-1, (num_heads, self.head_dim)).transpose(1, 2)

    def _mask(
        self,
        x: Tensor,
        past: int,
        segment_ids: Tensor | None,
        key_segment_ids: Tensor | None,
        causal: bool,
    ) -> Tensor | None:
        """The keys in sight, bool `[S, T]` or `[B, 1, S, T]`; None where the kernel knows them."""
        if segment_ids is not None:
            mask = same_segment(segment_ids, key_segment_ids)
            mask = mask.tril(diagonal=past) if causal else mask
            return mask.unsqueeze(1) if mask.dim() == 3 else mask
        if past == 0 or x.shape[1] == 1:
            return None
        # is_causal would line up the first query with the first key of the cache.
        seq_len = x.shape[1]
        everything = torch.ones(seq_len, past + seq_len, dtype=torch.bool, device=x.device)
        return everything.tril(diagonal=past)

    def _check(
        self, x: Tensor, cache: KVCache | None, segment_ids: Tensor | None, causal: bool
    ) -> None:
        check_floating("x", x)
        check_flag("causal", causal)
        embed_dim = self.q_proj.in_features
        if x.dim() != 3 or x.shape[-1] != embed_dim:
            raise ValueError(
                f"x has shape {list(x.shape)}; it must be [batch, sequence, {embed_dim}]: add a "
                "missing batch axis with unsqueeze(0), or make the layer for another embed_dim"
            )
        if segment_ids is not None:
            check_segment_ids(segment_ids, x=x)
        if cache is not None and not isinstance(cache, KVCache):
            raise TypeError(
                f"cache is a {type(cache).__name__}; it must be a rope.attention.KVCache, one for "
                "each layer: make one, or keep keys and values yourself and call the rotary part"
            )
        if cache is not None and not causal:
            raise ValueError(
                "causal is False with a cache; cached tokens cannot see later ones: "
                "leave the cache out"
            )
