"""The mistakes put into a model do what their names say, no more, and are gone afterwards."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rope.training.corpus import corpus_of
from strategies import normal, tolerance
from torch.nn.functional import cross_entropy

from rope import reference
from rope.extensions import Linear, YaRN
from rope.training import Decoder, Experiment, train
from rope.training.defects import DEFECTS, defect
from rope.training.inside import scores
from rope.training.loop import token_losses

SMALL = Experiment(layers=2, width=16, heads=2, context=16)
LENGTH, TOKENS = 12, 11
TEXT = torch.arange(3 * LENGTH).view(3, LENGTH) * 7 % TOKENS
FINE = ("bf16 positions", "bf16 tables", "bf16 angles", "float32 product")
SIZES = {name: (1.0, 20.0) for name in DEFECTS if name not in FINE}  # of a loss that moves
SIZES |= {"bf16 tables": (1e-3, 0.2), "bf16 angles": (1e-3, 0.2)}
layouts = pytest.mark.parametrize("interleaved", [False, True])
kinds = pytest.mark.parametrize("position", ["rope", "partial"])


def sharp(**changes):
    """A model with large weights, whose attention prefers some keys clearly."""
    model = Decoder(replace(SMALL, **changes), TOKENS)
    with torch.no_grad():
        for seed, weight in enumerate(model.blocks.parameters()):
            if weight.dim() == 2:
                weight.copy_(normal(weight.shape, seed, torch.float32) / 2)
    return model


def tables(model, name, position_ids):
    """cos and sin, of queries and keys, that the mistaken model is told."""
    with defect(model, name):
        return model.places(position_ids)


def bfloat16(values):
    """Rounded to the upper half of float32, ties to even, by its bits."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def first_layer(model):
    """q, k, v of the first layer `[B, H, S, D]` in float64, and what its attention gives."""
    caught = []
    attention = model.blocks[0].attention
    handle = attention.register_forward_hook(lambda _, x, result: caught.append((x[0], result)))
    model(TEXT)
    handle.remove()
    x, result = caught[0]
    split = (x.double() @ attention.project.weight.double().T).unflatten(-1, (3, 2, 8))
    return *split.permute(2, 0, 3, 1, 4).detach().numpy(), result


def turned(model, x, positions):
    """By the book's definition, the rotated width alone."""
    width, theta = model.positions.dim, model.positions.frequencies(LENGTH, "cpu").numpy()
    layout = dict(interleaved=model.experiment.interleaved)
    part = reference.rotate_matrix(x[..., :width], positions, theta, **layout)
    return np.concatenate((part, x[..., width:]), axis=-1)


@kinds
@layouts
@torch.no_grad()
def test_layout_is_the_model_of_the_other_layout(position, interleaved):
    model = sharp(position=position, interleaved=interleaved)
    other = sharp(position=position, interleaved=not interleaved)
    other.load_state_dict(model.state_dict())
    with defect(model, "layout"):
        assert torch.equal(model(TEXT), other(TEXT))
    assert (model(TEXT) - other(TEXT)).abs().max() > 0.01


@kinds
@layouts
@pytest.mark.parametrize(
    ("name", "query", "key"), [("keys unrotated", 1, 0), ("sign", -1, 1), ("restart", 1, 1)]
)
@torch.no_grad()
def test_scores_are_those_of_the_definition_turned_wrongly(name, query, key, position, interleaved):
    model, ids = sharp(position=position, interleaved=interleaved), np.arange(LENGTH)
    q, k, _, _ = first_layer(model)
    q, k = turned(model, q, query * ids), turned(model, k, key * ids)
    expected = torch.from_numpy(q @ k.swapaxes(-1, -2) / math.sqrt(8))
    seen = torch.ones(LENGTH, LENGTH).tril().bool()
    with defect(model, name):
        got = scores(model, TEXT, 0).double()
    bound = tolerance(torch.float32, np.linalg.norm(q, axis=-1).max() ** 2 * 4, operations=16)
    assert (got - expected)[..., seen].abs().max() <= bound


