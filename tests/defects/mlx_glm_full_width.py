"""partial_rotary_factor, 0.5 where GLM's file does not say it, is not read.

Source: ml-explore/mlx-lm#1698
"""

from rope import RotaryEmbedding

EXPECTED = "width"
AGAINST = RotaryEmbedding(32, interleaved=True)
rotate = RotaryEmbedding(64, interleaved=True)
