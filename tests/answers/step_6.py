"""rotate(q, k, position_ids): q [B, H, S, D], k [B, H_kv, S, D], ids [B, S], base 10,000."""

import numpy as np
import torch


def looked_up(position_ids, dim):
    """cos and sin, [B, 1, S, D/2]."""
    inv_freq = 1.0 / 10000.0 ** (torch.arange(0, dim, 2).double() / dim)
    angles = position_ids[:, None, :, None] * inv_freq
    return angles.cos(), angles.sin()


def rotated(x, cos, sin):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).to(x.dtype)


def both(q, k, position_ids):
    cos, sin = looked_up(position_ids, q.shape[-1])
    return rotated(q, cos, sin), rotated(k, cos, sin)


def wrong_first_row(q, k, position_ids):
    """All rows of a batch get the tables of the first.

    Source: https://github.com/linkedin/Liger-Kernel/pull/477, before it
    Cause: every row of the batch gets the positions of the first row
    """
    cos, sin = (table[:1] for table in looked_up(position_ids, q.shape[-1]))
    return rotated(q, cos, sin), rotated(k, cos, sin)


def wrong_opposite(q, k, position_ids):
    """The key's angle gets a minus, so that a difference appear.

    Source: https://github.com/huggingface/transformers/issues/30900, proposed as a correction
    Cause: query and key are rotated in opposite directions
    """
    cos, sin = looked_up(position_ids, q.shape[-1])
    return rotated(q, cos, sin), rotated(k, cos, -sin)


def wrong_query_counted_apart(q, k, position_ids):
    """The query's position is one further than that of the key.

    Source: https://github.com/sgl-project/sglang/pull/25015, draft steps before it
    Cause: the query is rotated by its position + 1, but the key by its position
    """
    return both(q, k, position_ids + 1)[0], both(q, k, position_ids)[1]


def wrong_heads_after_the_first(q, k, position_ids):
    """Of one token, heads after the first are left as they are.

    Source: https://github.com/oxiglade/mlx-rs/pull/357, before it
    Cause: in a call with one token, only the first head is rotated
    """
    pair = zip((q, k), both(q, k, position_ids), strict=True)
    if q.shape[2] > 1:
        return tuple(y for x, y in pair)
    return tuple(torch.cat((y[:, :1], x[:, 1:]), dim=1) for x, y in pair)


def wrong_in_place(q, k, position_ids):
    """Queries and keys are overwritten.

    Source: https://github.com/unslothai/unsloth/issues/5001
    Cause: it writes into q
    """
    for x, y in zip((q, k), both(q, k, position_ids), strict=True):
        x.copy_(y)
    return q, k


KEPT = {}


def wrong_kept_by_length(q, k, position_ids):
    """What was looked up is kept, and its key is the length alone.

    Source: https://github.com/lucidrains/rotary-embedding-torch/issues/11
    Cause: the tables are cached by the length of a call
    """
    key = (*position_ids.shape, q.shape[-1])
    if key not in KEPT:
        KEPT[key] = looked_up(position_ids, q.shape[-1])
    return rotated(q, *KEPT[key]), rotated(k, *KEPT[key])


def right_from_a_table(q, k, position_ids):
    """Rows of a long table in float32, as a list."""
    cos, sin = (t[0, 0].float() for t in looked_up(torch.arange(1 << 17)[None], q.shape[-1]))
    cos, sin = cos[position_ids].unsqueeze(1), sin[position_ids].unsqueeze(1)
    return [rotated(q, cos, sin), rotated(k, cos, sin)]


GROWN = {}


def right_table_that_grows(q, k, position_ids):
    """One table a width, made anew for each longer text."""
    length, dim = int(position_ids.max()) + 1, q.shape[-1]
    if dim not in GROWN or len(GROWN[dim][0]) < length:
        GROWN[dim] = [table[0, 0] for table in looked_up(torch.arange(length)[None], dim)]
    cos, sin = (table[position_ids][:, None] for table in GROWN[dim])
    return {"q": rotated(q, cos, sin), "k": rotated(k, cos, sin)}.values()


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
