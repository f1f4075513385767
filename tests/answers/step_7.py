"""layer(x, w, head_dim, position_ids, cache): 4 heads of queries on 2 of keys, with a cache."""

import math

import numpy as np
import torch
from torch.nn import functional
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


def wrong_no_mask(x, w, head_dim, position_ids, cache):
    """No mask is given, in the belief that SDPA masks by itself.

    Source: https://github.com/osaurus-ai/vmlx-swift/pull/185 (FalconH1, mask `nil`)
    Cause: tokens see later ones: the causal mask is missing
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    return joined(sdpa(q, k, v, enable_gqa=True), w), cache


def wrong_mask_without_a_cache_alone(x, w, head_dim, position_ids, cache):
    """`if cache is None` decides on the mask, and several tokens may follow a cache.

    Source: https://github.com/Mikyx-1/TinyLLM/issues/17
    Cause: with a cache tokens see later ones
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


def wrong_is_causal_with_a_cache(x, w, head_dim, position_ids, cache):
    """is_causal lines the mask up at its upper left, so one query sees the oldest key alone.

    Source: https://github.com/pytorch/pytorch/issues/144858 (torch 2.2.2)
    Cause: with a cache a token sees the oldest keys alone
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    return joined(sdpa(q, k, v, is_causal=True, enable_gqa=True), w), cache


def wrong_square_mask(x, w, head_dim, position_ids, cache):
    """The mask is S × S, also where scores have the keys of a cache.

    Source: https://github.com/meta-llama/llama/issues/899
    Cause: it raises RuntimeError: The size of tensor a
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    k, v = repeated(q, k, v)
    scores = q @ k.transpose(2, 3) / math.sqrt(head_dim)
    if x.shape[1] > 1:
        scores = scores + torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)
    return joined(softmax(scores, dim=-1) @ v, w), cache


def wrong_masked_with_nearly_0(x, w, head_dim, position_ids, cache):
    """-1e-9 is written where -1e9 is meant.

    Source: https://github.com/Shujun-He/RibonanzaNet/issues/5
    Cause: masked scores are 0
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    k, v = repeated(q, k, v)
    attn = torch.matmul(q / head_dim**0.5, k.transpose(2, 3))
    attn = attn.masked_fill(causal(q, k) == 0, -1e-9)
    return joined(torch.matmul(softmax(attn, dim=-1), v), w), cache


def wrong_mask_after_softmax(x, w, head_dim, position_ids, cache):
    """A bool mask makes weights 0 that have been in the softmax.

    Source: https://github.com/pytorch/pytorch/issues/103749 (proposed in a comment)
    Cause: the mask comes after the softmax, so weights no longer sum to 1
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    k, v = repeated(q, k, v)
    weights = softmax(q @ k.mT / math.sqrt(head_dim), dim=-1) * causal(q, k)
    return joined(weights @ v, w), cache


def wrong_infinite_weights(x, w, head_dim, position_ids, cache):
    """The line that masks, with -inf, stands below that of the softmax.

    Source: https://github.com/huggingface/pytorch-image-models/pull/2236 (eva.py)
    Cause: the mask comes after the softmax, where −∞ is a weight
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    k, v = repeated(q, k, v)
    q = q * head_dim**-0.5
    attn = q @ k.transpose(-2, -1)
    attn = attn.softmax(dim=-1)
    attn = attn.masked_fill(~causal(q, k), float("-inf"))
    return joined(attn @ v, w), cache


def wrong_softmax_over_queries(x, w, head_dim, position_ids, cache):
    """softmax with the dimension of the queries.

    Source: https://github.com/nerminnuraydogan/vision-transformer/issues/1 (`dim=1` of [B, S, S])
    Cause: softmax runs over the queries
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    k, v = repeated(q, k, v)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * head_dim**-0.5
    weights = scores.masked_fill(~causal(q, k), -torch.inf).softmax(dim=2)
    return joined(torch.einsum("bhij,bhjd->bhid", weights, v), w), cache


