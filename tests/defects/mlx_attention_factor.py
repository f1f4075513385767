"""Ignore the file's attention_factor, 1, and use YaRN's own factor.

Source: ml-explore/mlx-lm#1507
"""

from rope import RotaryEmbedding
from rope.extensions import YaRN

EXPECTED = "attention-scaling"
AGAINST = RotaryEmbedding(64, extension=YaRN(64.0, 4096, attention_factor=1.0))
rotate = RotaryEmbedding(64, extension=YaRN(64.0, 4096))
