"""Ignore GLM's partial_rotary_factor, which is 0.5 if the file doesn't contain it.

Source: ml-explore/mlx-lm#1698
"""

from rope import RotaryEmbedding

EXPECTED = "width"
AGAINST = RotaryEmbedding(32, interleaved=True)
rotate = RotaryEmbedding(64, interleaved=True)
