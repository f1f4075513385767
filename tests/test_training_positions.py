"""Test the eight position methods, each against independent code or a published formula."""

import math

import mpmath
import pytest
import torch
from small_models import plain_logits
from strategies import normal, tolerance

from rope.book.training import POSITIONS, Decoder, Experiment
from rope.book.training.decoder import Attention
from rope.book.training.experiment import ATTENTIONS
from rope.book.training.positions import T5Bias
from rope.extensions import YaRN
from rope.frequencies import inverse_frequencies
from rope.xpos import XPos

RELATIVE = ("none", "rope", "partial", "alibi", "t5", "xpos")
TOKENS, LENGTH = 11, 12
F32 = torch.float32
PAIRS = [
    (name, attention)
    for name, method in POSITIONS.items()
    for attention in ATTENTIONS
    if attention == "softmax" or method.linear
]


pytestmark = pytest.mark.usefixtures("one_thread")


def experiment(position, **changes):
    fields = dict(layers=2, width=32, heads=2, context=64, batch=2, steps=9)
    return Experiment(position=position, **fields | changes)


def decoder(position, **changes):
    """Return a decoder with large weights; fresh weights give scores near 0 and T5 biases of 0."""
    model = Decoder(experiment(position, **changes), TOKENS)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.project.weight.mul_(12)
            block.attention.out.weight.mul_(12)
        if position == "t5":
            model.positions.numbers.weight.copy_(normal((32, 2), seed=3) / 4)
    return model


def sequences(seed=0):
    random = torch.Generator().manual_seed(seed)
    return torch.randint(TOKENS, (2, LENGTH), generator=random)


def rotated(position, q, k, position_ids=None, **changes):
    """Return q and k `[B, H, S, D]`, rotated as the layers rotate them."""
    made = experiment(position, width=q.shape[1] * q.shape[3], heads=q.shape[1], **changes)
    if position_ids is None:
        position_ids = torch.arange(q.shape[2])
    return Attention(made).rotate(q, k, POSITIONS[position](made)(position_ids))


def test_sinusoidal_is_the_formula_of_its_paper():
    width, places = 16, (0, 1, 7, 100, 65_536)
    added = POSITIONS["sinusoidal"](experiment("sinusoidal", width=width))(torch.tensor(places))
    with mpmath.workdps(30):
        for row, place in zip(added.added.tolist(), places, strict=True):
            for column, value in enumerate(row):
                power = mpmath.mpf(2 * (column // 2)) / width
                angle = place / mpmath.mpf(10000) ** power
                exact = mpmath.cos(angle) if column % 2 else mpmath.sin(angle)
                # One rounding to float32; the float64 angle has an error of about 65,536 eps.
                assert abs(value - exact) <= tolerance(F32, operations=1) + 1e-11
    assert added.added.dtype == F32 and added.query is added.key is added.bias is None


def test_learned_is_a_row_each_and_ends_with_the_context():
    method = decoder("learned").positions
    places = torch.tensor([5, 0, 63])
    assert torch.equal(method(places).added, method.vectors.weight[places] * math.sqrt(32))
    assert method.reach == 64 and all(POSITIONS[name].reach is None for name in RELATIVE)
    with pytest.raises(ValueError, match=r"position 64 .*64"):
        method(torch.tensor([3, 64]))
    with pytest.raises(ValueError, match="position -1 "):
        method(torch.tensor([-1, 3]))


def test_rope_rotates_as_llama_does():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    q, k = normal((2, 2, 3, LENGTH, 8), seed=1, dtype=F32)
    config = llama.LlamaConfig(hidden_size=24, num_attention_heads=3, max_position_embeddings=64)
    places = torch.arange(LENGTH)
    tables = llama.LlamaRotaryEmbedding(config)(q, places[None])
    for ours, theirs in zip(
        rotated("rope", q, k), llama.apply_rotary_pos_emb(q, k, *tables), strict=True
    ):
        # Their angles, up to 11, are float32; each side then rounds four times.
        allowed = tolerance(F32, scale=4, operations=2 * LENGTH + 8)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=allowed)


@pytest.mark.parametrize("name", ["rope", "partial", "xpos"])
def test_rotary_methods_take_base_and_extension(name):
    yarn = YaRN(4.0, 64)
    method = POSITIONS[name](experiment(name, base=500.0))
    method.extension = yarn
    angle = torch.arange(5.0, dtype=torch.float64)[:, None] * inverse_frequencies(
        method.dim, 500.0, extension=yarn
    )
    (cos_q, sin_q), (cos_k, sin_k) = method(torch.arange(5))[1:3]
    scale = 0.1 * math.log(4.0) + 1  # from YaRN's paper, applied to q and k
    for product, exact in ((cos_q * cos_k, angle.cos()), (sin_q * sin_k, angle.sin())):
        expected = (exact * scale).square().float()  # the decay of xPos cancels at one position
        torch.testing.assert_close(product, expected, rtol=0, atol=tolerance(F32, scale=scale**2))


def test_xpos_scores_are_those_of_the_layer():
    q, k = normal((2, 1, 2, 128, 16), seed=4, dtype=F32)
    for interleaved in (False, True):
        layer = XPos(16, scale_base=32, base=100.0, interleaved=interleaved)
        q_layer, k_layer = layer(q, k)
        q_here, k_here = rotated("xpos", q, k, base=100.0, interleaved=interleaved)
        expected = (q_layer @ k_layer.mT).tril()
        # 16 products of two vectors, each rotated with four roundings; earlier keys shrink.
        bound = (q_layer.abs() @ k_layer.abs().mT).tril()
        assert (
            ((q_here @ k_here.mT).tril() - expected)
            .abs()
            .le(tolerance(F32, operations=2 * (16 + 4 * 2)) * bound + 1e-30)
            .all()
        )


@pytest.mark.parametrize("heads", [2, 4, 8])
def test_alibi_is_that_of_bloom_but_for_a_constant_a_row(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, LENGTH), heads, torch.float32)  # [H, 1, S]
    made = experiment("alibi", width=8 * heads, heads=heads)
    bias = POSITIONS["alibi"](made)(torch.arange(LENGTH)).bias
    constant = bias - theirs  # slopes are powers of two here, so nothing is rounded
    assert torch.equal(constant, constant[..., :1].expand_as(constant))
    assert bool((bias.diagonal(dim1=1, dim2=2) == 0).all())
    assert bool((bias[:, 1:, 0] < 0).all())


