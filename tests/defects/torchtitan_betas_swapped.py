"""Swap YaRN's beta_fast and beta_slow.

Source: pytorch/torchtitan#3787
"""

import math

import torch

from rope import RotaryEmbedding, inverse_frequencies, rotary_embedding_qk, rotary_tables
from rope.extensions import YaRN

EXPECTED = "frequencies"
AGAINST = RotaryEmbedding(64, base=150_000.0, extension=YaRN(32.0, 4096, attention_factor=1.0))
plain = inverse_frequencies(64, 150_000.0)
low, high = (
    64 * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(150_000)) for turns in (1, 32)
)
ramp = ((torch.arange(32) - low) / (high - low)).clamp(0, 1)
inv_freq = plain / 32 * ramp + plain * (1 - ramp)


def rotate(q, k, position_ids):
    cos, sin = rotary_tables(position_ids[:, None], inv_freq)
    return rotary_embedding_qk(q, k, cos, sin)
