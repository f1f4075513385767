"""Store inv_freq as a buffer, which model.to(bfloat16) rounds.

Source: huggingface/transformers#25681
"""

import torch

from rope import inverse_frequencies, rotary_embedding_qk, rotary_tables

EXPECTED = "low-precision-angles"
inv_freq = inverse_frequencies(64).to(torch.bfloat16).double()


def rotate(q, k, position_ids):
    cos, sin = rotary_tables(position_ids[:, None], inv_freq)
    return rotary_embedding_qk(q, k, cos, sin)