@kinds
@layouts
@torch.no_grad()
def test_rotated_values_are_mixed_by_the_right_weights(position, interleaved):
    model = sharp(position=position, interleaved=interleaved)
    _, _, v, _ = first_layer(model)
    v = turned(model, v, np.arange(LENGTH))
    share = scores(model, TEXT, 0).double().softmax(-1).numpy()
    mixed = torch.from_numpy((share @ v).swapaxes(1, 2).reshape(3, LENGTH, 16))
    expected = mixed @ model.blocks[0].attention.out.weight.double().T
    *_, right = first_layer(model)
    with defect(model, "values rotated"):
        *_, got = first_layer(model)
        assert scores(model, TEXT, 0).softmax(-1).double().numpy() == pytest.approx(share)
    scale = expected.abs().max().item() * 16  # of 16 addends; scores of size 10 are rounded before
    assert (got - expected).abs().max() <= tolerance(torch.float32, scale, operations=32)
    assert (got - right).abs().max() > 0.01


@torch.no_grad()
def test_bf16_positions_are_whole_up_to_256_and_shared_beyond():
    model = sharp()
    ids = torch.arange(257)
    long = torch.arange(257)[None] % TOKENS
    with defect(model, "bf16 positions"):
        near, far = model(long, ids), model(long, ids + 300)
    assert torch.equal(near, model(long, ids))
    assert not torch.equal(far, model(long, ids + 300))
    rounded = torch.from_numpy(bfloat16(np.arange(300, 557)).astype(np.int64))
    assert torch.equal(far, model(long, rounded))


def test_bf16_positions_keep_as_many_as_another_library_keeps():
    """rotary-embedding-torch counts in bfloat16: 641 of 2,048 are left."""
    theirs = pytest.importorskip("rotary_embedding_torch").RotaryEmbedding(8)
    kept = theirs.get_seq_pos(2048, device="cpu", dtype=torch.bfloat16)
    (cos, sin), ours = tables(sharp(), "bf16 positions", torch.arange(2048)).query, kept.long()
    assert len(torch.cat((cos, sin), -1).unique(dim=0)) == len(kept.unique()) == 641
    assert torch.equal(cos, sharp().places(ours).query[0])


@kinds
def test_bf16_tables_are_the_right_ones_rounded(position):
    model, ids = sharp(position=position), torch.arange(5000, 5100)
    places = tables(model, "bf16 tables", ids)
    right = model.places(ids)
    for got, exact in ((places.query, right.query), (places.key, right.key)):
        for table, fine in zip(got, exact, strict=True):
            assert table.dtype == torch.float32
            assert np.array_equal(table.numpy(), bfloat16(fine.numpy()))


@kinds
@pytest.mark.parametrize("first", [0, 65_536])
def test_narrow_angles_are_formed_in_their_dtype(position, first):
    """Operands and product rounded, by NumPy and by bits; then their exact cos and sin."""
    model, ids = sharp(position=position), torch.arange(first, first + 128)
    theta = reference.inverse_frequencies(model.positions.dim)
    narrow = bfloat16(bfloat16(ids.numpy())[:, None] * bfloat16(theta))
    single = ids.numpy().astype(np.float32)[:, None] * theta.astype(np.float32)
    for name, angle in (("bf16 angles", narrow), ("float32 product", single)):
        places = tables(model, name, ids)
        for cos, sin in (places.query, places.key):
            assert cos.dtype == sin.dtype == torch.float32
            np.testing.assert_allclose(cos, np.cos(angle.astype(float)), rtol=0, atol=2**-24)
            np.testing.assert_allclose(sin, np.sin(angle.astype(float)), rtol=0, atol=2**-24)
    exact = model.places(ids).query[0]
    moved = (tables(model, "float32 product", ids).query[0] - exact).abs().max()
    assert moved <= (first + 128) * 2**-23 + 2**-23  # theta and product rounded, then the table


