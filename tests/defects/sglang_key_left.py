"""Write the rotated key to the cache, but pass the unrotated key to attention.

Source: kvcache-ai/sglang#31
"""

from rope import RotaryEmbedding

EXPECTED = "key-unrotated"
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    return rotary.rotate(q, position_ids), k
