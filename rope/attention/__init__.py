"""Compute attention with rotary positions: chapters "Rotary attention" and "Keys that move".

- `layer`: multi-head and grouped-query attention;
- `latent`: DeepSeek-V2's latent attention;
- `decoding`: one attention call of either layer above, with or without a cache;
- `cache`, `cache_positions`: a cache of earlier tokens' keys and values, and their positions;
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
