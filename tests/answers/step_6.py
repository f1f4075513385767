"""rotate(q, k, position_ids): q [B, H, S, D], k [B, H_kv, S, D], ids [B, S], base 10,000."""

import numpy as np
import torch


def looked_up(position_ids, dim):
    """cos and sin, [B, 1, S, D/2]."""
    inv_freq = 1.0 / 10000.0 ** (torch.arange(0, dim, 2).double() / dim)
    angles = position_ids[:, None, :, None] * inv_freq
    return angles.cos(), angles.sin()


def turned(x, cos, sin):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).to(x.dtype)


def both(q, k, position_ids):
    cos, sin = looked_up(position_ids, q.shape[-1])
    return turned(q, cos, sin), turned(k, cos, sin)


def wrong_first_row(q, k, position_ids):
    """All rows of a batch get the tables of the first.

    Source: https://github.com/linkedin/Liger-Kernel/pull/477, before it
    Cause: the query of row 1 of three differs
    """
    cos, sin = (table[:1] for table in looked_up(position_ids, q.shape[-1]))
    return turned(q, cos, sin), turned(k, cos, sin)


def wrong_one_position_for_a_window(q, k, position_ids):
    """Each row's start is spread over its tokens.

    Source: https://github.com/jundot/omlx/pull/2363, before it
    Cause: the query changes where the id has not changed
    """
    return both(q, k, position_ids[:, :1].expand_as(position_ids))


def wrong_key_not_written_back(q, k, position_ids):
    """The rotated key goes elsewhere, and attention gets the old one.

    Source: https://github.com/kvcache-ai/sglang/pull/66, before it
    Cause: 0 of 1 heads of the key follow the position
    """
    return both(q, k, position_ids)[0], k


def wrong_opposite(q, k, position_ids):
    """The key's angle gets a minus, so that a difference appear.

    Source: https://github.com/huggingface/transformers/issues/30900, proposed as a correction
    Cause: query and key are turned in opposite directions
    """
    cos, sin = looked_up(position_ids, q.shape[-1])
    return turned(q, cos, sin), turned(k, cos, -sin)


def wrong_query_counted_apart(q, k, position_ids):
    """The query's position is one further than that of the key.

    Source: https://github.com/sgl-project/sglang/pull/25015, draft steps before it
    Cause: the query is turned by its position +1 and the key by +0
    """
    return both(q, k, position_ids + 1)[0], both(q, k, position_ids)[1]


def wrong_from_one(q, k, position_ids):
    """Positions of both are one-indexed.

    Source: https://github.com/PrimeIntellect-ai/prime-rl/pull/3466, the fallback before it
    Cause: position 0 is turned as position 1
    """
    return both(q, k, position_ids + 1)


def wrong_clockwise(q, k, position_ids):
    """x cos − rotate_half(x) sin.

    Source: https://github.com/trymirai/lalamo/pull/268
    Cause: in halves, the pair turns clockwise
    """
    cos, sin = looked_up(position_ids, q.shape[-1])
    return turned(q, cos, -sin), turned(k, cos, -sin)


def wrong_no_axis_for_heads(q, k, position_ids):
    """cos[position_ids] lacks its unsqueeze, and rows meet heads.

    Source: https://github.com/morganmcg1/rotobart/pull/1, right for one row alone
    Cause: it raises RuntimeError: The size of tensor a (4) must match the size of tensor b (3)
    """
    cos, sin = (table[:, 0] for table in looked_up(position_ids, q.shape[-1]))
    return turned(q, cos, sin), turned(k, cos, sin)


def wrong_heads_after_the_first(q, k, position_ids):
    """Of one token, heads after the first are left as they are.

    Source: https://github.com/oxiglade/mlx-rs/pull/357, before it
    Cause: the query is turned otherwise in a call of one token
    """
    pair = zip((q, k), both(q, k, position_ids), strict=True)
    if q.shape[2] > 1:
        return tuple(y for x, y in pair)
    return tuple(torch.cat((y[:, :1], x[:, 1:]), dim=1) for x, y in pair)


def wrong_positions_in_the_dtype_of_vectors(q, k, position_ids):
    """Positions take the dtype of the vectors.

    Source: https://github.com/huggingface/candle/pull/3520, qwen2 before it
    Cause: the query given as bfloat16 is off by
    """
    return both(q, k, position_ids.to(q.dtype))


def wrong_half_of_the_head(q, k, position_ids):
    """A rotary width of half the head.

    Source: https://github.com/lucidrains/rotary-embedding-torch/issues/4, asked about
    Cause: 8 coordinates of the query are rotated, not 16
    """
    dim = q.shape[-1] // 2
    cos, sin = looked_up(position_ids, dim)
    return tuple(torch.cat((turned(x[..., :dim], cos, sin), x[..., dim:]), -1) for x in (q, k))


def wrong_in_place(q, k, position_ids):
    """Queries and keys are overwritten.

    Source: https://github.com/unslothai/unsloth/issues/5001
    Cause: it writes into k, q
    """
    for x, y in zip((q, k), both(q, k, position_ids), strict=True):
        x.copy_(y)
    return q, k


KEPT = {}


def wrong_kept_by_length(q, k, position_ids):
    """What was looked up is kept, and its key is the length alone.

    Source: https://github.com/lucidrains/rotary-embedding-torch/issues/11
    Cause: the query is turned by its place in the call
    """
    key = (*position_ids.shape, q.shape[-1])
    if key not in KEPT:
        KEPT[key] = looked_up(position_ids, q.shape[-1])
    return turned(q, *KEPT[key]), turned(k, *KEPT[key])


def right_from_a_table(q, k, position_ids):
    """Rows of a long table in float32, as a list."""
    cos, sin = (t[0, 0].float() for t in looked_up(torch.arange(1 << 17)[None], q.shape[-1]))
    cos, sin = cos[position_ids].unsqueeze(1), sin[position_ids].unsqueeze(1)
    return [turned(q, cos, sin), turned(k, cos, sin)]


GROWN = {}


def right_table_that_grows(q, k, position_ids):
    """One table a width, made anew for each longer text."""
    length, dim = int(position_ids.max()) + 1, q.shape[-1]
    if dim not in GROWN or len(GROWN[dim][0]) < length:
        GROWN[dim] = [table[0, 0] for table in looked_up(torch.arange(length)[None], dim)]
    cos, sin = (table[position_ids][:, None] for table in GROWN[dim])
    return {"q": turned(q, cos, sin), "k": turned(k, cos, sin)}.values()


def right_neighbours_at_once(q, k, position_ids):
    """Queries and keys joined along their heads."""
    cos, sin = (t.repeat_interleave(2, -1) for t in looked_up(position_ids, q.shape[-1]))
    x = torch.cat((q, k), dim=1)
    quarter = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return (x * cos + quarter * sin).to(x.dtype).split((q.shape[1], k.shape[1]), dim=1)


def right_numpy(q, k, position_ids):
    inv_freq = 10000.0 ** (-np.arange(0, q.shape[-1], 2) / q.shape[-1])
    cis = np.exp(1j * position_ids.numpy()[:, None, :, None] * inv_freq)
    pairs = [(x.numpy()[..., ::2] + 1j * x.numpy()[..., 1::2]) * cis for x in (q, k)]
    out = [np.stack((pair.real, pair.imag), -1).reshape(*pair.shape[:-1], -1) for pair in pairs]
    return tuple(y.astype(x.numpy().dtype) for x, y in zip((q, k), out, strict=True))
