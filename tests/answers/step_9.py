"""convert(weight, head_dim), rows [H·D, E]; yarn(head_dim, base, factor, trained): two results."""

import math

import numpy as np
import torch


def correction(turns, dim, base, trained):
    """The plane that makes these turns within the trained length."""
    return dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))


def correction_range(dim, base, trained):
    low = math.floor(correction(32, dim, base, trained))
    high = math.ceil(correction(1, dim, base, trained))
    return max(low, 0), min(high, dim - 1)


def ramp(low, high, count):
    return torch.clamp((torch.arange(count, dtype=torch.float32) - low) / (high - low), 0, 1)


def scale(factor):
    return 0.1 * math.log(factor) + 1.0


def wrong_its_own_inverse(weight, head_dim):
    """The permutation is taken for its own inverse, which it is for a head of 4 alone.

    Source: https://github.com/huggingface/transformers/pull/45035 (a table of the docs)
    Part: convert
    Cause: this is the inverse conversion
    """
    rows, width = weight.shape
    return (
        weight.view(rows // head_dim, 2, head_dim // 2, width).transpose(1, 2).reshape(rows, width)
    )


def wrong_extended_length(head_dim, base, factor, trained):
    """The range is found in the extended length.

    Source: https://github.com/NVIDIA-NeMo/Speech/issues/14686 (GPT-OSS, 131072 for 4096)
    Part: yarn
    Cause: the ramp counts turns within the extended length
    """
    max_position_embeddings = int(trained * factor)
    inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2).double() / head_dim))
    low, high = correction_range(head_dim, base, max_position_embeddings)
    mask = 1 - ramp(low, high, head_dim // 2)
    return inv_freq / factor * (1 - mask) + inv_freq * mask, scale(factor)


def wrong_inverted_twice(head_dim, base, factor, trained):
    """1 / (factor · x), where x is one over the frequency no more.

    Source: https://github.com/microsoft/onnxruntime-genai/pull/2076 (its fourth fault)
    Part: yarn
    Cause: slow planes get the reciprocal of the frequency, divided by the factor
    """
    inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2).double() / head_dim))
    low, high = correction_range(head_dim, base, trained)
    extrapolation = 1 - ramp(low, high, head_dim // 2).double()
    interpolation = 1.0 / (factor * inv_freq)
    return interpolation * (1 - extrapolation) + inv_freq * extrapolation, scale(factor)


def right_convert_lists(weight, head_dim):
    """Lists.

    Part: convert
    """
    rows = weight.tolist()
    return [
        rows[start + j]
        for start in range(0, len(rows), head_dim)
        for j in [*range(0, head_dim, 2), *range(1, head_dim, 2)]
    ]


def right_yarn_by_periods(head_dim, base, factor, trained):
    """Harmonic mean of wavelengths, as in mlx-lm.

    Part: yarn
    """
    extra = base ** (np.arange(0, head_dim, 2) / head_dim)
    inter = factor * extra
    low, high = correction_range(head_dim, base, trained)
    mask = 1 - np.clip((np.arange(head_dim // 2) - low) / (high - low), 0, 1)
    periods = inter * extra / (inter * mask + extra * (1 - mask))
    return [1 / periods, math.sqrt((0.1 * math.log(factor) + 1) ** 2)]


def right_yarn_linear_in_the_turns(head_dim, base, factor, trained):
    """As in the paper, where γ is linear in the turns.

    Part: yarn
    """
    theta = float(base) ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    gamma = ((trained * theta / math.tau - 1) / (32 - 1)).clamp(0, 1)
    return (1 - gamma) * theta / factor + gamma * theta, 0.1 * math.log(factor) + 1
