"""Half of the rotated query is made from the key, and half of the key from the query: hpcaitech/ColossalAI#6428."""

import torch

from rope import RotaryEmbedding

EXPECTED = "tokens-mixed"
HEADS = 4
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    q, k = rotary(q, k, position_ids)
    return torch.cat((q[..., :32], k[..., 32:]), -1), torch.cat((q[..., :32], k[..., 32:]), -1)
