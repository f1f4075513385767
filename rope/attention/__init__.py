"""Attention with rotary positions: chapters "Rotary attention" and "Keys that move".

`layer` is the layer, `latent` that of DeepSeek-V2, `decoding` one call of either. `cache` holds
their keys and values, `slots` where those stand, `sight` says who sees whom. `compressed` is
DeepSeek-V4's layer, whose values are rotated too, with a cache of its own; `linear` is the
linear-time form of RoFormer's equation 19.
"""

from rope.attention.cache import KVCache
from rope.attention.compressed import CompressedAttention, CompressedCache
from rope.attention.latent import LatentAttention
from rope.attention.layer import RotaryAttention
from rope.attention.linear import elu_plus_one, linear_attention, linear_attention_quadratic
from rope.attention.sight import in_sight, packed_mask, segment_ids
from rope.attention.slots import Positions
from rope.positions import packed_position_ids

__all__ = [
    "CompressedAttention",
    "CompressedCache",
    "KVCache",
    "LatentAttention",
    "Positions",
    "RotaryAttention",
    "elu_plus_one",
    "in_sight",
    "linear_attention",
    "linear_attention_quadratic",
    "packed_mask",
    "packed_position_ids",
    "segment_ids",
]
