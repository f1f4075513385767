"""Mix up the tensors: half of each result comes from the other tensor.

Source: hpcaitech/ColossalAI#6428
"""

import torch

from rope import RotaryEmbedding

EXPECTED = "tokens-mixed"
HEADS = 4
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    q, k = rotary(q, k, position_ids)
    return torch.cat((q[..., :32], k[..., 32:]), -1), torch.cat((q[..., :32], k[..., 32:]), -1)
