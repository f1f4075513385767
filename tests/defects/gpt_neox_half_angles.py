"""Compute positions, frequencies and angles in the model's float16.

Source: EleutherAI/gpt-neox#1003
"""

from rope import inverse_frequencies, rotary_embedding_qk

EXPECTED = "low-precision-angles"


def rotate(q, k, position_ids):
    angle = position_ids[:, None, :, None].half() * inverse_frequencies(64).half()
    cos, sin = angle.double().cos(), angle.double().sin()
    return rotary_embedding_qk(q, k, cos.to(q), sin.to(q))
