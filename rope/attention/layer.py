"""Causal attention with rotary positions: chapter "Rotary attention".

    o_m = sum_n softmax_n( (R_m q_m)^T (R_n k_n) / sqrt(D) ) v_n,

q, k, v projections of x, H query heads sharing H_kv key heads (grouped queries).

Shapes: B batch, S sequence, E embedding width, H heads, D head dimension, T keys in sight.
"""

import math

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rope.attention.cache import KVCache
from rope.attention.decoding import Ids, Layer, alone, decode
from rope.checks import check_count
from rope.module import RotaryEmbedding


class RotaryAttention(nn.Module):
    """Multi-head or grouped-query attention whose queries and keys are rotated to their positions.

    num_kv_heads: H_kv, a divisor of H (all of them when None); head_dim: embed_dim / num_heads
    when None; bias: of the four projections.
    rotary: the `RotaryEmbedding`, which layers may share, say `RotaryEmbedding.from_config(...)`;
    when None one of head_dim's width. Its softmax_scale multiplies the usual scale of the scores.
    window: how many positions a token sees, its own among them, all when None; sinks: the positions
    0 ... sinks-1 that stay in sight (StreamingLLM, arXiv 2309.17453), at distances in the text.
    A configuration says more of attention (norms, soft caps) than this layer has, so there is no
    from_config of it.
    Raises ValueError for sizes that do not divide, and for sinks without a window.

    >>> import torch
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
        window: int | None = None,
        sinks: int = 0,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
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
        check_count("sinks", sinks, smallest=0)
        if window is not None:
            check_count("window", window, smallest=2)  # of one, a token sees itself alone
        elif sinks:
            raise ValueError(
                f"sinks is {sinks} and window None; sinks are what stays in sight outside of a "
                "window: pass window, or leave sinks out"
            )
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.rotary = RotaryEmbedding(head_dim) if rotary is None else rotary
        self.window, self.sinks = window, sinks
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
        attention_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        causal: bool = True,
    ) -> Tensor:
        """Attend over x, or, with a cache, over everything the cache holds and x.

        x: `[B, S, E]`; position_ids: integers `[S]`, `[1, S]` or `[B, S]`, when None 0 ... S-1, or,
        with a cache, counted on from each row's last; attention_mask: `[B, S]`, bool or integers,
        0 for padding on either side, which no token sees and which counts for no position;
        segment_ids: integers `[S]`, `[1, S]` or `[B, S]`, sequences of one row that do not see each
        other; when None a cache goes on with each row's last. Each costs a mask `[B, S, T]`.
        With a window a cache of window + sinks slots never fills; compiled steps still end with the
        rotary tables, see `RotaryEmbedding.grow`. Given ids should rise: of two tokens whose ids
        fall, the later one sees the other only in the same call. With a cache, an extension that
        depends on the length scales to all that the cache has room for.
        Returns `[B, S, E]` in x's dtype (autocast's under autocast); of padding, anything finite.
        Raises ValueError for shapes or devices that do not fit, a cache that is full, is not causal
        or gets segment_ids late, TypeError for wrong dtypes; the cache is then unchanged.

        >>> import torch
        >>> layer = RotaryAttention(8, 2)
        >>> cache = KVCache(1, 2, max_seq_len=4, head_dim=4)
        >>> with torch.no_grad():
        ...     first = layer(torch.ones(1, 3, 8), cache=cache)
        ...     second = layer(torch.ones(1, 1, 8), cache=cache)
        >>> second.shape, cache.length
        (torch.Size([1, 1, 8]), 4)
        """
        if cache is not None and not causal:
            raise ValueError(
                "causal is False with a cache; cached tokens cannot see later ones: "
                "leave the cache out"
            )
        if self.window is not None and (
            not causal or (cache is not None and segment_ids is not None)
        ):
            raise ValueError(
                f"window is {self.window}; tokens must be causal, and in a cache of one sequence a "
                "row: leave causal and segment_ids out (attention_mask tells padding)"
            )
        q = self._heads(self.q_proj(x), self.num_heads)  # [B, H, S, D]
        k = self._heads(self.k_proj(x), self.num_kv_heads)  # [B, H_kv, S, D]
        v = self._heads(self.v_proj(x), self.num_kv_heads)  # [B, H_kv, S, D]
        ids = Ids.of(k, position_ids, attention_mask, segment_ids)
        layer = Layer(self._attend, self.rotary, self.window, self.sinks)
        if cache is None:
            out = alone(layer, q, k, v, ids, causal=causal)
        else:
            out = decode(layer, cache, q, k, v, ids)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor, num_heads: int) -> Tensor:
        """`[B, S, H*D]` to `[B, H, S, D]`."""
        return x.unflatten(-1, (num_heads, self.head_dim)).transpose(1, 2)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool
    ) -> Tensor:
        """`[B, H, S, D]`; mask: bool `[B, S, T]`."""
        scale = self.rotary.softmax_scale
        return scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=None if mask is None else mask[:, None],
            is_causal=is_causal and mask is None,
            scale=None if scale == 1 else scale / math.sqrt(self.head_dim),
            enable_gqa=self.num_heads != self.num_kv_heads,
        )
