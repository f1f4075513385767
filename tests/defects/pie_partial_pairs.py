"""Use the full head's pairs and frequencies for a partial rotation.

Source: pie-project/pie#602
"""

from rope import RotaryEmbedding
from rope.extensions import Proportional

EXPECTED = "width"
AGAINST = RotaryEmbedding(16)
rotate = RotaryEmbedding(64, extension=Proportional(0.25))
