"""Count the padding as tokens in the positions of a left-padded row.

Source: huggingface/transformers#22161
"""

import torch

from rope import RotaryEmbedding

EXPECTED = "positions-ignored"
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    return rotary(q, k, torch.arange(q.shape[2]).expand(len(q), -1))
