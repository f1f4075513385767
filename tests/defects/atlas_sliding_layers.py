"""Use the long-context base and YaRN in sliding-window layers, too.

Source: Avarok-Cybersecurity/atlas#276
"""

from rope import RotaryEmbedding
from rope.extensions import YaRN

EXPECTED = "frequencies"
AGAINST = RotaryEmbedding(64, interleaved=True)
yarn = YaRN(16.0, 65536, attention_factor=1.0)
rotate = RotaryEmbedding(64, base=160_000.0, extension=yarn, interleaved=True)
