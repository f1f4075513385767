import itertools

import pytest
import torch
from strategies import DTYPES, normal, tolerance

from rope import RotaryEmbedding, inverse_frequencies, reference, rotary_tables
from rope.attention import (
    KVCache,
    LatentAttention,
    RotaryAttention,
    linear_attention,
    linear_attention_quadratic,
    packed_position_ids,
    segment_ids,
)
from rope.positions import left_padded_position_ids

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
    """Sums of some 32 products on the way in and on the way out: 64 roundings."""
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance(dtype, scale, operations))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_formula(kind, causal):
    """Token by token, head by head, with the float64 reference and plain loops."""
    layer, x = make(kind), normal((2, 6, 32), 1)
    ids = torch.tensor([[0, 1, 2, 3, 4, 5], [7, 8, 11, 12, 20, 1001]])
    dim, width, interleaved = layer.head_dim, layer.rotary.dim, layer.rotary.interleaved
    theta = reference.inverse_frequencies(width, layer.rotary.base)

    def rotated(y, at):
        turned = reference.rotate_matrix(
            y[None, :width].numpy(), [at], theta, interleaved=interleaved
        )
        return torch.cat((torch.from_numpy(turned)[0], y[width:]))

    q, k, v = (
        p(x).unflatten(-1, (-1, dim)).detach() for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    group = q.shape[2] // k.shape[2]
    heads = torch.zeros(2, 6, 4, dim, dtype=torch.float64)
    for b, h, m in itertools.product(range(2), range(4), range(6)):
        seen = range(m + 1 if causal else 6)
        query = rotated(q[b, m, h], int(ids[b, m]))
        scores = [query @ rotated(k[b, n, h // group], int(ids[b, n])) for n in seen]
        weights = (layer.rotary.softmax_scale * torch.stack(scores) / dim**0.5).softmax(0)
        heads[b, m, h] = weights @ v[b, : len(seen), h // group]
    expected = layer.o_proj(heads.flatten(2))
    # Given ids have float64 angles: that of 1001 is off by some 1001 roundings.
    close(layer(x, ids, causal=causal), expected, operations=2**12)
    if causal:
        close(layer(x)[:1], expected[:1], torch.float32, operations=8)  # by the float32 tables


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_decoding_with_a_cache_equals_the_full_pass(kind, dtype):
    layer, x = make(kind, dtype), normal((2, 9, 32), 1, dtype)
    cache = KVCache(2, layer.num_kv_heads, 9, layer.head_dim, dtype=dtype)
    full = layer(x)
    for _ in range(2):
        pieces = [layer(piece, cache=cache) for piece in x.split((3, 1, 4, 1), dim=1)]
        # Softmax and sums are rounded in another order, in a dtype of eps.
        close(torch.cat(pieces, dim=1), full, dtype, operations=16)
        assert cache.length == 9
        cache.reset()


@pytest.mark.parametrize("counted", [True, False], ids=["ids from 0", "ids of the columns"])
@pytest.mark.parametrize("pieces", [(8, 1, 2, 1), (2, 6, 4), (12,)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_left_padded_batch_decodes_as_each_row_alone(kind, pieces, counted):
    """Ids and segments come with the prompt; afterwards each row goes on by itself."""
    layer, x, padding = make(kind), normal((2, 12, 32), 1), 3
    real = torch.ones(2, 12, dtype=torch.long)
    real[0, :padding] = 0
    ids = left_padded_position_ids(real)
    cache, out, at = KVCache(2, layer.num_kv_heads, 12, layer.head_dim, dtype=DOUBLE), [], 0
    for size in pieces:
        prompt = slice(at, at + size) if at < 8 else None
        given = {"segment_ids": real[:, prompt]} if prompt else {}
        at_ids = ids[:, prompt] if prompt and counted else None
        out.append(layer(x[:, at : at + size], at_ids, cache=cache, **given))
        at += size
    out, rounding = torch.cat(out, dim=1), DOUBLE if counted else torch.float32
    close(out[:1, padding:], layer(x[:1, padding:]), rounding)
    close(out[1:], layer(x[1:]), rounding)
    cache.reset()
    close(layer(x, cache=cache), layer(x))  # nothing of the padding is left


@torch.no_grad()
def test_values_may_have_a_width_of_their_own():
    cache, k, v = KVCache(2, 1, 5, 2, value_dim=3), normal((2, 1, 4, 2), 0), normal((2, 1, 4, 3), 1)
    k, v = k.float(), v.float()
    cache.append(k[:, :, :3], v[:, :, :3])
    keys, values = cache.append(k[:, :, 3:], v[:, :, 3:])
    assert torch.equal(keys, k) and torch.equal(values, v)
    with pytest.raises(ValueError, match=r"v has shape \[2, 1, 1, 2\].*\[2, 1, S, 3\]"):
        cache.append(k[:, :, 3:], k[:, :, 3:])


@torch.no_grad()
def test_tokens_without_ids_go_on_from_those_with():
    """In append itself as in the layer: positions, segments, and both after a call of no tokens."""
    cache, x = KVCache(2, 1, 12, 2), torch.ones(2, 1, 3, 2)
    none = x[:, :, :0]
    cache.append(none, none, torch.ones(0).long(), torch.ones(2, 0).long())
    assert cache.tokens.next_ids(3) == (None, None)
    cache.append(x, x, torch.arange(3) + 4, torch.tensor([[0, 0, 1], [2, 2, 2]]))
    cache.append(x, x)
    positions, segments = cache.tokens.next_ids(1)
    assert positions.tolist() == [[10]] * 2 and segments.tolist() == [[1], [2]]
    assert cache.tokens.segment_ids.tolist() == [[0, 0, 1, 1, 1, 1], [2] * 6]


@torch.no_grad()
def test_segments_may_begin_with_a_prompt_of_no_tokens():
    layer, x, cache = make("grouped"), normal((2, 3, 32), 1), KVCache(2, 2, 3, 8, dtype=DOUBLE)
    layer(x[:, :0], cache=cache, segment_ids=torch.ones(2, 0).long())
    close(layer(x, cache=cache), layer(x))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_equal_separate_runs(kind):
    layer, lengths = make(kind), [3, 1, 5]
    x, segments = normal((2, 9, 32), 1), segment_ids(lengths)
    apart = torch.cat([layer(piece) for piece in x.split(lengths, dim=1)], dim=1)
    close(layer(x, packed_position_ids(lengths), segment_ids=segments), apart)
    close(layer(x, segment_ids=segments.expand(2, -1)), apart, torch.float32, operations=8)
    alone = torch.cat([layer(piece, causal=False) for piece in x.split(lengths, dim=1)], dim=1)
    packed = layer(x, packed_position_ids(lengths), segment_ids=segments, causal=False)
    close(packed, alone)


@pytest.mark.parametrize("shape", [(0, 4, 32), (2, 0, 32), (2, 1, 32)])
def test_empty_and_single(shape):
    assert make("grouped")(torch.zeros(shape, dtype=torch.float64)).shape == shape


def test_state_dict_holds_the_projections_alone():
    names = {name.split(".")[0] for name in make("full").state_dict()}
    assert names == {"q_proj", "k_proj", "v_proj", "o_proj"}


def linear_inputs(seq_len, dtype=torch.float64):
    q, k = normal((2, 2, 3, seq_len, 8), 0, dtype)
    v = normal((2, 3, seq_len, 5), 1, dtype)
    return q, k, v, *rotary_tables(seq_len, inverse_frequencies(6), dtype=torch.float64)


@pytest.mark.parametrize("seq_len", [0, 1, 64, 65, 200])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("rotate", [True, False])
def test_linear_attention_equals_its_quadratic_form(seq_len, causal, rotate):
    inputs = linear_inputs(seq_len)
    linear, quadratic = (
        form(*inputs, causal=causal, rotate=rotate)
        for form in (linear_attention, linear_attention_quadratic)
    )
    assert linear.shape == (2, 3, seq_len, 5)
    if seq_len:
        close(linear, quadratic, operations=2 * seq_len + 64)  # one rounding a summand


def test_linear_attention_equals_the_formula():
    q, k, v, _, _ = linear_inputs(7)
    cos, sin = rotary_tables(7, inverse_frequencies(8), dtype=torch.float64)
    phi_q, phi_k = (torch.nn.functional.elu(x) + 1 for x in (q, k))
    theta = reference.inverse_frequencies(8)
    matrices = [torch.from_numpy(reference.rotation_matrix(m, theta)) for m in range(7)]
    out = linear_attention(q, k, v, cos, sin, interleaved=True)
    m, numerator, denominator = 6, 0, 0
    for n in range(m + 1):
        a, b = phi_q[1, 2, m], phi_k[1, 2, n]
        numerator += (matrices[m] @ a) @ (matrices[n] @ b) * v[1, 2, n]
        denominator += a @ b
    close(out[1, 2, m], numerator / denominator)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", [linear_attention, linear_attention_quadratic])
def test_linear_attention_never_narrows(form, causal):
    """Neither autocast nor one float32 argument among float64 ones costs a digit."""
    q, k, v, cos, sin = linear_inputs(70)
    mixed = form(q.float(), k, v.float(), cos, sin, causal=causal)
    wide = form(q.float().double(), k, v.float().double(), cos, sin, causal=causal)
    assert torch.equal(mixed, wide.float())
    low = [x.float() for x in (q, k, v)]
    with torch.autocast("cpu", torch.bfloat16):
        inside = form(*low, cos, sin, causal=causal)
    outside = form(*low, cos, sin, causal=causal)
    assert torch.equal(inside, outside)
    half = [x.bfloat16() for x in low]
    widened = form(*(x.float() for x in half), cos, sin, causal=causal)
    assert torch.equal(form(*half, cos, sin, causal=causal), widened.bfloat16())
    meta = (x.to("meta") for x in (q, k, v, cos, sin))
    assert form(*meta, causal=causal).shape == v.shape


@torch.no_grad()
def test_compiled_decoding_does_not_recompile_at_each_token(traced):
    backend, graphs = traced
    layer, x, cache = make("grouped"), normal((2, 12, 32), 1), KVCache(2, 2, 12, 8, dtype=DOUBLE)
    step = torch.compile(layer, fullgraph=True, backend=backend)
    pieces = [step(piece, cache=cache) for piece in x.split((3, *[1] * 9), dim=1)]
    close(torch.cat(pieces, dim=1), layer(x))
    # The prompt and the single token; older versions trace the first token after the prompt apart.
    assert len(graphs) == (2 if tuple(map(int, torch.__version__.split(".")[:2])) > (2, 6) else 3)


@pytest.mark.parametrize(
    ("latent", "cached", "compiled"),
    [(False, False, False), (False, True, False), (True, True, False), (True, False, True)],
)
@torch.no_grad()
def test_a_real_token_before_the_first_position_is_an_error(latent, cached, compiled):
    """Padding has position -1 within; a token that the mask calls real must not pass for it."""
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
    given = {"attention_mask": mask, "cache": cache if cached else None}
    with pytest.raises(RuntimeError if compiled else ValueError, match="position_ids"):
        call(x, ids, **given)
    assert cache.length == 0 and cache.keys.sum() == 0
    assert cache.tokens.next_ids(1) == (None, None)
    mask[0, 0] = 0
    close(call(x, ids, **given)[:, 1:], layer(x[:, 1:]), torch.float32)


@torch.no_grad()
def test_a_cache_under_autocast_has_its_dtype():
    """The error names the dtype, and with that dtype decoding is the full pass."""
    layer, x = make("grouped", torch.float32), normal((2, 9, 32), 1, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(TypeError, match=r"dtype=torch.bfloat16.*autocast"):
            layer(x, cache=KVCache(2, 2, 9, 8))
        cache = KVCache(2, 2, 9, 8, dtype=torch.bfloat16)
        pieces = [layer(piece, cache=cache) for piece in x.split((3, 1, 4, 1), dim=1)]
        close(torch.cat(pieces, dim=1), layer(x), torch.bfloat16, operations=16)
