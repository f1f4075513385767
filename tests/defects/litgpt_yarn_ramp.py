"""Reverse YaRN's ramp: interpolate fast planes and keep slow planes (litgpt 0.5.13).

Source: Lightning-AI/litgpt#2202
"""

from rope import RotaryEmbedding, inverse_frequencies, rotary_embedding_qk, rotary_tables
from rope.extensions import YaRN

EXPECTED = "frequencies"
AGAINST = RotaryEmbedding(64, extension=YaRN(40.0, 4096, attention_factor=1.0))
plain = inverse_frequencies(64)
inv_freq = plain + plain / 40 - AGAINST.inv_freq.double()


def rotate(q, k, position_ids):
    cos, sin = rotary_tables(position_ids[:, None], inv_freq)
    return rotary_embedding_qk(q, k, cos, sin)
