"""Use the base 10,000, whatever the model's base is.

Source: NVIDIA/TransformerEngine#849
"""

from rope import RotaryEmbedding

EXPECTED = "frequencies"
AGAINST = RotaryEmbedding(64, base=500_000.0)
rotate = RotaryEmbedding(64)
