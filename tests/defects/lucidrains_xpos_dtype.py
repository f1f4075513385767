"""Multiply by xPos's float32 factors, which turns bfloat16 vectors into float32.

Source: lucidrains/rotary-embedding-torch#9
"""

import torch

from rope.xpos import XPos

EXPECTED = "dtype-changed"
xpos = XPos(64, 4096.0)


def rotate(q, k, position_ids):
    given = xpos(q, k, position_ids)
    return tuple(x.to(torch.promote_types(x.dtype, torch.float32)) for x in given)
