"""Write the result into the given queries and keys.

Source: unslothai/unsloth#5001
"""

from rope import RotaryEmbedding

EXPECTED = "input-changed"
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    return rotary(q, k, position_ids, inplace=True)
