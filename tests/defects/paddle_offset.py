"""Use one offset for all tokens, so that positions don't restart after padding.

Source: PaddlePaddle/PaddleNLP#6616
"""

from rope import RotaryEmbedding

EXPECTED = "positions-ignored"
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    return rotary(q, k, offset=int(position_ids[0, 0]))
