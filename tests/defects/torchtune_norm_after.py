"""Apply Qwen3's norms, which have a gain per coordinate, after the rotation.

Source: meta-pytorch/torchtune#2809
"""

import torch

from rope import RotaryEmbedding

EXPECTED = "norm-after"
rotary = RotaryEmbedding(64)
gain = 1 + 0.2 * torch.arange(64).double().sin()


def norm(x):
    return torch.nn.functional.rms_norm(x, (64,), gain.to(x))


def rotate(q, k, position_ids):
    q, k = rotary(q, k, position_ids)
    return norm(q), norm(k)