def wrong_not_scaled(x, w, head_dim, position_ids, cache):
    """The code leaves out the 1 / √D that stands in the formula above it.

    Source: https://github.com/huggingface/blog/pull/2893 (kv-cache.md)
    Cause: scores are not divided by √D
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    k, v = repeated(q, k, v)
    scores = torch.matmul(q, k.transpose(-2, -1))
    scores = scores.masked_fill(causal(q, k).logical_not(), float("-inf"))
    return joined(torch.matmul(torch.softmax(scores, dim=-1), v), w), cache


def wrong_scaled_after_softmax(x, w, head_dim, position_ids, cache):
    """The weights are scaled, not the scores.

    Source: https://github.com/FrancescoSaverioZuppichini/ViT/issues/2
    Cause: weights are divided by √D after the softmax
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    k, v = repeated(q, k, v)
    energy = torch.einsum("bhqd, bhkd -> bhqk", q, k)
    energy.masked_fill_(~causal(q, k), torch.finfo(torch.float32).min)
    att = softmax(energy, dim=-1) / head_dim ** (1 / 2)
    return joined(torch.einsum("bhal, bhlv -> bhav", att, v), w), cache


def wrong_scaled_twice(x, w, head_dim, position_ids, cache):
    """Queries are scaled, and SDPA scales again.

    Source: https://github.com/huggingface/transformers/pull/38290 (OPT)
    Cause: scores are divided by D, or twice by √D
    """
    q, k, v = projected(x, w, head_dim)
    q = q * head_dim**-0.5
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    return joined(attend(q, k, v), w), cache


def wrong_scaled_by_channels(x, w, head_dim, position_ids, cache):
    """C is the width of the input, not of the head.

    Source: https://github.com/karpathy/ng-video-lecture/pull/6
    Cause: scores are divided by the root of the model's width
    """
    C = x.shape[-1]
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    k, v = repeated(q, k, v)
    wei = q @ k.transpose(-2, -1) * C**-0.5
    wei = softmax(wei.masked_fill(causal(q, k) == 0, float("-inf")), dim=-1)
    return joined(wei @ v, w), cache


