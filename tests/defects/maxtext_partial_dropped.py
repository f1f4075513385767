"""Ignore partial_rotary_factor, here 0.25, under M-RoPE.

Source: AI-Hypercomputer/maxtext#4616
"""

from rope import RotaryEmbedding

EXPECTED = "width"
AGAINST = RotaryEmbedding(16)
rotate = RotaryEmbedding(64)
