"""Rotate all tokens in a window by the position of its first token.

Source: jundot/omlx#2363
"""

from rope import RotaryEmbedding

EXPECTED = "positions-ignored"
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    return rotary(q, k, position_ids[:, :1].expand_as(position_ids))
