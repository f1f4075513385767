"""Compute attention with rotary positions; see "Rotary attention" and "Keys that move".

- `layer`: multi-head and grouped-query attention;
- `latent`: DeepSeek-V2's latent attention;
- `decoding`: the attention step that both layers share, with or without a cache;
- `cache`, `cache_positions`: a cache of earlier tokens' keys, values, and positions;
- `masks`: attention masks for causality, windows, sinks, and packed sequences.
"""

from rope.attention.cache import KVCache
from rope.attention.latent import LatentAttention
from rope.attention.layer import RotaryAttention
from rope.attention.masks import build_attention_mask, segment_ids

__all__ = [
    "KVCache",
    "LatentAttention",
    "RotaryAttention",
    "build_attention_mask",
    "segment_ids",
]
