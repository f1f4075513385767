"""Compute angles by a matrix product in TF32, which keeps 11 bits of a position.

Source: huggingface/transformers#48428
"""

import torch

from rope import RotaryEmbedding

EXPECTED = "low-precision-angles"
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    bits = position_ids.float().view(torch.int32) & -(2**13)
    return rotary(q, k, bits.view(torch.float32).long())
