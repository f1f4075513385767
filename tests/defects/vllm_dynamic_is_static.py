"""Scale short texts the way that dynamic NTK scales the longest text.

Source: vllm-project/vllm#5093
"""

from rope import RotaryEmbedding
from rope.extensions import DynamicNTK

EXPECTED = "frequencies"
AGAINST = RotaryEmbedding(64, extension=DynamicNTK(4.0, 2048))
rotary = RotaryEmbedding(64, extension=DynamicNTK(4.0, 2048))


def rotate(q, k, position_ids):
    return rotary(q, k, position_ids, seq_len=4 * 2048)
