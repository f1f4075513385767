"""Each call has its own base, and cached keys have another.

Source: huggingface/transformers#25104
"""

from rope import RotaryEmbedding
from rope.extensions import DynamicNTK

EXPECTED = "length-dependent"
rotate = RotaryEmbedding(64, extension=DynamicNTK(4.0, 2048))
