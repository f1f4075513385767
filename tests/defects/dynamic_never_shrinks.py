"""Keep the base scaled for the longest text so far, even for shorter texts.

Source: huggingface/transformers#27227
"""

from rope import RotaryEmbedding
from rope.extensions import DynamicNTK

EXPECTED = "stateful"
AGAINST = RotaryEmbedding(64, extension=DynamicNTK(4.0, 2048))
rotary = RotaryEmbedding(64, extension=DynamicNTK(4.0, 2048))
longest = [0]


def rotate(q, k, position_ids):
    longest[0] = max(longest[0], int(position_ids.max()) + 1)
    return rotary(q, k, position_ids, seq_len=longest[0])
