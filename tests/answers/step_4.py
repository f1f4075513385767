"""tables(position_ids, head_dim, base): cos and sin [S, D/2] of position_ids [S]."""

import math

import numpy as np
import torch


def wrong_i_minus_one(position_ids, head_dim, base):
    """−2(i − 1) / d with i from 0, in two loops.

    Source: https://github.com/bkitano/llama-from-scratch/issues/8
    Cause: the exponent is (−2j + 2) / head_dim
    """
    cos, sin = (torch.zeros(len(position_ids), head_dim // 2) for _ in range(2))
    for row, position in enumerate(position_ids.tolist()):
        for i in range(head_dim // 2):
            angle = position * base ** (-2.0 * (i - 1) / head_dim)
            cos[row, i], sin[row, i] = np.cos(angle), np.sin(angle)
    return cos, sin


def wrong_positions_not_read(position_ids, head_dim, base):
    """token_positions is an argument that nothing looks at.

    Source: https://github.com/stanford-cs336/assignment1-basics/issues/28
    Cause: position_ids are not read
    """
    inv_freq = base ** -(torch.arange(0, head_dim, 2).double() / head_dim)
    angles = torch.outer(torch.arange(position_ids.shape[0]).double(), inv_freq)
    return angles.cos(), angles.sin()


def wrong_sines_first(position_ids, head_dim, base):
    """sin, cos: the order of many functions, and not of this one.

    Source: https://github.com/morganmcg1/rotobart/pull/1, fixed_pos_embedding
    Cause: cos and sin are swapped
    """
    inv_freq = 1.0 / (base ** (np.arange(0, head_dim, 2) / head_dim))
    sinusoid_inp = np.einsum("i , j -> i j", position_ids.flatten(), inv_freq)
    return np.sin(sinusoid_inp), np.cos(sinusoid_inp)


def wrong_buffer_in_bfloat16(position_ids, head_dim, base):
    """inv_freq was a buffer, and was cast with the model.

    Source: https://github.com/huggingface/transformers/issues/25681
    Cause: the frequencies are rounded to bfloat16
    """
    inv_freq = (base ** -(torch.arange(0, head_dim, 2).double() / head_dim)).bfloat16()
    angles = position_ids.double()[:, None] * inv_freq.double()
    return angles.cos(), angles.sin()


def wrong_frequencies_in_float32(position_ids, head_dim, base):
    """inv_freq is rounded to float32 before it meets the position.

    Source: https://github.com/NVIDIA/TensorRT-LLM/pull/18774, which measures it and keeps it
    Cause: the tables are right near position 0 but not far out
    """
    inv_freq = (1.0 / base ** (np.arange(0, head_dim, 2) / head_dim)).astype(np.float32)
    angles = position_ids.numpy()[:, None].astype(np.float32) * inv_freq
    return np.cos(angles), np.sin(angles)


def right_lists(position_ids, head_dim, base):
    angles = [
        [m * base ** (-2 * j / head_dim) for j in range(head_dim // 2)]
        for m in position_ids.tolist()
    ]
    return tuple([[f(angle) for angle in row] for row in angles] for f in (math.cos, math.sin))


def right_numpy(position_ids, head_dim, base):
    inv_freq = np.exp(-np.log(base) * np.arange(0, head_dim, 2) / head_dim)
    angles = np.einsum("s,d->sd", np.asarray(position_ids, dtype=np.float64), inv_freq)
    return np.stack([np.cos(angles), np.sin(angles)])


def right_freqs_cis(position_ids, head_dim, base):
    freqs = 1.0 / (base ** (torch.arange(0, head_dim, 2)[: head_dim // 2].double() / head_dim))
    freqs = torch.outer(position_ids, freqs)
    return torch.polar(torch.ones_like(freqs), freqs)


def right_reduced_and_differentiable(position_ids, head_dim, base):
    """Whole turns are taken off in float64; the frequencies are a parameter; a generator."""
    inv_freq = torch.tensor(
        [base ** (-2 * j / head_dim) for j in range(head_dim // 2)],
        dtype=torch.float64,
        requires_grad=True,
    )
    angles = torch.remainder(position_ids[:, None] * inv_freq, 2 * torch.pi).float()
    return (f(angles) for f in (torch.cos, torch.sin))
