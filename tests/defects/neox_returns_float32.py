"""Multiply by float32 tables, which turns half-precision vectors into float32.

Source: huggingface/transformers#24262
"""

import torch

from rope import inverse_frequencies, rotary_tables

EXPECTED = "dtype-changed"


def turned(x, cos, sin):
    return x * cos + torch.cat((-x[..., 32:], x[..., :32]), -1) * sin


def rotate(q, k, position_ids):
    cos, sin = rotary_tables(position_ids[:, None], inverse_frequencies(64))
    cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    return turned(q, cos, sin), turned(k, cos, sin)
