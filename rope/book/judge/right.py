# mypy: ignore-errors
"""Define the solutions of *Build it yourself*, word for word as the chapter prints them.

`mistakes/step_N.txt` holds edits to this file. Shapes: B batch, H heads, S sequence, D head
dimension, E width of the model.
"""

from contextlib import suppress
from math import cos, log, pi, sin

with suppress(ImportError):  # the built page has no torch and runs only steps 1 to 3
    import torch
    from torch.nn.functional import linear, scaled_dot_product_attention


def rotate(x, y, angle):
    c, s = cos(angle), sin(angle)
    return x * c - y * s, x * s + y * c


def score(q, k, m, n, theta):
    (a, b), (c, d) = rotate(*q, m * theta), rotate(*k, n * theta)
    return a * c + b * d


def angles(position, head_dim, base):
    return [position * base ** (-i / head_dim) for i in range(0, head_dim, 2)]


def tables(position_ids, head_dim, base):
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angle = position_ids[:, None] * base**-exponents  # float64
    return angle.cos().float(), angle.sin().float()


def rotate_head(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    rotated = first * cos - second * sin, first * sin + second * cos
    return torch.cat(rotated, dim=-1).to(x.dtype)


def rotate_batch(q, k, position_ids):
    both = tables(position_ids.flatten(), q.shape[-1], 10_000.0)
    cos, sin = (table.unflatten(0, position_ids.shape)[:, None] for table in both)
    return rotate_head(q, cos, sin), rotate_head(k, cos, sin)


def layer(x, w, head_dim, position_ids, cache=None):
    q, k, v = (linear(x, w[name]).unflatten(-1, (-1, head_dim)).transpose(1, 2) for name in "qkv")
    q, k = rotate_batch(q, k, position_ids)
    if cache is not None:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    S, T = q.shape[2], k.shape[2]
    mask = torch.ones(S, T).bool().tril(T - S)
    y = scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return linear(y.transpose(1, 2).flatten(2), w["o"]), (k, v)


def alike(documents):
    return documents[:, :, None] == documents[:, None, :]


def position_ids(documents):
    return alike(documents).tril(-1).sum(dim=-1) * (documents > 0)


def may_see(documents):
    return alike(documents).tril() & (documents > 0)[:, None, :]


def convert(weight, head_dim):
    return weight.unflatten(0, (-1, head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)


def yarn(head_dim, base, factor, trained):
    j = torch.arange(head_dim // 2, dtype=torch.float64)
    low, high = (head_dim * log(trained / (2 * pi * turns)) / (2 * log(base)) for turns in (32, 1))
    ramp = ((j - low) / (high - low)).clamp(0, 1)
    inv_freq = base ** (-2 * j / head_dim)
    return inv_freq * (1 - ramp) + inv_freq / factor * ramp, 0.1 * log(factor) + 1
