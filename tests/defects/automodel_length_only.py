"""Read only the number of position ids, and use the first rows of the tables.

Source: NVIDIA-NeMo/Automodel#2377
"""

from rope import inverse_frequencies, rotary_embedding_qk, rotary_tables

EXPECTED = "positions-ignored"


def rotate(q, k, position_ids):
    cos, sin = rotary_tables(position_ids.shape[-1], inverse_frequencies(64))
    return rotary_embedding_qk(q, k, cos, sin)
