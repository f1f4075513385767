"""Test attention against plain loops, its cache against the full pass, and linear attention."""

import itertools

import pytest
import torch
from strategies import DTYPES, normal, tolerance

from rope import RotaryEmbedding, inverse_frequencies, reference, rotary_tables
from rope.attention import (
    KVCache,
    LatentAttention,
    RotaryAttention,
    segment_ids,
)
from rope.book.training.linear import linear_attention
from rope.positions import left_padded_position_ids, packed_position_ids

DOUBLE = torch.float64
KINDS = {
    "full": {},
    "grouped": {"num_kv_heads": 2},
    "one key head": {"num_kv_heads": 1},
    "partial": {"rotary": RotaryEmbedding(4)},
    "interleaved": {"rotary": RotaryEmbedding(8, interleaved=True), "bias": True},
    "wide heads": {"head_dim": 12},
    "another base, scaled scores": {"rotary": RotaryEmbedding(8, base=100.0)},
}
KINDS["another base, scaled scores"]["rotary"].softmax_scale = 1.7


def make(kind, dtype=torch.float64):
    torch.manual_seed(0)
    return RotaryAttention(32, 4, **KINDS[kind]).to(dtype)


def close(actual, expected, dtype=torch.float64, operations=64):
    """Assert closeness; the projections sum about 32 products on each side, so 64 roundings."""
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance(dtype, scale, operations))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_formula(kind, causal):
    """Compare with plain loops over tokens and heads, rotated by the float64 reference."""
    layer, x = make(kind), normal((2, 6, 32), 1)
    ids = torch.tensor([[0, 1, 2, 3, 4, 5], [7, 8, 11, 12, 20, 1001]])
    dim, width, interleaved = layer.head_dim, layer.rotary.dim, layer.rotary.interleaved
    theta = reference.inverse_frequencies(width, layer.rotary.base)

    def rotate(y, position):
        rotated = reference.rotate_matrix(
            y[None, :width].numpy(), [position], theta, interleaved=interleaved
        )
        return torch.cat((torch.from_numpy(rotated)[0], y[width:]))

    q, k, v = (
        p(x).unflatten(-1, (-1, dim)).detach() for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    group = q.shape[2] // k.shape[2]
    heads = torch.zeros(2, 6, 4, dim, dtype=torch.float64)
    for b, h, m in itertools.product(range(2), range(4), range(6)):
        visible = range(m + 1 if causal else 6)
        query = rotate(q[b, m, h], int(ids[b, m]))
        scores = [query @ rotate(k[b, n, h // group], int(ids[b, n])) for n in visible]
        weights = (layer.rotary.softmax_scale * torch.stack(scores) / dim**0.5).softmax(0)
        heads[b, m, h] = weights @ v[b, : len(visible), h // group]
    expected = layer.o_proj(heads.flatten(2))
    # The float64 angle at position 1001 has an error of about 1001 roundings.
    close(layer(x, ids, causal=causal), expected, operations=2**12)
    if causal:
        close(layer(x)[:1], expected[:1], torch.float32, operations=8)  # with float32 tables


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_decoding_with_a_cache_equals_the_full_pass(kind, dtype):
    layer, x = make(kind, dtype), normal((2, 9, 32), 1, dtype)
    full = layer(x)
    for policy in ("rotated", "plain"):
        sizes = 2, layer.num_kv_heads, 9, layer.head_dim
        cache = KVCache(*sizes, policy=policy, dtype=dtype)
        pieces = [layer(piece, cache=cache) for piece in x.split((3, 1, 4, 1), dim=1)]
        # The softmax and the sums are rounded in a different order.
        close(torch.cat(pieces, dim=1), full, dtype, operations=16)
        assert cache.length == 9


@pytest.mark.parametrize("pieces", [(8, 1, 2, 1), (2, 6, 4), (12,)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_left_padded_batch_decodes_as_each_row_does(kind, pieces):
    """Pass the mask with the prompt only; afterward, each row must continue correctly."""
    layer, x, padding = make(kind), normal((2, 12, 32), 1), 3
    is_token = torch.ones(2, 12, dtype=torch.long)
    is_token[0, :padding] = 0
    ids = left_padded_position_ids(is_token)
    cache, outputs, start = KVCache(2, layer.num_kv_heads, 12, layer.head_dim, dtype=DOUBLE), [], 0
    for size in pieces:
        new = slice(start, start + size)
        prompt = start < 8
        outputs.append(
            layer(
                x[:, new],
                ids[:, new] if prompt else None,
                cache=cache,
                attention_mask=is_token[:, new] if prompt else None,
            )
        )
        start += size
    out = torch.cat(outputs, dim=1)
    close(out[:1, padding:], layer(x[:1, padding:]))
    close(out[1:], layer(x[1:]))
    cache.reset()
    close(layer(x, cache=cache), layer(x))  # reset must forget the padding


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_equal_separate_runs(kind):
    layer, lengths = make(kind), [3, 1, 5]
    x, segments = normal((2, 9, 32), 1), segment_ids(lengths)
    apart = torch.cat([layer(piece) for piece in x.split(lengths, dim=1)], dim=1)
    close(layer(x, packed_position_ids(lengths), segment_ids=segments), apart)
    close(layer(x, segment_ids=segments.expand(2, -1)), apart, torch.float32, operations=8)
    apart = torch.cat([layer(piece, causal=False) for piece in x.split(lengths, dim=1)], dim=1)
    packed = layer(x, packed_position_ids(lengths), segment_ids=segments, causal=False)
    close(packed, apart)


@pytest.mark.parametrize("seq_len", [0, 1, 64, 65, 200])
@pytest.mark.parametrize("rotate", [True, False])
def test_linear_attention_equals_the_formula(seq_len, rotate):
    """Compare with all S x S weights, computed from rotations by the float64 reference."""
    q, k = normal((2, 2, 3, seq_len, 8), 0, torch.float64)
    v = normal((2, 3, seq_len, 5), 1, torch.float64)
    tables = rotary_tables(seq_len, inverse_frequencies(8), dtype=torch.float64)
    out = linear_attention(q, k, v, *(tables if rotate else ()))
    assert out.shape == (2, 3, seq_len, 5)
    q, k = (torch.nn.functional.elu(x) + 1 for x in (q, k))
    theta, ids = reference.inverse_frequencies(8), list(range(seq_len))
    q_rotated, k_rotated = (
        torch.from_numpy(reference.rotate_matrix(x.numpy(), ids, theta, interleaved=False))
        if rotate
        else x
        for x in (q, k)
    )
    numerator, denominator = (q_rotated @ k_rotated.mT).tril(), (q @ k.mT).tril()
    if seq_len:
        expected = numerator @ v / denominator.sum(-1, keepdim=True)
        close(out, expected, operations=2 * seq_len + 64)  # one rounding per term


@torch.no_grad()
def test_compiled_decoding_does_not_recompile_at_each_token(traced):
    backend, graphs = traced
    layer, x, cache = make("grouped"), normal((2, 12, 32), 1), KVCache(2, 2, 12, 8, dtype=DOUBLE)
    step = torch.compile(layer, fullgraph=True, backend=backend)
    pieces = [step(piece, cache=cache) for piece in x.split((3, *[1] * 9), dim=1)]
    close(torch.cat(pieces, dim=1), layer(x))
    # One graph for the prompt and one for single tokens; PyTorch 2.6 traces the first token apart.
    assert len(graphs) == (2 if tuple(map(int, torch.__version__.split(".")[:2])) > (2, 6) else 3)


@pytest.mark.parametrize(
    ("latent", "cached", "compiled"),
    [(False, False, False), (False, True, False), (True, True, False), (True, False, True)],
)
@torch.no_grad()
def test_a_token_at_a_negative_position_is_an_error(latent, cached, compiled):
    """Check the error for a token at position -1, which internally marks padding."""
    torch.compiler.reset()
    layer, cache = RotaryAttention(32, 4), KVCache(1, 4, 4, 8)
    if latent:
        layer = LatentAttention(32, 4, latent_dim=12, rope_dim=4, nope_dim=6, value_dim=5)
        cache = KVCache(1, 1, 4, 16, value_dim=0)
    call = torch.compile(layer, fullgraph=True, backend="eager") if compiled else layer
    x, mask, ids = (
        normal((1, 3, 32), 1, torch.float32),
        torch.ones(1, 3).long(),
        torch.tensor([[-1, 0, 1]]),
    )
    options = {"attention_mask": mask, "cache": cache if cached else None}
    with pytest.raises(RuntimeError if compiled else ValueError, match="position_ids"):
        call(x, ids, **options)
    assert cache.length == 0 and cache.keys.sum() == 0
    assert cache.slots.next_position_ids(1) is None
    mask[0, 0] = 0
    close(call(x, ids, **options)[:, 1:], layer(x[:, 1:]), torch.float32)


@torch.no_grad()
def test_a_cache_under_autocast_has_its_dtype():
    """Check that the error names the cache's dtype, and that decoding works with that dtype."""
    layer, x = make("grouped", torch.float32), normal((2, 9, 32), 1, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(TypeError, match=r"dtype=torch.bfloat16.*autocast"):
            layer(x, cache=KVCache(2, 2, 9, 8))
        cache = KVCache(2, 2, 9, 8, dtype=torch.bfloat16)
        pieces = [layer(piece, cache=cache) for piece in x.split((3, 1, 4, 1), dim=1)]
        close(torch.cat(pieces, dim=1), layer(x), torch.bfloat16, operations=16)
