"""Omit Gemma 4's planes of frequency 0, so that the rotated pairs lie too close together.

Source: NVIDIA-NeMo/Megatron-Bridge#4195
"""

from rope import RotaryEmbedding, inverse_frequencies, rotary_embedding_qk, rotary_tables
from rope.extensions import Proportional

EXPECTED = "width"
AGAINST = RotaryEmbedding(64, base=1e6, extension=Proportional(0.25))
inv_freq = inverse_frequencies(64, 1e6)[:8]


def rotate(q, k, position_ids):
    cos, sin = rotary_tables(position_ids[:, None], inv_freq)
    return rotary_embedding_qk(q, k, cos, sin)
