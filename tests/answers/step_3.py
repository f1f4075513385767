"""angles(position, head_dim, base): the angle of each plane."""

import itertools
import math
from decimal import Decimal

import numpy as np
import torch


def wrong_has_no_2(position, head_dim, base):
    """j is divided by the whole width.

    Source: https://github.com/rasbt/LLMs-from-scratch/issues/410 (issue 410: the code proposed)
    Cause: the exponent is −j / head_dim
    """
    inv_freq = 1.0 / base ** (torch.arange(0, head_dim // 2) / head_dim)
    return position * inv_freq


def wrong_divides_by_one_less(position, head_dim, base):
    """The logarithm is divided by half the width less 1.

    Source: https://github.com/hojonathanho/diffusion/issues/15 (issue 15: get_timestep_embedding)
    Cause: the last exponent is −1, as when linspace includes its endpoint
    """
    half_dim = head_dim // 2
    emb = math.log(base) / (half_dim - 1)
    return position * np.exp(np.arange(half_dim) * -emb)


def wrong_divides_by_head_dim_and_by_2(position, head_dim, base):
    """/ d // 2, where / (d // 2) is meant.

    Source: https://github.com/zju3dv/LoFTR/issues/41 (issue 41)
    Cause: / head_dim // 2 divides twice and rounds
    """
    steps = torch.arange(0, head_dim // 2, dtype=torch.float64)
    div_term = torch.exp(steps * (-math.log(base) / head_dim // 2))
    return position * div_term


def wrong_has_a_fixed_base(position, head_dim, base):
    """10,000 stands in the code.

    Source: https://github.com/NVIDIA/TransformerEngine/issues/849 (issue 849)
    Cause: the base is always 10,000
    """
    inv_freq = 1.0 / (10000 ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    return torch.einsum("i , j -> i j", torch.tensor([float(position)]), inv_freq)


def wrong_repeats_each_angle(position, head_dim, base):
    """Each angle twice, as neighbours need it.

    Source: https://github.com/allenai/molmo/issues/49 (issue 49, which asks for repeat_interleave)
    Cause: each angle appears twice, once per coordinate
    """
    freqs = position * base ** (-torch.arange(0, head_dim, 2) / head_dim)
    return freqs.repeat_interleave(2)


def right_by_ratio(position, head_dim, base):
    ratio = base ** (-2 / head_dim)
    return list(
        itertools.accumulate([position] + [ratio] * (head_dim // 2 - 1), lambda a, r: a * r)
    )


def right_numpy_row(position, head_dim, base):
    return np.outer([position], base ** (-np.arange(0, head_dim, 2) / head_dim))


def right_decimal(position, head_dim, base):
    ratio = Decimal(base) ** (Decimal(-2) / Decimal(head_dim))
    return [Decimal(position) * ratio**j for j in range(head_dim // 2)]
