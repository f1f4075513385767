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
from rope.config import example
from rope.extensions import DynamicNTK, YaRN
from rope.positions import left_padded_position_ids

DOUBLE = torch.float64
KINDS = {
    "full": {},
    "grouped": {"num_kv_heads": 2},
    "one key head": {"num_kv_heads": 1},
    "partial": {"rotary": RotaryEmbedding(4)},
    "interleaved": {"rotary": RotaryEmbedding(8, interleaved=True), "bias": True},
    "wide heads": {"head_dim": 12},
    "another base": {"rotary": RotaryEmbedding(8, base=100.0)},
}


def make(kind, dtype=torch.float64):
    torch.manual_seed(0)
    return RotaryAttention(32, 4, **KINDS[kind]).to(dtype)


def close(actual, expected, dtype=torch.float64, operations=64):
    """Sums of some 32 products on the way in and on the way out: 64 roundings."""
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance(dtype, scale, operations))


@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_formula(kind):
    """Token by token, head by head, with the float64 reference and plain loops."""
    layer, x = make(kind), normal((2, 6, 32), 1)
    dim, width = layer.head_dim, layer.rotary.dim
    theta = reference.inverse_frequencies(width, layer.rotary.base)
    q, k, v = (
        p(x).unflatten(-1, (-1, dim)).detach() for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    group = q.shape[2] // k.shape[2]
    heads = torch.zeros(2, 6, 4, dim, dtype=torch.float64)
    for b, h, m in itertools.product(range(2), range(4), range(6)):
        scores = []
        for n in range(m + 1):
            query, key = q[b, m, h], k[b, n, h // group]
            turned = [
                torch.from_numpy(
                    reference.rotate_matrix(
                        y[None, :width].numpy(), [at], theta, interleaved=layer.rotary.interleaved
                    )
                )[0]
                for y, at in ((query, m), (key, n))
            ]
            scores.append(turned[0] @ turned[1] + query[width:] @ key[width:])
        weights = (torch.stack(scores) / dim**0.5).softmax(0)
        heads[b, m, h] = weights @ v[b, : m + 1, h // group]
    # The layer's tables are float32: scores carry their rounding.
    close(layer(x), layer.o_proj(heads.flatten(2)), torch.float32, operations=8)


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


def test_later_tokens_do_not_matter():
    layer, x = make("grouped"), normal((1, 8, 32), 1)
    changed = x.clone()
    changed[:, 5:] += 1
    close(layer(changed)[:, :5], layer(x)[:, :5])
    assert (layer(changed, causal=False)[:, :5] - layer(x, causal=False)[:, :5]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shift", [1, 1000])
def test_shifting_all_positions_changes_nothing(kind, shift):
    layer, x = make(kind), normal((1, 8, 32), 1)
    shifted = layer(x, torch.arange(8) + shift)
    close(shifted, layer(x), torch.float32, operations=8)  # tables are float32
    stretched = layer(x, torch.arange(8) * 3)
    assert (stretched - layer(x)).abs().max() > 1e-3


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


def test_without_positions_order_is_lost():
    """The control: rotation makes the order of earlier tokens matter, equal ids do not."""
    layer, x = make("full"), normal((1, 3, 32), 1)
    swapped, same = x[:, [1, 0, 2]], torch.zeros(3, dtype=torch.long)
    close(layer(swapped, same)[:, 2], layer(x, same)[:, 2])
    assert (layer(swapped)[:, 2] - layer(x)[:, 2]).abs().max() > 1e-3


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


@pytest.mark.parametrize("seq_len", [0, 1, 63, 64, 65, 200])
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


def test_linear_attention_gradients_and_low_precision():
    q, k, v, cos, sin = linear_inputs(3)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    assert torch.autograd.gradcheck(lambda q, k, v: linear_attention(q, k, v, cos, sin), inputs)
    low = [x.detach().bfloat16() for x in inputs]
    out = linear_attention(*low, cos, sin)
    wide = linear_attention(*(x.float() for x in low), cos, sin)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, wide.bfloat16())


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
    assert torch.equal(inside, form(*low, cos, sin, causal=causal))
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


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("cached", [False, True], ids=["alone", "cached"])
@pytest.mark.parametrize("latent", [False, True], ids=["heads", "latents"])
@torch.no_grad()
def test_a_token_before_the_first_position_is_refused_under_a_mask_too(latent, cached, compiled):
    """Padding has position -1 within; a token that the mask calls real must not pass for it."""
    torch.compiler.reset()
    layer, cache = RotaryAttention(32, 4), KVCache(1, 4, 4, 8)
    if latent:
        layer = LatentAttention(32, 4, latent_dim=12, rope_dim=4, nope_dim=6, value_dim=5)
        cache = KVCache(1, 1, 4, 16, value_dim=0)
    call = torch.compile(layer, fullgraph=True, backend="eager") if compiled else layer
    given = {"attention_mask": torch.ones(1, 3).long(), "cache": cache if cached else None}
    ids = torch.tensor([[-1, 0, 1]])
    with pytest.raises(RuntimeError if compiled else ValueError, match="position_ids"):
        call(torch.ones(1, 3, 32), ids, **given)
    assert cache.length == 0 and cache.keys.sum() == 0
    assert cache.tokens.next_ids(1) == (None, None)
    given["attention_mask"][0, 0] = 0
    assert call(torch.ones(1, 3, 32), ids, **given).isfinite().all()


@torch.no_grad()
def test_a_cache_under_autocast_has_its_dtype():
    """The refusal names the dtype, and with that dtype decoding is the full pass."""
    layer, x = make("grouped", torch.float32), normal((2, 9, 32), 1, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(TypeError, match=r"with dtype=torch.bfloat16 \(under autocast the keys"):
            layer(x, cache=KVCache(2, 2, 9, 8))
        cache = KVCache(2, 2, 9, 8, dtype=torch.bfloat16)
        pieces = [layer(piece, cache=cache) for piece in x.split((3, 1, 4, 1), dim=1)]
        close(torch.cat(pieces, dim=1), layer(x), torch.bfloat16, operations=16)


@pytest.mark.parametrize("extension", [DynamicNTK(4.0, 8), YaRN(4.0, 8)], ids=str)
def test_cached_keys_fit_later_queries_under_an_extension(extension):
    """Token by token past the trained length, and all at once: the same numbers."""
    torch.manual_seed(0)
    rotary, x = RotaryEmbedding(8, extension=extension), torch.randn(1, 24, 16)
    layer = RotaryAttention(16, 2, rotary=rotary)
    cache = KVCache(1, 2, 24, 8)
    with torch.no_grad():
        stepwise = torch.cat([layer(x[:, s : s + 1], cache=cache) for s in range(24)], dim=1)
        layer.rotary.fix_length(24)
        close(stepwise, layer(x), torch.float32)


def test_the_temperature_of_a_configuration_scales_the_scores():
    """DeepSeek-V3's softmax scale: queries that are longer by it give the same."""
    rotary = RotaryEmbedding.from_config(example("deepseek-v3"), max_seq_len=16)
    assert rotary.softmax_scale > 1.8
    torch.manual_seed(0)
    layer = RotaryAttention(128, 2, rotary=rotary).double()
    x, scaled = normal((1, 9, 128), 0), layer(normal((1, 9, 128), 0))
    with torch.no_grad():
        layer.q_proj.weight.mul_(rotary.softmax_scale)
    rotary.softmax_scale = 1.0
    close(layer(x), scaled)
