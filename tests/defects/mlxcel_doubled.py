"""Multiply positions by 2 although no scaling is configured.

Source: lablup/mlxcel#1324
"""

from rope import RotaryEmbedding

EXPECTED = "frequencies"
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    return rotary(q, k, 2 * position_ids)
