"""Use the exponent (2k - 1) / d with k from 1, which is half a step too slow.

Source: stanford-cs336/assignment1-basics#22
"""

import torch

from rope import RotaryEmbedding, rotary_embedding_qk, rotary_tables

EXPECTED = "frequencies"
AGAINST = RotaryEmbedding(64, interleaved=True)
inv_freq = 10000.0 ** (-(2 * torch.arange(1, 33).double() - 1) / 64)


def rotate(q, k, position_ids):
    cos, sin = rotary_tables(position_ids[:, None], inv_freq)
    return rotary_embedding_qk(q, k, cos, sin, interleaved=True)
