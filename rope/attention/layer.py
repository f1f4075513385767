"""Compute causal attention with rotary positions (see the chapter "Rotary attention").

    o_m = sum_n softmax_n( (R_m q_m)^T (R_n k_n) / sqrt(D) ) v_n,

where q, k, and v are projections of x, and H query heads share H_kv key heads (grouped queries).

Shapes: B batch, S sequence, E embedding width, H heads, D head dimension, T visible keys.
"""

import math

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rope.attention.cache import KVCache
from rope.attention.decoding import CoreAttention
from rope.checks import check_count
from rope.module import RotaryEmbedding


class RotaryAttention(nn.Module):
    """Compute multi-head or grouped-query attention with rotated queries and keys.

    num_kv_heads: the number of key heads, a divisor of num_heads; None means num_heads. head_dim:
    the width D of each head; None means embed_dim / num_heads.
    bias: if True, the four projections have biases.
    rotary: a `RotaryEmbedding`, which layers may share, such as `RotaryEmbedding.from_config(...)`;
    if None, the layer creates one of width head_dim. rotary.softmax_scale multiplies all scores.
    window: how many positions a token sees, including its own; None means all. sinks: how many
    initial positions stay visible outside the window (StreamingLLM, arXiv 2309.17453, but with true
    distances). The class has no from_config, as it lacks the norms and soft caps of many models.
    Raises ValueError for sinks without a window, or if the default D isn't an integer.

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
        if head_dim is None:
            if embed_dim % num_heads:
                raise ValueError(
                    f"embed_dim is {embed_dim}, which isn't a multiple of num_heads={num_heads}; "
                    "pass head_dim, or change embed_dim or num_heads"
                )
            head_dim = embed_dim // num_heads
        if window is not None:
            check_count("window", window, smallest=2)  # a window of 1 shows only the token itself
        elif sinks:
            raise ValueError(
                f"sinks is {sinks} but window is None, and sinks matter only outside a window; "
                "pass window too, or omit sinks"
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
        """Attend over x and, if there is a cache, over all cached tokens.

        x: `[B, S, E]`. position_ids: integers `[S]`, `[1, S]`, or `[B, S]`. None means 0 ... S-1;
        with a cache, each row continues after its largest position. Positions should increase along
        each row, because a token doesn't see cached keys at larger positions.
        attention_mask: `[B, S]`, bool or integers, 0 for padding on the left or right. No token
        sees padding, and padding has no position. segment_ids: integers `[S]`, `[1, S]`, or
        `[B, S]`; tokens with different ids don't see each other; not allowed with a cache.
        causal: if False, each token sees its entire row; not allowed with a cache or a window.
        With a window, a cache with window + sinks slots never runs out of room. A compiled step is
        still limited by the length of the rotary tables; see `RotaryEmbedding.grow`. With a cache,
        an extension that depends on the length uses the cache's max_seq_len.
        Returns `[B, S, E]` in x's dtype (autocast's dtype under autocast), finite even for padding.
        Raises ValueError for shapes or devices that don't fit, a full cache, or a cache together
        with segment_ids or causal=False, and TypeError for wrong dtypes. After an error, the cache
        is unchanged.

        >>> import torch
        >>> layer = RotaryAttention(8, 2)
        >>> cache = KVCache(1, 2, max_seq_len=4, head_dim=4)
        >>> with torch.no_grad():
        ...     first = layer(torch.ones(1, 3, 8), cache=cache)
        ...     second = layer(torch.ones(1, 1, 8), cache=cache)
        >>> second.shape, cache.length
        (torch.Size([1, 1, 8]), 4)
        """
        if not causal and (cache is not None or self.window is not None):
            raise ValueError(
                "causal is False, but a cache or a window requires causal attention; omit causal"
            )
        if cache is not None and segment_ids is not None:
            raise ValueError(
                "segment_ids are given with a cache, but each row of a cache holds one sequence; "
                "put each sequence in its own row, and mark padding with attention_mask"
            )
        q = self._heads(self.q_proj(x), self.num_heads)  # [B, H, S, D]
        k = self._heads(self.k_proj(x), self.num_kv_heads)  # [B, H_kv, S, D]
        v = self._heads(self.v_proj(x), self.num_kv_heads)  # [B, H_kv, S, D]
        core = CoreAttention(self._attend, self.rotary, self.window, self.sinks)
        out = core(q, k, v, cache, position_ids, attention_mask, segment_ids, causal)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor, num_heads: int) -> Tensor:
        """Split x `[B, S, H*D]` into heads `[B, H, S, D]`."""
        return x.unflatten(-1, (num_heads, self.head_dim)).transpose(1, 2)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool
    ) -> Tensor:
        """Return the heads' outputs `[B, H, S, D]`; mask: bool `[B, S, T]`."""
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