def test_narrow_angles_keep_the_scale_of_an_extension():
    model, ids = sharp(), torch.arange(32)
    model.positions.extension = YaRN(2.0, 16)
    assert model.positions.extension.attention_scaling > 1.01
    got, right = tables(model, "float32 product", ids), model.places(ids)
    torch.testing.assert_close(got.query, right.query, rtol=0, atol=2 * 33 * 2**-23)


@torch.no_grad()
def test_restart_counts_from_0_every_64_tokens_wherever_it_began():
    model, text = sharp(), torch.arange(150)[None] * 5 % TOKENS
    wrong = torch.arange(150) % 64
    for shift in (0, 1000):
        ids = torch.arange(150) + shift
        with defect(model, "restart"):
            assert torch.equal(model(text, ids), model(text, wrong))
            got = model(text, ids)
        assert torch.equal(got, model(text, wrong))
    right = model(text)
    assert torch.equal(got[:, :64], right[:, :64])
    assert (got[:, 64:] - right[:, 64:]).abs().max() > 0.01


@kinds
@pytest.mark.parametrize("name", DEFECTS)
def test_the_model_is_as_before_afterwards(name, position):
    """After an exception, too, and with an extension set."""
    model, text, ids = sharp(position=position), torch.arange(100)[None] % TOKENS, torch.arange(100)
    model.positions.extension = Linear(2.0)
    before = [dict(vars(part)) for part in model.modules()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    right = model(text, ids + 3000)
    with defect(model, name):
        wrong = model(text, ids + 3000)
    with pytest.raises(KeyError), defect(model, name), defect(model, "sign"):
        raise KeyError
    assert not torch.equal(wrong, right)
    assert torch.equal(model(text, ids + 3000), right)
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert [dict(vars(part)) for part in model.modules()] == before


@pytest.fixture(scope="module")
def trained():
    """Enough steps that the loss depends on order: a text in which each letter follows another."""
    experiment = replace(
        SMALL,
        layers=1,
        context=96,
        batch=8,
        steps=40,
        learning_rate=0.02,
        evaluate_every=40,
        warmup=4,
        seed=1,
    )
    corpus = corpus_of("the cat sat on the mat and the dog lay on the log. " * 40)
    run = train(experiment, corpus=corpus, progress=False)
    return run.model, run.data.validation(4, 96)


@pytest.mark.parametrize("name", SIZES)
def test_a_mistake_changes_the_loss_of_a_trained_model(name, trained):
    """Rounding by more than sums round, some 1e-6; a wrong formula by nats."""
    model, (inputs, targets) = trained
    right = token_losses(model, inputs, targets)
    with defect(model, name):
        wrong = token_losses(model, inputs, targets)
        logits = model(inputs)
    least, most = SIZES[name]
    assert least < (wrong - right).abs().max() < most
    assert wrong.mean().item() == pytest.approx(cross_entropy(logits.mT, targets).item(), rel=1e-5)


def test_near_positions_take_no_harm_from_the_control(trained):
    model, (inputs, targets) = trained
    right = token_losses(model, inputs, targets)
    with defect(model, "bf16 positions"):
        assert torch.equal(token_losses(model, inputs, targets), right)
    with defect(model, "float32 product"):
        torch.testing.assert_close(token_losses(model, inputs, targets), right, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({}, "bf16", "name is 'bf16'; it must be one of 'layout', 'bf16 positions'"),
        ({"position": "alibi"}, "sign", "position is 'alibi', which rotates nothing"),
        ({"position": "xpos"}, "sign", "position is 'xpos', whose tables hold a decay too"),
        ({"attention": "linear"}, "values rotated", "attention is 'linear'"),
    ],
)
def test_what_cannot_be_mistaken_is_refused(changes, name, words):
    with pytest.raises(ValueError, match=words), defect(sharp(**changes), name):
        pass
