"""Multiply the final attention_factor by YaRN's own: 2.2058 instead of 1.4852.

Source: sgl-project/sglang#33558
"""

from rope import RotaryEmbedding
from rope.extensions import YaRN

EXPECTED = "attention-scaling"
AGAINST = RotaryEmbedding(64, extension=YaRN(128.0, 4096))
rotate = RotaryEmbedding(64, extension=YaRN(128.0, 4096, attention_factor=2.2058))
