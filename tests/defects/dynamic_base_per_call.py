"""Compute a new base in each call, although cached keys were rotated with another base.

Source: huggingface/transformers#25104
"""

from rope import RotaryEmbedding
from rope.extensions import DynamicNTK

EXPECTED = "length-dependent"
rotate = RotaryEmbedding(64, extension=DynamicNTK(4.0, 2048))