def test_t5_buckets_are_those_of_t5():
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    distance = torch.cat((torch.arange(-300, 5000), torch.tensor([10**6])))
    theirs = t5.T5Attention._relative_position_bucket(-distance, bidirectional=False)
    assert torch.equal(T5Bias.bucket(distance), theirs)


def test_t5_gives_each_score_the_number_of_its_bucket():
    method = decoder("t5").positions
    places = torch.tensor([0, 3, 40, 60])
    bias = method(places).bias
    for row, m in enumerate(places.tolist()):
        for column, n in enumerate(places.tolist()):
            bucket = int(T5Bias.bucket(torch.tensor(m - n)))
            expected = method.numbers.weight[bucket] * math.sqrt(32)
            assert torch.equal(bias[:, row, column], expected)


@torch.no_grad()
def logits(model, tokens, position_ids=None):
    return model(tokens, position_ids)


# Roundings on the longest path from a token to a logit, where each sum counts its terms. Each layer
# has two norms (E), projections (E, E, E, 4 E), scores (D), rotation and softmax (20), values (S).
ROUNDINGS = 2 * (9 * 32 + 16 + 20 + LENGTH) + 2 * 32


@pytest.mark.parametrize("shift", [1, 10**6])
@pytest.mark.parametrize(("name", "attention"), [pair for pair in PAIRS if pair[0] in RELATIVE])
def test_relative_methods_know_differences_alone(name, attention, shift):
    if name == "xpos":
        shift = min(shift, 500)  # within its reach
    model, tokens = decoder(name, attention=attention), sequences()
    plain = logits(model, tokens)
    moved = logits(model, tokens, torch.arange(LENGTH) + shift)
    allowed = tolerance(F32, scale=plain.abs().max().item(), operations=ROUNDINGS)
    torch.testing.assert_close(moved, plain, rtol=0, atol=allowed)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("name", "attention"), PAIRS)
def test_the_decoder_is_its_definition_in_float64(name, attention, interleaved):
    """Compare at positions other than 0, 1, 2, ..., so that the given positions must be used."""
    model = decoder(name, attention=attention, interleaved=interleaved)
    tokens, places = sequences(), torch.arange(LENGTH) * 3 + 5
    exact = plain_logits(model, tokens, places)
    allowed = tolerance(F32, scale=exact.abs().max().item(), operations=ROUNDINGS)
    got = logits(model, tokens, places).double()
    torch.testing.assert_close(got, exact, rtol=0, atol=allowed)


@pytest.mark.parametrize(("name", "attention"), PAIRS)
def test_nothing_is_known_of_later_tokens(name, attention):
    model, tokens = decoder(name, attention=attention), sequences()
    plain = logits(model, tokens)
    for place in (1, LENGTH // 2, LENGTH - 1):
        other = tokens.clone()
        other[:, place] = (other[:, place] + 1) % TOKENS
        assert torch.equal(logits(model, other)[:, :place], plain[:, :place])


@pytest.mark.parametrize("name", POSITIONS)
def test_methods_start_from_the_same_weights(name):
    one, other = (
        Decoder(experiment(position, seed=5), TOKENS).state_dict() for position in ("rope", name)
    )
    assert set(one) == {key for key in other if not key.startswith("positions.")}
    assert all(torch.equal(one[key], other[key]) for key in one)
