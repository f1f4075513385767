"""Use 10000 ** (-2 (i - 1) / d) with i from 0, so that every plane rotates too fast.

Source: bkitano/llama-from-scratch#8
"""

import torch

from rope import rotary_embedding_qk, rotary_tables

EXPECTED = "frequencies"
inv_freq = 10000.0 ** (-2 * (torch.arange(32).double() - 1) / 64)


def rotate(q, k, position_ids):
    cos, sin = rotary_tables(position_ids[:, None], inv_freq)
    return rotary_embedding_qk(q, k, cos, sin, interleaved=True)
