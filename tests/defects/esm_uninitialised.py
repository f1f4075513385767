"""Use an uninitialized inv_freq, which is finite but nearly 0 (6.93e-18 was seen).

Source: Synthyra/FastPLMs#47
"""

import torch

from rope import rotary_embedding_qk, rotary_tables

EXPECTED = "positions-ignored"


def rotate(q, k, position_ids):
    cos, sin = rotary_tables(position_ids[:, None], torch.full((32,), 6.93e-18).double())
    return rotary_embedding_qk(q, k, cos, sin)
