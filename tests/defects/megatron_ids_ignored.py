"""Ignore the position ids, so that packed documents don't restart at 0.

Source: NVIDIA/Megatron-LM#453
"""

from rope import RotaryEmbedding

EXPECTED = "positions-ignored"
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    return rotary(q, k)
