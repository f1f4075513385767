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


def wrong_not_permuted(weight, head_dim):
    """A flag decides on the permutation, and nobody passes it.

    Source: https://github.com/huggingface/nanotron/pull/427 (`interleave_qkv`)
    Part: convert
    Cause: the rows are as they were
    """

    def converted(weight, interleave_qkv=False):
        if interleave_qkv:
            return weight.view(-1, head_dim // 2, 2, weight.shape[1]).transpose(1, 2).reshape(
                weight.shape
            )  # fmt: skip
        return weight

    return converted(weight)


def wrong_its_own_inverse(weight, head_dim):
    """The permutation is taken for its own inverse, which it is for a head of 4 alone.

    Source: https://github.com/huggingface/transformers/pull/45035 (a table of the docs)
    Part: convert
    Cause: that is the way back
    """
    rows, width = weight.shape
    return (
        weight.view(rows // head_dim, 2, head_dim // 2, width).transpose(1, 2).reshape(rows, width)
    )


def wrong_one_head(weight, head_dim):
    """Where the configuration does not say the number of heads it is 1.

    Source: https://github.com/huggingface/transformers/blob/d6a82ba896fcc59e6c40af95cbbd167dcf736e2f/src/transformers/core_model_loading.py#L381-L412
    (`PermuteForRope`)
    Part: convert
    Cause: the rows of all heads are sorted together
    """
    dim1, dim2 = weight.shape
    config = {}
    n_heads = config.get("num_attention_heads", 1)
    weight = weight.view(n_heads, dim1 // n_heads // 2, 2, dim2)
    return weight.transpose(1, 2).reshape(dim1, dim2)


def wrong_heads_of_queries(weight, head_dim):
    """Keys are sorted with the number of heads that queries have, here twice as many.

    Source: https://github.com/huggingface/transformers/pull/31788 (GGUF)
    Part: convert
    Cause: each head is sorted in two pieces
    """
    num_heads = 2 * (weight.shape[0] // head_dim)
    dim = weight.shape[0] // num_heads // 2
    w = weight.reshape(num_heads, dim, 2, *weight.shape[1:])
    return w.swapaxes(2, 1).reshape(weight.shape)


def wrong_scaling_after_init(head_dim, base, factor, trained):
    """The configuration is changed when the frequencies have been computed.

    Source: https://github.com/MakazhanAlpamys/Soup/issues/793 (on transformers 5)
    Part: yarn
    Cause: nothing is scaled
    """
    inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2).float() / head_dim))
    rope_scaling = {"rope_type": "yarn", "factor": factor}
    return inv_freq, scale(rope_scaling["factor"])


def wrong_positions_divided(head_dim, base, factor, trained):
    """YaRN as positions / factor, which divides all angles.

    Source: https://github.com/rasbt/LLMs-from-scratch/issues/939 (Olmo 3)
    Part: yarn
    Cause: all planes are divided: that is
    """
    inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2).float() / head_dim))
    positions = torch.tensor([1.0]) / factor
    return (positions[:, None] * inv_freq)[0], scale(factor)


