"""Scale short texts the way that dynamic NTK scales the longest text.

Source: vllm-project/vllm#5093
"""

from rope import RotaryEmbedding
from rope.extensions import DynamicNTK

EXPECTED = "frequencies"
AGAINST = RotaryEmbedding(64, extension=DynamicNTK(4.0, 2048))
longest = RotaryEmbedding(64, base=1e4 * 13 ** (64 / 62))  # at 4 * 2048 tokens


def rotate(q, k, position_ids):
    return longest(q, k, position_ids)
