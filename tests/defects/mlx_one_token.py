"""Write only the first row of a batch if there is one token per row.

Source: ml-explore/mlx#3949
"""

import torch

from rope import RotaryEmbedding

EXPECTED = "batch-mixed"
rotary = RotaryEmbedding(64)


def rotate(q, k, position_ids):
    q, k = rotary(q, k, position_ids)
    if q.shape[2] > 1:
        return q, k
    return tuple(torch.cat((x[:1], torch.zeros_like(x[1:]))) for x in (q, k))
