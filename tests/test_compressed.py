"""Compare rotated values and compressed entries with transformers and with plain loops."""

import pytest
import torch
from strategies import normal

from rope import RotaryEmbedding, reference
from rope.book.compressed import CompressedAttention, CompressedCache
from rope.extensions import YaRN

DOUBLE = torch.float64
KINDS = ("sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention")
SLIDING, HEAVY, SPARSE = KINDS
E, H, D, R, RATIO, WINDOW, TOP, LENGTH = 24, 4, 16, 8, 4, 5, 3, 23
# The indexer gets 16 heads: with few, many scores are exactly 0, and ties are broken arbitrarily.
SIZES = {"query_dim": 12, "groups": 2, "group_dim": 6}
PARTS = {
    "at once": [LENGTH],
    "token by token": [1] * LENGTH,
    "prefill, then tokens": [10, *[1] * 13],
    "in pieces": [3, 7, 1, 12],
}
# The layer computes the gates' softmax and the indexer's scores in float32.
ROUNDING = 2.0**-18


def random_weights(layer, seed=0):
    """Draw weights that keep the scale of their inputs, and biases and sinks of size 0.5."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, x in layer.named_parameters():
            scale = x.shape[-1] ** -0.5 if x.dim() == 2 and "bias" not in name else 0.5
            x.copy_(scale * torch.randn(x.shape, generator=noise) + ("norm" in name))
    return layer


def make(kind, *, ratio=RATIO, window=WINDOW, dtype=DOUBLE, **rotation):
    base = 1e4 if kind == SLIDING else 160_000.0
    layer = CompressedAttention(
        E,
        H,
        D,
        **SIZES,
        window=window,
        rotary=RotaryEmbedding(**({"dim": R, "base": base, "interleaved": True} | rotation)),
        ratio=None if kind == SLIDING else ratio,
        index=(16, 12, TOP) if kind == SPARSE else None,
    )
    return random_weights(layer).to(dtype)


@torch.no_grad()
def in_parts(layer, x, parts, start=0):
    cache = CompressedCache(start)
    return torch.cat([layer(part, cache) for part in x.split(parts, dim=1)], dim=1), cache


def rms(x, gain=1.0):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def rotate(x, positions, base):
    """Return x `[n, D]` with its last R coordinates rotated by the float64 reference."""
    theta = reference.inverse_frequencies(R, base)
    rotated = reference.rotate_matrix(x[:, -R:].numpy(), positions, theta)
    return torch.cat((x[:, :-R], torch.from_numpy(rotated)), dim=1)


def entries_of(c, x, start):
    """Return the first positions of all complete groups in x `[S, E]`, and their entries."""
    width, first = len(c.kv_norm.weight), start + -start % c.ratio
    kv, gate = c.kv_proj(x), c.gate_proj(x)
    starts, entries = list(range(first, start + len(x) - c.ratio + 1, c.ratio)), []
    for g in starts:
        group = slice(g - start, g - start + c.ratio)
        values, gates = kv[group, -width:], (gate[group] + c.position_bias)[:, -width:]
        if c.overlap and g > first:
            before = slice(g - start - c.ratio, g - start)
            values = torch.cat((values, kv[before, :width]))
            gates = torch.cat((gates, (gate[before] + c.position_bias)[:, :width]))
        entries.append(rms((gates.softmax(0) * values).sum(0), c.kv_norm.weight))
    return starts, torch.stack(entries) if entries else kv.new_zeros(0, width)


@torch.no_grad()
def by_the_formula(layer, x, start):
    """Return the outputs for tokens x `[S, E]` from position `start` on, by offsets only:

    s_mn = q_m . R_{n-m} v_n,    o_m = sum_n w_mn R_{n-m} v_n.
    """
    c, base = layer.compressor, layer.rotary.base
    latent = rms(layer.q_a_proj(x), layer.q_a_norm.weight)
    q = rms(layer.q_b_proj(latent).unflatten(-1, (H, D)))
    v, out = rms(layer.kv_proj(x), layer.kv_norm.weight), []
    if c is not None:
        at, entries = entries_of(c, x, start)
        if c.indexer is not None:
            keys, width = entries_of(c.indexer, x, start)[1], c.indexer.width
    for m in range(len(x)):
        first = max(0, m - layer.window + 1)
        vectors, positions = v[first : m + 1], list(range(first + start, m + 1 + start))
        if c is not None:
            read = [i for i, g in enumerate(at) if g + c.ratio <= start + m + 1]
            if c.indexer is not None and len(read) > TOP:
                each = c.indexer.q_b_proj(latent[m]).view(-1, width)
                each = each @ rotate(keys[read], [at[i] - start - m for i in read], base).T
                of_heads = c.indexer.scorer["weights_proj"](x[m])
                read = (of_heads @ each.relu()).topk(TOP).indices.tolist()
            vectors = torch.cat((vectors, entries[read]))
            positions += [at[i] for i in read]
        rotated = rotate(vectors, [n - start - m for n in positions], base)
        scores = torch.cat((q[m] @ rotated.T * D**-0.5, layer.sinks[:, None]), dim=1)
        heads = (scores.softmax(dim=1)[:, :-1] @ rotated).view(layer.groups, -1)
        parts = layer.o_a_proj.weight.unflatten(0, (layer.groups, -1))
        out.append(torch.cat([part @ head for part, head in zip(parts, heads, strict=True)]))
    return layer.o_b_proj(torch.stack(out))


@pytest.mark.parametrize("start", [0, 6, 1001])
@pytest.mark.parametrize(("kind", "ratio"), [(SLIDING, None), (HEAVY, 4), (HEAVY, 3), (SPARSE, 2)])
def test_outputs_and_entries_are_those_of_the_formula(kind, ratio, start):
    """Check outputs and entries; an entry's position is a multiple of the ratio for any start."""
    layer, x = make(kind, ratio=ratio), normal((1, LENGTH, E), 1)
    expected = by_the_formula(layer, x[0], start)
    for parts in PARTS.values():
        out, cache = in_parts(layer, x, parts, start)
        assert (out[0] - expected).abs().max() < ROUNDING
        if ratio is not None:
            with torch.no_grad():
                at, entries = entries_of(layer.compressor, x[0], start)
            assert cache.first == at[0] and at[0] % ratio == 0 <= at[0] - start < ratio
            off = cache.entries[0, 0] - rotate(entries, at, layer.rotary.base)
            assert off.abs().max() < ROUNDING