def wrong_betas(head_dim, base, factor, trained):
    """A range whose parameters have each other's names gets the paper's numbers.

    Source: https://github.com/pytorch/torchtitan/pull/3787 (CosSinRoPE before it)
    Part: yarn
    Cause: the ramp is the wrong way round: fast planes must be kept, slow ones divided
    """
    beta_fast, beta_slow = 32.0, 1.0
    freqs = base ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    low = correction(beta_slow, head_dim, base, trained)
    high = correction(beta_fast, head_dim, base, trained)
    smooth = 1 - ((torch.arange(head_dim // 2) - low) / (high - low)).clamp(0, 1)
    return 1 / (factor * freqs) * (1 - smooth) + 1 / freqs * smooth, scale(factor)


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


def wrong_wavelengths(head_dim, base, factor, trained):
    """θ / ((1 - γ) s + γ), from wavelengths that are mixed.

    Source: https://github.com/jquesnelle/yarn/issues/24 (proposed there)
    Part: yarn
    Cause: wavelengths are mixed
    """
    inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2).float() / head_dim))
    low, high = correction_range(head_dim, base, trained)
    gamma = 1 - ramp(low, high, head_dim // 2)
    return inv_freq / ((1 - gamma) * factor + gamma), scale(factor)


def wrong_factor_in_the_power(head_dim, base, factor, trained):
    """1 / (s · base)^(2j/d) for the slow planes.

    Source: https://github.com/apache/tvm/pull/18576 (rope_freq_yarn)
    Part: yarn
    Cause: slow planes have the factor inside the power
    """
    exponent = torch.arange(0, head_dim, 2).double() / head_dim
    freq_extra = 1 / torch.pow(base, exponent)
    freq_inter = 1 / torch.pow(factor * base, exponent)
    low, high = (correction(turns, head_dim, base, trained) for turns in (32, 1))
    inv_freq_mask = 1 - ((torch.arange(head_dim // 2) - low) / (high - low)).clamp(0, 1)
    return freq_inter * (1 - inv_freq_mask) + freq_extra * inv_freq_mask, scale(factor)


def wrong_base_of_ntk(head_dim, base, factor, trained):
    """The frequencies that are kept come from the base of NTK-aware scaling.

    Source: https://github.com/paiml/aprender/pull/2161
    Part: yarn
    Cause: fast planes have the base of NTK-aware scaling
    """
    larger = base * factor ** (head_dim / (head_dim - 2))
    j = np.arange(head_dim // 2)
    low, high = correction_range(head_dim, base, trained)
    g = np.clip((j - low) / (high - low), 0, 1)
    kept, divided = larger ** (-2 * j / head_dim), base ** (-2 * j / head_dim) / factor
    return kept * (1 - g) + divided * g, scale(factor)


def wrong_inverted_twice(head_dim, base, factor, trained):
    """1 / (factor · x), where x is one over the frequency no more.

    Source: https://github.com/microsoft/onnxruntime-genai/pull/2076 (its fourth fault)
    Part: yarn
    Cause: slow planes are one over the frequency
    """
    inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2).double() / head_dim))
    low, high = correction_range(head_dim, base, trained)
    extrapolation = 1 - ramp(low, high, head_dim // 2).double()
    interpolation = 1.0 / (factor * inv_freq)
    return interpolation * (1 - extrapolation) + inv_freq * extrapolation, scale(factor)


def yarn_frequencies(head_dim, base, factor, trained):
    inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2).float() / head_dim))
    low, high = correction_range(head_dim, base, trained)
    mask = 1 - ramp(low, high, head_dim // 2)
    return inv_freq / factor * (1 - mask) + inv_freq * mask


def wrong_factor_1(head_dim, base, factor, trained):
    """Two equal scales are divided by one another.

    Source: https://github.com/turboderp-org/exllamav3/issues/259 (1.0.0)
    Part: yarn
    Cause: nothing multiplies cos and sin
    """
    mscale = mscale_all_dim = 1.0
    get_mscale = lambda s, m: 0.1 * m * math.log(s) + 1.0
    attn_factor = get_mscale(factor, mscale) / get_mscale(factor, mscale_all_dim)
    return yarn_frequencies(head_dim, base, factor, trained), attn_factor


def wrong_factor_squared(head_dim, base, factor, trained):
    """What is multiplied in the end is multiplied by YaRN's own once more.

    Source: https://github.com/sgl-project/sglang/pull/33558 (2.2058 for 1.4852)
    Part: yarn
    Cause: the second result is squared
    """
    attn_factor = scale(factor)
    return yarn_frequencies(head_dim, base, factor, trained), scale(factor) * attn_factor


def wrong_logarithm_twice(head_dim, base, factor, trained):
    """The final factor is passed as mscale, and goes through 0.1 · mscale · ln s + 1.

    Source: https://github.com/NVIDIA/TensorRT-LLM/pull/16379 (12.2 % too much at factor 64)
    Part: yarn
    Cause: the second result has the logarithm twice
    """
    mscale = scale(factor)
    return yarn_frequencies(head_dim, base, factor, trained), 0.1 * mscale * math.log(factor) + 1


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


def right_convert_in_place(weight, head_dim):
    """The weight that is given is overwritten, and returned.

    Part: convert
    """
    for start in range(0, len(weight), head_dim):
        head = weight[start : start + head_dim]
        head.copy_(torch.cat((head[::2], head[1::2])).clone())
    return weight


def right_yarn_as_it_is(head_dim, base, factor, trained):
    """The ramp's ends are not rounded, as in gpt-oss; a list and a NumPy number.

    Part: yarn
    """
    low, high = (correction(turns, head_dim, base, trained) for turns in (32, 1))
    result = []
    for j in range(head_dim // 2):
        plain = base ** (-2 * j / head_dim)
        part = min(max((j - low) / (high - low), 0), 1)
        result.append(plain * (1 - part) + plain / factor * part)
    return result, np.float64(0.1) * np.log(factor) + 1


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
