"""Rotate vectors [B, S, H, D] along axis -2, which holds the heads, not the tokens.

Source: mlfoundations/open_lm#4
"""

from rope import RotaryEmbedding

EXPECTED = "wrong-axis"
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    q, k = rotary.rotate(q.transpose(1, 2)), rotary.rotate(k.transpose(1, 2))
    return q.transpose(1, 2), k.transpose(1, 2)
