"""Store cos and sin in bfloat16.

Source: KellerJordan/modded-nanogpt#39
"""

import torch

from rope import inverse_frequencies, rotary_embedding_qk, rotary_tables

EXPECTED = "low-precision-tables"


def rotate(q, k, position_ids):
    cos, sin = rotary_tables(position_ids[:, None], inverse_frequencies(64), dtype=torch.bfloat16)
    return rotary_embedding_qk(q, k, cos.to(q), sin.to(q))
