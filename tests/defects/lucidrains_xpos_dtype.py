"""xPos's factors, in float32, make float32 of bfloat16.

Source: lucidrains/rotary-embedding-torch#9
"""

import torch

from rope.xpos import XPos

EXPECTED = "dtype-changed"
xpos = XPos(64, 4096.0)


def rotate(q, k, position_ids):
    given = xpos(q, k, position_ids)
    return tuple(x.to(torch.promote_types(x.dtype, torch.float32)) for x in given)
