"""Rotate every row of a batch with the tables for the first row.

Source: linkedin/Liger-Kernel#477
"""

from rope import RotaryEmbedding

EXPECTED = "batch-mixed"
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    return rotary(q, k, position_ids[:1].expand(len(q), -1))
