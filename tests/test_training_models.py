"""Test the toy models: how they encode positions, how scores are read, and how changes act."""

import math

import mpmath
import pytest
import torch
from strategies import normal, tolerance

from rope.book.training import POSITIONS, Decoder, Experiment
from rope.book.training.decoder import Attention
from rope.book.training.experiment import ATTENTIONS
from rope.book.training.positions import T5Bias
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
# Roundings on the longest path from a token to a logit, where each sum counts its terms. Each layer
# has two norms (E), projections (E, E, E, 4 E), scores (D), rotation and softmax (20), values (S).
ROUNDINGS = 2 * (9 * 16 + 8 + 20 + LENGTH) + 2 * 16

pytestmark = pytest.mark.usefixtures("one_thread")


def experiment(position, **changes):
    return Experiment(position=position, **dict(layers=2, width=16, heads=2, context=64) | changes)


def decoder(position="rope", **changes):
    """Return a decoder with large weights; fresh weights give scores near 0 and T5 biases of 0."""
    model = Decoder(experiment(position, **changes), TOKENS)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.project.weight.mul_(12)
            block.attention.out.weight.mul_(12)
        if position == "t5":
            model.positions.numbers.weight.copy_(normal((32, 2), seed=3) / 4)
    return model.requires_grad_(False)


def text(sequences=2, length=LENGTH):
    """Return random tokens, int64 `[sequences, length]`."""
    random = torch.Generator().manual_seed(0)
    return torch.randint(TOKENS, (sequences, length), generator=random)


def assert_near(got, exact):
    """Assert that float32 results differ from exact ones only by rounding."""
    scale = exact[exact.isfinite()].abs().max().item()
    allowed = tolerance(F32, scale=scale, operations=ROUNDINGS)
    torch.testing.assert_close(got.double(), exact.double(), rtol=0, atol=allowed)


def plain(model, tokens, position_ids=None):
    """Return the decoder's logits by its definition, float64.

    The position method itself provides the tables, biases and added vectors; other tests check
    them.
    """
    position_ids = torch.arange(tokens.shape[1]) if position_ids is None else position_ids
    made, places = model.experiment, model.positions(position_ids)
    weight = {name: value.detach().double() for name, value in model.named_parameters()}
    root, ahead = math.sqrt(made.width), torch.ones(2 * tokens.shape[1:]).triu(1).bool()

    def norm(x, gain):
        eps = torch.finfo(torch.float32).eps  # RMSNorm's default for float32 weights
        return x * (x.square().mean(dim=-1, keepdim=True) + eps).rsqrt() * weight[gain]

    x = weight["embedding.weight"][tokens] * root
    if places.added is not None:
        x = x + places.added.detach().double()
    for layer in range(made.layers):
        at = f"blocks.{layer}"
        projected = (
            norm(x, f"{at}.before_attention.weight") @ weight[f"{at}.attention.project.weight"].T
        )
        q, k, v = projected.unflatten(-1, (3, made.heads, -1)).permute(2, 0, 3, 1, 4)
        if made.attention == "linear":
            q, k = (torch.where(y > 0, y + 1, y.exp()) for y in (q, k))
        total = (q @ k.mT).masked_fill(ahead, 0).sum(dim=-1, keepdim=True)
        q, k = turned(q, places.query), turned(k, places.key)
        if made.attention == "linear":
            share = (q @ k.mT).masked_fill(ahead, 0) / total
        else:
            bias = 0 if places.bias is None else places.bias.detach().double()
            score = q @ k.mT / math.sqrt(made.head_dim) + bias
            share = score.masked_fill(ahead, -math.inf).softmax(dim=-1)
        mixed = (share @ v).transpose(1, 2).flatten(2)
        x = x + mixed @ weight[f"{at}.attention.out.weight"].T
        hidden = norm(x, f"{at}.before_mlp.weight") @ weight[f"{at}.up.weight"].T
        hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
        x = x + hidden @ weight[f"{at}.down.weight"].T
    return norm(x, "norm.weight") @ weight["head.weight"].T


