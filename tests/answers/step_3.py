"""angles(position, head_dim, base): the angle of each plane."""

import itertools
import math
from decimal import Decimal

import numpy as np
import torch


def wrong_has_no_2(position, head_dim, base):
    """j is divided by the whole width.

    Source: https://github.com/rasbt/LLMs-from-scratch/issues/410 (issue 410: the code proposed)
    Cause: −j is divided by head_dim
    """
    inv_freq = 1.0 / base ** (torch.arange(0, head_dim // 2) / head_dim)
    return position * inv_freq


def wrong_is_half_a_step_off(position, head_dim, base):
    """(2k − 1) / d, with a k from 1.

    Source: https://github.com/stanford-cs336/assignment1-basics/issues/22 (issue 22: the handout
        before 1.0.6)
    Cause: −2j − 1 is divided by head_dim
    """
    k = np.arange(1, head_dim // 2 + 1)
    return position / base ** ((2 * k - 1) / head_dim)


def wrong_divides_by_one_less(position, head_dim, base):
    """The logarithm is divided by half the width less 1.

    Source: https://github.com/hojonathanho/diffusion/issues/15 (issue 15: get_timestep_embedding)
    Cause: the last exponent is −1
    """
    half_dim = head_dim // 2
    emb = math.log(base) / (half_dim - 1)
    return position * np.exp(np.arange(half_dim) * -emb)


def wrong_divides_whole_numbers(position, head_dim, base):
    """The quotient of whole numbers is 0, in Python 2 and C.

    Source: https://github.com/Kyubyong/transformer/pull/81 (pull request 81)
    Cause: all exponents are 0
    """
    return [position / np.power(base, (i - i % 2) // head_dim) for i in range(0, head_dim, 2)]


def wrong_divides_by_head_dim_and_by_2(position, head_dim, base):
    """/ d // 2, where / (d // 2) is meant.

    Source: https://github.com/zju3dv/LoFTR/issues/41 (issue 41)
    Cause: / head_dim // 2 divides twice
    """
    steps = torch.arange(0, head_dim // 2, dtype=torch.float64)
    div_term = torch.exp(steps * (-math.log(base) / head_dim // 2))
    return position * div_term


def wrong_has_the_power_the_other_way_round(position, head_dim, base):
    """The exponent is raised to 1e-4, not 1e-4 to it.

    Source: https://github.com/ivanvovk/WaveGrad/issues/12 (issue 12)
    Cause: base and exponent stand in each other's place
    """
    exponents = np.arange(head_dim // 2, dtype=np.float64) / (head_dim // 2)
    return position * exponents ** (1 / base)


def wrong_runs_over_all_coordinates(position, head_dim, base):
    """2 i / d, with an i for each coordinate.

    Source: https://github.com/jadore801120/attention-is-all-you-need-pytorch/issues/32 (issue 32)
    Cause: j runs over the coordinates
    """
    return [position / np.power(base, 2 * i / head_dim) for i in range(head_dim)]


def wrong_has_a_fixed_base(position, head_dim, base):
    """10,000 stands in the code.

    Source: https://github.com/NVIDIA/TransformerEngine/issues/849 (issue 849)
    Cause: the base is always 10,000
    """
    inv_freq = 1.0 / (10000 ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    return torch.einsum("i , j -> i j", torch.tensor([float(position)]), inv_freq)


def wrong_counts_positions_from_1(position, head_dim, base):
    """position_ids are arange(1, n + 1).

    Source: https://github.com/PrimeIntellect-ai/prime-rl/pull/3466 (pull request 3466)
    Cause: positions count from 0
    """
    position_ids = np.arange(1, 1000)
    return position_ids[position] * base ** (-np.arange(0, head_dim, 2) / head_dim)


def wrong_multiplies_by_pi(position, head_dim, base):
    """π, as cos and sin of a frequency seem to need it.

    Source: https://github.com/ggml-org/llama.cpp/issues/1234 (issue 1234, which asks for it)
    Cause: a factor π is too many
    """
    return [math.pi * position * base ** (-2 * j / head_dim) for j in range(head_dim // 2)]


def wrong_repeats_each_angle(position, head_dim, base):
    """Each angle twice, as neighbours need it.

    Source: https://github.com/allenai/molmo/issues/49 (issue 49, which asks for repeat_interleave)
    Cause: each angle stands there twice, once a coordinate
    """
    freqs = position * base ** (-torch.arange(0, head_dim, 2) / head_dim)
    return freqs.repeat_interleave(2)


def wrong_repeats_all_angles(position, head_dim, base):
    """All angles twice, as halves need it.

    Source: https://github.com/xiangking/ark-nlp/issues/47 (issue 47)
    Cause: all angles stand there twice, one list behind the other
    """
    freqs = position * base ** (-torch.arange(0, head_dim, 2) / head_dim)
    return freqs.repeat(2)


def right_loop(position, head_dim, base):
    result = []
    for j in range(head_dim // 2):
        theta = base ** (-2 * j / head_dim)
        result.append(position * theta)
    return result


def right_by_ratio(position, head_dim, base):
    ratio = base ** (-2 / head_dim)
    return list(
        itertools.accumulate([position] + [ratio] * (head_dim // 2 - 1), lambda a, r: a * r)
    )


def right_within_a_turn(position, head_dim, base):
    return [angle % (2 * math.pi) for angle in right_loop(position, head_dim, base)]


def right_numpy_row(position, head_dim, base):
    return np.outer([position], base ** (-np.arange(0, head_dim, 2) / head_dim))


def right_torch_tensors_in_a_list(position, head_dim, base):
    exponents = -torch.arange(0, head_dim, 2) / head_dim
    return [position * base**one for one in exponents]


def right_decimal(position, head_dim, base):
    ratio = Decimal(base) ** (Decimal(-2) / Decimal(head_dim))
    return [Decimal(position) * ratio**j for j in range(head_dim // 2)]
