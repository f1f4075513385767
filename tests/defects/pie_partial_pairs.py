"""Of a partial rotation, pairs and ladder are those of the whole head.

Source: pie-project/pie#602
"""

from rope import RotaryEmbedding
from rope.extensions import Proportional

EXPECTED = "width"
AGAINST = RotaryEmbedding(16)
rotate = RotaryEmbedding(64, extension=Proportional(0.25))
