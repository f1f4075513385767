"""Use an inv_freq that to_empty left uninitialized, here NaN.

Source: huggingface/transformers#45902
"""

import torch

EXPECTED = "not-finite"


def rotate(q, k, position_ids):
    angle = position_ids[:, None, :, None] * torch.full((64,), torch.nan)
    return q * angle.cos(), k * angle.cos()
