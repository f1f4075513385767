"""layer(x, w, head_dim, position_ids, cache): grouped heads, a causal mask and a cache."""

import math

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
from torch.nn.functional import softmax

BASE = 10000.0


def angles(position_ids, head_dim):
    """[B, 1, S, D/2]."""
    inv_freq = BASE ** (-torch.arange(0, head_dim, 2).double() / head_dim)
    return position_ids[:, None, :, None] * inv_freq


def rotate(x, position_ids):
    angle = angles(position_ids, x.shape[-1])
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1)


def projected(x, w, head_dim):
    """q, k and v, each [B, H, S, D]."""
    split = lambda y: y.view(*x.shape[:2], -1, head_dim).transpose(1, 2)
    return [split(x @ w[name].T) for name in "qkv"]


def grown(cache, k, v):
    if cache is None:
        return k, v
    return torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)


def causal(q, k):
    """True where a query sees a key, with the newest of both in the last corner."""
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])


def repeated(q, k, v):
    groups = q.shape[1] // k.shape[1]
    return k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)


def attend(q, k, v, mask=None, scale=None):
    k, v = repeated(q, k, v)
    return sdpa(q, k, v, attn_mask=causal(q, k) if mask is None else mask, scale=scale)


def joined(y, w):
    return y.transpose(1, 2).flatten(2) @ w["o"].T


def wrong_mask_without_a_cache_alone(x, w, head_dim, position_ids, cache):
    """`if cache is None` decides on the mask, and several tokens may follow a cache.

    Source: https://github.com/Mikyx-1/TinyLLM/issues/17
    Cause: with a cache, tokens see later tokens
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    first = cache is None
    cache = k, v = grown(cache, k, v)
    k, v = repeated(q, k, v)
    scores = q @ k.transpose(-2, -1) / math.sqrt(head_dim)
    if first:
        scores = scores.masked_fill(~causal(q, k), float("-inf"))
    return joined(softmax(scores, dim=-1) @ v, w), cache


def wrong_masked_with_nearly_0(x, w, head_dim, position_ids, cache):
    """-1e-9 is written where -1e9 is meant.

    Source: https://github.com/Shujun-He/RibonanzaNet/issues/5
    Cause: masked scores are 0, and softmax gives them a weight
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    k, v = repeated(q, k, v)
    attn = torch.matmul(q / head_dim**0.5, k.transpose(2, 3))
    attn = attn.masked_fill(causal(q, k) == 0, -1e-9)
    return joined(torch.matmul(softmax(attn, dim=-1), v), w), cache


def wrong_rotated_again(x, w, head_dim, position_ids, cache):
    """The whole cache is rotated in each call, and has been before.

    Source: https://github.com/NeuraLegion/shainet/pull/110 (first version, in review)
    Cause: the keys from the cache are rotated again in each call
    """
    q, k, v = projected(x, w, head_dim)
    seen = position_ids
    if cache is not None:
        seen = torch.cat((cache[2], position_ids), dim=1)
    k, v = grown(cache, k, v)
    q, k = rotate(q, position_ids), rotate(k, seen)
    return joined(attend(q, k, v), w), (k, v, seen)


TABLES = {}


def wrong_tables_by_length(x, w, head_dim, position_ids, cache):
    """Tables are kept under the length of the sequence, and its offset is left out of the key.

    Source: https://github.com/lucidrains/rotary-embedding-torch/issues/11 (`freqs:{seq_len}`)
    Cause: the tables are cached by the length of a call
    """
    cache_key = f"freqs:{x.shape[1]}"
    if cache_key not in TABLES:
        TABLES[cache_key] = position_ids[:1]
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, TABLES[cache_key]), rotate(k, TABLES[cache_key])
    cache = k, v = grown(cache, k, v)
    return joined(attend(q, k, v), w), cache


def wrong_cache_not_read(x, w, head_dim, position_ids, cache=None, layer_past=None):
    """The cache arrives under a name that the layer does not read.

    Source: https://github.com/deepspeedai/DeepSpeed/pull/7428 (`past_key_value`)
    Cause: keys and values of earlier calls are not used
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    layer_past = k, v = grown(layer_past, k, v)
    return joined(attend(q, k, v), w), layer_past


def right_bare_cache(x, w, head_dim, position_ids, cache):
    """The cache holds bare keys and their positions, and all are rotated in each call."""
    q, k, v = projected(x, w, head_dim)
    if cache is not None:
        k, v = torch.cat((cache["k"], k), 2), torch.cat((cache["v"], v), 2)
        positions = torch.cat((cache["positions"], position_ids), 1)
    else:
        positions = position_ids
    cache = dict(k=k, v=v, positions=positions)
    seen = positions[:, None, None, :] <= position_ids[:, None, :, None]
    y = attend(rotate(q, position_ids), rotate(k, positions), v, mask=seen)
    return joined(y, w), cache


def right_numpy(x, w, head_dim, position_ids, cache):
    """NumPy throughout, with a rotation matrix for each token; a list is returned."""
    x, ids = x.numpy().astype(np.float64), position_ids.numpy()
    q, k, v = (
        (x @ w[name].numpy().T.astype(np.float64)).reshape(*x.shape[:2], -1, head_dim)
        for name in "qkv"
    )
    matrix = np.zeros((*ids.shape, head_dim, head_dim))
    for j in range(head_dim // 2):
        c, s = np.cos(ids * BASE ** (-2 * j / head_dim)), np.sin(ids * BASE ** (-2 * j / head_dim))
        matrix[..., 2 * j, 2 * j], matrix[..., 2 * j, 2 * j + 1] = c, -s
        matrix[..., 2 * j + 1, 2 * j], matrix[..., 2 * j + 1, 2 * j + 1] = s, c
    q, k = (np.einsum("bsij,bshj->bshi", matrix, y) for y in (q, k))
    if cache is not None:
        k, v = np.concatenate((cache[0], k), 1), np.concatenate((cache[1], v), 1)
    cache = [k, v]
    k, v = np.repeat(k, q.shape[2] // k.shape[2], 2), np.repeat(v, q.shape[2] // v.shape[2], 2)
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(head_dim)
    scores[..., np.triu(np.ones(scores.shape[-2:]), 1 + k.shape[1] - q.shape[1]) > 0] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y = np.einsum("bhij,bjhd->bihd", weights, v).reshape(*x.shape[:2], -1)
    return [y @ w["o"].numpy().T, cache]