def wrong_tiled_heads(x, w, head_dim, position_ids, cache):
    """Key heads in the order 0, 1, 0, 1 in place of 0, 0, 1, 1.

    Source: https://github.com/onnx/onnx/pull/7274 (Attention, opset 23)
    Cause: heads are grouped by repeat
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    k, v = (torch.tile(y, (1, q.shape[1] // y.shape[1], 1, 1)) for y in (k, v))
    return joined(attend(q, k, v), w), cache


def wrong_split_by_view(x, w, head_dim, position_ids, cache):
    """view makes the heads, without a transpose.

    Source: https://github.com/reczoo/FuxiCTR/issues/30
    Cause: [B, S, H·D] is reshaped to [B, H, S, D] without a transpose
    """
    q, k, v = (
        functional.linear(x, w[name]).view(x.shape[0], -1, x.shape[1], head_dim) for name in "qkv"
    )
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    return joined(attend(q, k, v), w), cache


def wrong_joined_by_reshape(x, w, head_dim, position_ids, cache):
    """The permute before the last reshape is missing.

    Source: https://github.com/jsbaan/transformer-from-scratch/pull/6
    Cause: [B, H, S, D] is reshaped to [B, S, H·D] without a transpose
    """
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    values = attend(q, k, v)
    return values.reshape(x.shape[0], x.shape[1], -1) @ w["o"].T, cache


def wrong_rotated_values(x, w, head_dim, position_ids, cache):
    """All three are rotated.

    Source: https://github.com/lucidrains/x-transformers/issues/182 (before 1.20.0)
    Cause: values are turned, too
    """
    q, k, v = (rotate(y, position_ids) for y in projected(x, w, head_dim))
    cache = k, v = grown(cache, k, v)
    return joined(attend(q, k, v), w), cache


def wrong_queries_alone(x, w, head_dim, position_ids, cache):
    """Only q goes through the rotation.

    Source: https://github.com/Tencent-Hunyuan/HunyuanDiT/issues/66 (cross-attention)
    Cause: keys are not turned
    """
    q, k, v = projected(x, w, head_dim)
    q = rotate(q, position_ids)
    cache = k, v = grown(cache, k, v)
    return joined(attend(q, k, v), w), cache


def wrong_rotated_key_in_the_cache_alone(x, w, head_dim, position_ids, cache):
    """The rotated key is written to the cache, and attention gets k as it was.

    Source: https://github.com/kvcache-ai/sglang/pull/31 (fused_rope_store)
    Cause: attention gets the keys of a call before they are turned
    """
    q, k, v = projected(x, w, head_dim)
    q = rotate(q, position_ids)
    after = grown(cache, rotate(k, position_ids), v)
    return joined(attend(q, *grown(cache, k, v)), w), after


def wrong_rotated_again(x, w, head_dim, position_ids, cache):
    """The whole cache is rotated in each call, and has been before.

    Source: https://github.com/NeuraLegion/shainet/pull/110 (first version, in review)
    Cause: keys from the cache are turned again in each call
    """
    q, k, v = projected(x, w, head_dim)
    seen = position_ids
    if cache is not None:
        seen = torch.cat((cache[2], position_ids), dim=1)
    k, v = grown(cache, k, v)
    q, k = rotate(q, position_ids), rotate(k, seen)
    return joined(attend(q, k, v), w), (k, v, seen)


def wrong_positions_from_0(x, w, head_dim, position_ids, cache):
    """Positions are arange(S) in each call, so a single token is always at 0.

    Source: https://github.com/Blaizzy/mlx-vlm/issues/1983 (Qwen3-Omni, get_rope_index)
    Cause: position_ids are not read: each call counts from 0
    """
    B, S, _ = x.shape
    position_ids = torch.arange(S)[None].expand(B, S)
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    return joined(attend(q, k, v), w), cache


def wrong_positions_from_the_cache(x, w, head_dim, position_ids, cache):
    """One number, the length of the cache, stands for the positions of all rows.

    Source: https://github.com/Comfy-Org/ComfyUI/pull/15698 (text_encoders/llama.py, in review)
    Cause: position_ids are not read: tokens are counted on from the cache
    """
    past_len = 0 if cache is None else cache[0].shape[2]
    position_ids = torch.arange(past_len, past_len + x.shape[1]).unsqueeze(0)
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    return joined(attend(q, k, v), w), cache


def wrong_query_offset(x, w, head_dim, position_ids, cache):
    """The offset of queries is computed before the cache is joined on, and is 0.

    Source: https://github.com/RobertCsordas/moeut/pull/6
    Cause: queries are turned as if each call began at position 0
    """
    q, k, v = projected(x, w, head_dim)
    offset = k.shape[2] - q.shape[2]
    q = rotate(q, torch.arange(offset, offset + q.shape[2])[None])
    cache = k, v = grown(cache, rotate(k, position_ids), v)
    return joined(attend(q, k, v), w), cache


TABLES = {}


def wrong_tables_by_length(x, w, head_dim, position_ids, cache):
    """Tables are kept under the length of the sequence, and its offset is left out of the key.

    Source: https://github.com/lucidrains/rotary-embedding-torch/issues/11 (`freqs:{seq_len}`)
    Cause: tables are kept by the length of a call
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


def right_half_precision(x, w, head_dim, position_ids, cache):
    """float16 throughout, but for the angles."""
    x, w = x.half(), {name: each.half() for name, each in w.items()}
    q, k, v = projected(x, w, head_dim)
    q, k = rotate(q, position_ids), rotate(k, position_ids)
    cache = k, v = grown(cache, k, v)
    return joined(attend(q, k, v), w), cache


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
