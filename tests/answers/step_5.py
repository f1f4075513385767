"""rotate(x, cos, sin): x [B, H, S, D] by tables [S, D/2], in halves or in neighbours."""

import numpy as np
import torch


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def rotate_neighbors(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def wrong_angles_of_neighbours_in_halves(x, cos, sin):
    """Angles by repeat_interleave, quarter turn of halves.

    Source: https://github.com/raiyanyahya/how-to-train-your-gpt/issues/6, chapter 4
    Cause: the pairs are halves, but the tables are repeated for neighbors
    """
    cos, sin = (table.repeat_interleave(2, dim=-1) for table in (cos, sin))
    return (x * cos + rotate_half(x) * sin).to(x.dtype)


def wrong_reads_what_is_written(x, cos, sin):
    """Each coordinate is written before its partner has been read.

    Source: https://github.com/flagos-ai/FlagGems/issues/5142, what two warps may do
    Cause: the second line reads what the first line has just written
    """
    out, d = x.clone(), x.shape[-1] // 2
    out[..., :d] = out[..., :d] * cos - out[..., d:] * sin
    out[..., d:] = out[..., d:] * cos + out[..., :d] * sin
    return out


def wrong_joined(x, cos, sin):
    """Even and odd results are joined, not put back between each other.

    Source: https://github.com/vllm-project/vllm-metal/pull/44, before it
    Cause: the pairs are neighbors in x but halves in the result
    """
    evens, odds = x[..., ::2], x[..., 1::2]
    return torch.cat((evens * cos - odds * sin, evens * sin + odds * cos), dim=-1)


def wrong_heads_for_tokens(x, cos, sin):
    """The tables lie along the heads.

    Source: https://github.com/facebookresearch/xformers/issues/841, and mlfoundations/open_lm 4
    Cause: the tables lie along the heads, so each head is rotated by its index
    """
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)


def wrong_dtype(x, cos, sin):
    """Tables in float32 make float32 of half precision.

    Source: https://github.com/huggingface/pytorch-image-models/pull/2794, apply_rot_embed_cat
    Cause: given float16, x comes back as float32
    """
    cos, sin = (table.repeat_interleave(2, dim=-1) for table in (cos, sin))
    return x * cos + rotate_neighbors(x) * sin


def right_matrix(x, cos, sin):
    """One matrix [D, D] a token, and einsum."""
    d = x.shape[-1]
    matrix = torch.zeros(len(cos), d, d, dtype=cos.dtype)
    even = torch.arange(0, d, 2)
    matrix[:, even, even] = matrix[:, even + 1, even + 1] = cos
    matrix[:, even + 1, even] = sin
    matrix[:, even, even + 1] = -sin
    return torch.einsum("sij,bhsj->bhsi", matrix, x.to(cos.dtype)).to(x.dtype)


def right_numpy(x, cos, sin):
    x, cos, sin = x.numpy(), cos.numpy(), sin.numpy()
    x1, x2 = np.split(x, 2, axis=-1)
    return np.concatenate([x1 * cos - x2 * sin, x1 * sin + x2 * cos], axis=-1)


def right_loops(x, cos, sin):
    out = x.tolist()
    for batch in out:
        for head in batch:
            for s, token in enumerate(head):
                for j in range(cos.shape[1]):
                    a, b, c, d = token[2 * j], token[2 * j + 1], cos[s, j].item(), sin[s, j].item()
                    token[2 * j], token[2 * j + 1] = a * c - b * d, a * d + b * c
    return out


def right_rows_in_a_list(x, cos, sin):
    """A list with one tensor a batch, each by roll and signs."""
    half = x.shape[-1] // 2
    signs = torch.cat((-torch.ones(half), torch.ones(half)))
    cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)
    return [(row * cos + row.roll(half, -1) * signs * sin).to(x.dtype) for row in x]
