"""Cast frequencies to the activations' dtype before multiplying them by positions.

Source: Modalities/modalities#462
"""

from rope import inverse_frequencies, rotary_embedding_qk

EXPECTED = "low-precision-angles"


def rotate(q, k, position_ids):
    angle = position_ids[:, None, :, None] * inverse_frequencies(64).to(q.dtype).double()
    cos, sin = angle.cos().float(), angle.sin().float()
    return rotary_embedding_qk(q, k, cos, sin)
