"""Attention with rotary positions: chapter "Rotary attention".

`layer` is the layer, `latent` that of DeepSeek, `cache` their keys and values when decoding,
`packed` several sequences in one row, `linear` the linear-time form of RoFormer's equation 19.
"""

from rope.attention.cache import KVCache
from rope.attention.latent import LatentAttention
from rope.attention.layer import RotaryAttention
from rope.attention.linear import elu_plus_one, linear_attention, linear_attention_quadratic
from rope.attention.packed import packed_mask, segment_ids
from rope.positions import packed_position_ids

__all__ = [
    "KVCache",
    "LatentAttention",
    "RotaryAttention",
    "elu_plus_one",
    "linear_attention",
    "linear_attention_quadratic",
    "packed_mask",
    "packed_position_ids",
    "segment_ids",
]
