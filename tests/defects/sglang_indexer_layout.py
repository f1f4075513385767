"""Pair adjacent coordinates in the fused kernel although the model pairs halves.

Source: sgl-project/sglang#30342
"""

from rope import RotaryEmbedding

EXPECTED = "layout"
AGAINST = RotaryEmbedding(64)
rotate = RotaryEmbedding(64, interleaved=True)