def theirs(kind, weights, x, scaling):
    """Return the output of transformers' layer for x, with that model's rotation and mask."""
    modeling = pytest.importorskip(
        "transformers.models.deepseek_v4.modeling_deepseek_v4",
        reason="no DeepSeek-V4 in transformers",
    )
    from transformers import DeepseekV4Config

    config = DeepseekV4Config(
        hidden_size=E,
        num_attention_heads=H,
        head_dim=D,
        q_lora_rank=12,
        o_groups=2,
        o_lora_rank=6,
        num_hidden_layers=1,
        layer_types=[kind],
        sliding_window=WINDOW,
        index_n_heads=16,
        index_head_dim=12,
        index_topk=TOP,
        partial_rotary_factor=R / D,
        compress_rates=dict.fromkeys(KINDS[1:], RATIO),
        rope_parameters=scaling,
        attn_implementation="eager",
    )
    layer, rotary = modeling.DeepseekV4Attention(config, 0), modeling.DeepseekV4RotaryEmbedding
    layer.load_state_dict(weights)  # both use the same names
    ids = torch.arange(x.shape[1]).expand(len(x), -1)
    behind = ids[0, :, None] - ids[0]
    mask = torch.zeros(len(x), 1, *behind.shape)
    mask.masked_fill_((behind < 0) | (behind >= WINDOW), -torch.inf)
    tables = {name: rotary(config)(x, ids, layer_type=name) for name in ("main", "compress")}
    with torch.no_grad():
        return layer(x, tables, ids, mask)[0]


# DeepSeek-V4 sets attention_factor to 1; YaRN's formula gives 1.277.
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64}
SPREAD, EXACTLY = YaRN(16.0, 64), YaRN(16.0, 64, attention_factor=1.0)


@pytest.mark.parametrize(
    ("kind", "scaling", "extension"),
    [(SLIDING, None, None), (HEAVY, None, None), (SPARSE, None, None), (HEAVY, YARN, EXACTLY)],
)
def test_parity_with_transformers(kind, scaling, extension):
    layer = make(kind, dtype=torch.float32, extension=extension)
    x = normal((2, LENGTH, E), 1, torch.float32)
    expected = theirs(kind, layer.state_dict(), x, scaling)
    for parts in PARTS.values():
        out, _ = in_parts(layer, x, parts)
        torch.testing.assert_close(out, expected, rtol=0, atol=2.0**-18)


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_that_is_read_has_a_gradient(kind):
    """Check gradients; the indexer only selects entries, so its weights have no gradient."""
    layer = make(kind)
    layer(normal((1, 12, E), 1)).square().sum().backward()
    for name, weight in layer.named_parameters():
        if "indexer" in name:
            assert weight.grad is None
        else:
            assert weight.grad.isfinite().all() and weight.grad.abs().max() > 0, name


@pytest.mark.parametrize(("kind", "window"), [(HEAVY, WINDOW), (SPARSE, WINDOW), (SLIDING, 1)])
def test_a_text_without_a_whole_group_reads_only_its_window(kind, window):
    layer, x = make(kind, window=window), normal((1, 4, E), 1)
    for start in (1, 2):
        out, _ = in_parts(layer, x, [1, 2, 1], start)
        assert (out[0] - by_the_formula(layer, x[0], start)).abs().max() < ROUNDING


@pytest.mark.parametrize(
    ("kind", "first", "wrong"),
    [
        (SLIDING, 1, {"base": 160_000.0}),
        (SLIDING, 1, {"extension": EXACTLY}),
        (HEAVY, 0, {"extension": SPREAD}),
    ],
    ids=["the other base", "YaRN", "the factor of YaRN"],
)
def test_a_public_fault_first_shows_at_the_token_that_the_chapter_names(kind, first, wrong):
    """Check rows of the table in "When values are rotated too" that no cell checks."""
    x = normal((2, 64, E), 1)
    right = make(kind, extension=EXACTLY if kind == HEAVY else None)
    off = (in_parts(make(kind, **wrong), x, [64])[0] - in_parts(right, x, [64])[0]).abs()
    off = off.amax(dim=(0, 2))
    assert off[:first].sum() < 2.0**-36 and int((off > 2.0**-20).nonzero()[0]) == first