def turned(x, tables):
    """Return x `[B, H, S, D]` with its first 2 * planes coordinates multiplied by cos + i sin."""
    if tables is None:
        return x
    turn = torch.complex(*(table.double() for table in tables))  # [S, R/2]
    planes = turn.shape[-1]
    product = torch.complex(*x[..., : 2 * planes].chunk(2, dim=-1)) * turn
    return torch.cat((product.real, product.imag, x[..., 2 * planes :]), dim=-1)


def rotated(position, q, k, **changes):
    """Return q and k `[B, H, S, D]`, rotated as the layers rotate them."""
    made = experiment(position, width=q.shape[1] * q.shape[3], heads=q.shape[1], **changes)
    return Attention(made).rotate(q, k, POSITIONS[position](made)(torch.arange(q.shape[2])))


def test_sinusoidal_is_the_formula_of_its_paper():
    places = (0, 1, 7, 100, 65_536)
    added = POSITIONS["sinusoidal"](experiment("sinusoidal"))(torch.tensor(places))
    with mpmath.workdps(30):
        for row, place in zip(added.added.tolist(), places, strict=True):
            for column, value in enumerate(row):
                power = mpmath.mpf(2 * (column // 2)) / 16
                angle = place / mpmath.mpf(10000) ** power
                exact = mpmath.cos(angle) if column % 2 else mpmath.sin(angle)
                # One rounding to float32; the float64 angle has an error of about 65,536 eps.
                assert abs(value - exact) <= tolerance(F32, operations=1) + 1e-11
    assert added.added.dtype == F32 and added.query is added.key is added.bias is None


def test_learned_is_a_row_each_and_ends_with_the_context():
    method = decoder("learned").positions
    places = torch.tensor([5, 0, 63])
    assert torch.equal(method(places).added, method.vectors.weight[places] * math.sqrt(16))
    for position in (-1, 64):
        with pytest.raises(IndexError):
            method(torch.tensor([3, position]))


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
def test_rotary_methods_take_the_base(name):
    method = POSITIONS[name](experiment(name, base=500.0))
    theta = inverse_frequencies(method.dim, 500.0)
    angle = torch.arange(5.0, dtype=torch.float64)[:, None] * theta
    (cos_q, sin_q), (cos_k, sin_k) = method(torch.arange(5))[1:3]
    for product, exact in ((cos_q * cos_k, angle.cos()), (sin_q * sin_k, angle.sin())):
        expected = exact.square().float()  # the decay of xPos cancels at one position
        torch.testing.assert_close(product, expected, rtol=0, atol=tolerance(F32))


def test_xpos_scores_are_those_of_the_layer():
    q, k = normal((2, 1, 2, 128, 16), seed=4, dtype=F32)
    q_layer, k_layer = XPos(16, scale_base=32, base=100.0)(q, k)
    q_here, k_here = rotated("xpos", q, k, base=100.0)
    expected = (q_layer @ k_layer.mT).tril()
    # 16 products of two vectors, each rotated with four roundings; earlier keys shrink.
    bound = (q_layer.abs() @ k_layer.abs().mT).tril()
    allowed = tolerance(F32, operations=2 * (16 + 4 * 2)) * bound + 1e-30
    assert (((q_here @ k_here.mT).tril() - expected).abs() <= allowed).all()


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
            expected = method.numbers.weight[bucket] * math.sqrt(16)
            assert torch.equal(bias[:, row, column], expected)


@pytest.mark.parametrize("shift", [1, 10**6])
@pytest.mark.parametrize(("name", "attention"), [pair for pair in PAIRS if pair[0] in RELATIVE])
def test_relative_methods_know_differences_alone(name, attention, shift):
    if name == "xpos":
        shift = min(shift, 500)  # within its reach
    model, tokens = decoder(name, attention=attention), text()
    assert_near(model(tokens, torch.arange(LENGTH) + shift), model(tokens))


@pytest.mark.parametrize(("name", "attention"), PAIRS)
def test_the_decoder_is_its_definition_in_float64(name, attention):
    """Compare at positions other than 0, 1, 2, ..., so that the given positions must be used."""
    model = decoder(name, attention=attention)
    tokens, places = text(), torch.arange(LENGTH) * 3 + 5
    assert_near(model(tokens, places), plain(model, tokens, places))
