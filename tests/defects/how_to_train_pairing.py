"""Repeat the angles for interleaved pairs, but rotate half-split pairs.

Source: raiyanyahya/how-to-train-your-gpt#6
"""

import torch

from rope import inverse_frequencies

EXPECTED = "pairing"


def turned(x, cos, sin):
    return x * cos + torch.cat((-x[..., 32:], x[..., :32]), -1) * sin


def rotate(q, k, position_ids):
    angle = position_ids[:, None, :, None] * inverse_frequencies(64).repeat_interleave(2)
    cos, sin = angle.cos().to(q), angle.sin().to(q)
    return turned(q, cos, sin), turned(k, cos, sin)
