"""What a model does with its positions, and what mistakes do: against loops, NumPy, itself."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import small_models
import torch
from small_models import TOKENS, heard
from strategies import tolerance
from torch.nn.functional import cross_entropy

from rope import reference
from rope.book.training import Decoder, Experiment, train
from rope.book.training.corpus import corpus_of
from rope.book.training.defects import DEFECTS, defect
from rope.book.training.inside import (
    by_distance,
    erased,
    frozen,
    plane_norms,
    position_share,
    scores,
    weights,
)
from rope.book.training.lengths import extended
from rope.book.training.loop import token_losses
from rope.book.training.positions import POSITIONS
from rope.book.training.reading import clamped, profiled, windowed, without_head
from rope.extensions import NTK, Linear, YaRN

LENGTH = 12
SMALL = Experiment(layers=2, width=16, heads=2, context=16)
sharp = partial(small_models.sharp, SMALL)
random_text = partial(small_models.random_text, length=LENGTH)
TEXT = torch.arange(3 * LENGTH).view(3, LENGTH) * 7 % TOKENS
FINE = ("bf16 positions", "bf16 tables", "bf16 angles", "float32 product")
SIZES = {name: (1.0, 20.0) for name in DEFECTS if name not in FINE}  # of a loss that moves
SIZES |= {"bf16 tables": (1e-3, 0.2), "bf16 angles": (1e-3, 0.2)}
methods = pytest.mark.parametrize("position", POSITIONS)
rotary_methods = pytest.mark.parametrize("position", ["rope", "partial", "xpos"])
kinds = pytest.mark.parametrize("position", ["rope", "partial"])
layouts = pytest.mark.parametrize("interleaved", [False, True])


@methods
@layouts
@torch.no_grad()
def test_weights_put_back_give_what_the_layer_gives(position, interleaved):
    """The values mixed by these weights, through the last projection: torch's own attention."""
    model, text = sharp(position=position, interleaved=interleaved), random_text()
    for layer in range(2):
        x, _, result = heard(model, text, layer)
        attention = model.blocks[layer].attention
        _, _, v = attention.project(x).chunk(3, dim=-1)  # [B, S, E]
        v = v.unflatten(-1, (2, 8)).transpose(1, 2)
        share = weights(model, text, layer)
        back = attention.out((share @ v).transpose(1, 2).flatten(2))
        scale = max(1.0, scores(model, text, layer).nan_to_num(neginf=0).abs().max().item())
        bound = tolerance(torch.float32, scale * result.abs().max().item(), operations=32)
        assert (back - result).abs().max() <= bound
        assert share[:, :, 3:].amax(dim=-1).mean() > 0.4  # so that a wrong weight would show


@pytest.mark.parametrize("position", ["alibi", "rope"])
def test_scores_are_those_of_a_loop(position):
    """Query times key over sqrt(D), with rotation or bias, one pair at a time."""
    model, text = sharp(position=position), random_text(1)
    x, _, _ = heard(model, text, 0)
    got = scores(model, text, 0)[0]
    project = model.blocks[0].attention.project.weight.double().detach().numpy()
    q, k, _ = (x[0].double().detach().numpy() @ project.T).reshape(LENGTH, 3, 2, 8).swapaxes(0, 1)
    for head, m, n in np.ndindex(2, LENGTH, LENGTH):
        if n > m:
            assert got[head, m, n] == -math.inf
            continue
        a, b = q[m, head], k[n, head]
        if position == "rope":  # half-split: x_j + i x_{j+4}
            turn = np.exp(1j * (m - n) * 10000.0 ** (-np.arange(4) / 4))
            score = ((a[:4] + 1j * a[4:]) * np.conj(b[:4] + 1j * b[4:]) * turn).real.sum()
            score /= math.sqrt(8)
        else:
            score = a @ b / math.sqrt(8) - 2.0 ** (-8 * (head + 1) / 2) * (m - n)
        bound = tolerance(torch.float32, np.linalg.norm(a) * np.linalg.norm(b) + m, operations=32)
        assert abs(got[head, m, n].item() - score) <= bound


@pytest.mark.parametrize("position", ["rope", "partial", "none"])
@layouts
def test_plane_norms_are_those_of_a_loop(position, interleaved):
    model, text = sharp(position=position, interleaved=interleaved), random_text()
    planes = 2 if position == "partial" else 4
    got = [norms.numpy() for norms in plane_norms(model, text)]
    assert all(norms.shape == (2, 2, planes) for norms in got)
    for layer in range(2):
        x, _, _ = heard(model, text, layer)
        rows = model.blocks[layer].attention.project(x).detach().double().numpy()
        for part, head, j in np.ndindex(2, 2, planes):
            start = 16 * part + 8 * head
            first, second = (2 * j, 2 * j + 1) if interleaved else (j, j + planes)
            mean = np.hypot(rows[..., start + first], rows[..., start + second]).mean()
            assert got[part][layer, head, j] == pytest.approx(mean, rel=1e-5)  # 36 float32 addends


@methods
def test_means_by_distance_are_those_of_a_loop(position):
    model, text = sharp(position=position), random_text()
    score, weight = by_distance(model, text)
    assert score.shape == weight.shape == (2, 2, LENGTH)
    for layer, head in np.ndindex(2, 2):
        for got, square in ((score, scores), (weight, weights)):
            values = square(model, text, layer)[:, head].double().numpy()
            for distance in range(LENGTH):
                pairs = [values[b, m, m - distance] for b in range(3) for m in range(distance, 12)]
                assert got[layer, head, distance].item() == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("position", ["rope", "partial", "t5", "sinusoidal"])
def test_position_share_is_that_of_a_regression(position):
    """NumPy's least squares with a dummy for each query and one for each distance."""
    model, text = sharp(position=position), random_text()
    got = position_share(model, text)
    pairs = [(b, m, n) for b in range(3) for m in range(LENGTH) for n in range(m + 1)]
    rows = np.array([[b * LENGTH + m, m - n] for b, m, n in pairs])
    queries, distances = np.eye(3 * LENGTH)[rows[:, 0]], np.eye(LENGTH)[rows[:, 1]]
    both = np.hstack((queries, distances))
    for layer, head in np.ndindex(2, 2):
        values = scores(model, text, layer)[:, head].double().numpy()
        y = np.array([values[pair] for pair in pairs])
        rest = [
            np.square(y - design @ np.linalg.lstsq(design, y, rcond=None)[0]).sum()
            for design in (queries, both)
        ]
        assert got[layer, head].item() == pytest.approx(1 - rest[1] / rest[0], abs=1e-9)


def test_scores_that_do_not_vary_have_nothing_to_explain():
    model = sharp()
    with erased(model, range(4)):
        assert position_share(model, random_text()).eq(0).all()


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@torch.no_grad()
def test_with_every_plane_frozen_the_model_knows_no_positions(attention):
    model, text = sharp(attention=attention), random_text()
    plain = Decoder(replace(model.experiment, position="none"), TOKENS)
    plain.load_state_dict(model.state_dict())
    assert (model(text) - plain(text)).abs().max() > 0.1
    with frozen(model, range(4)):
        assert torch.equal(model(text), plain(text))


@layouts
@rotary_methods
@torch.no_grad()
def test_a_frozen_plane_compares_content_and_an_erased_one_says_nothing(position, interleaved):
    """By the terms of each plane, one at a time, in the layer that the change meets first."""
    model, text = sharp(position=position, interleaved=interleaved), random_text()
    planes = 2 if position == "partial" else 4
    x, (_, (cos, sin), (cos_k, sin_k), _), _ = heard(model, text, 0)
    turn_q = torch.complex(cos.double(), sin.double())
    turn_k = torch.complex(cos_k.double(), sin_k.double())  # [S, R/2]
    q, k, _ = model.blocks[0].attention.heads(x.double().float())
    shape, axis = ((planes, 2), -1) if interleaved else ((2, planes), -2)
    q, k = (
        torch.complex(*v[..., : 2 * planes].unflatten(-1, shape).double().unbind(axis))
        for v in (q, k)
    )
    seen = torch.ones(LENGTH, LENGTH).tril().bool()
    before = scores(model, text, 0)
    for j in range(planes):

        def term(turned_q, turned_k, j=j):
            product = (q * turned_q)[..., j, None] * (k * turned_k)[..., None, :, j].conj()
            return product.real / math.sqrt(8)

        for change, put in ((frozen, term(turn_q.abs(), turn_k.abs())), (erased, torch.zeros(()))):
            with change(model, [j]):
                after = scores(model, text, 0)
            moved = (after - before).double()[..., seen]
            expected = (put - term(turn_q, turn_k))[..., seen]
            bound = tolerance(torch.float32, before[..., seen].abs().max().item() + 10, 32)
            assert (moved - expected).abs().max() <= bound
            assert expected.abs().max() > 100 * bound


@rotary_methods
@pytest.mark.parametrize("change", [frozen, erased])
@torch.no_grad()
def test_planes_are_changed_one_after_another_or_at_once(position, change):
    model, text = sharp(position=position), random_text()
    right = model(text)
    with change(model, [0]):
        once = model(text)
        with change(model, [1]):
            twice = model(text)
        assert torch.equal(model(text), once)
    with change(model, (0, 1)):
        assert torch.equal(model(text), twice)
    with change(model, []):
        assert torch.equal(model(text), right)
    assert not torch.equal(once, right) and not torch.equal(once, twice)


CHANGES = {
    "frozen": lambda model: frozen(model, [0]),
    "erased": lambda model: erased(model, [0]),
    **{name: lambda model, name=name: defect(model, name) for name in DEFECTS},
    "extended": lambda model: extended(model, NTK(2.0)),
    "windowed": windowed,
    "clamped": lambda model: clamped(model, [0]),
    "profiled": lambda model: profiled(model, torch.zeros(2, 2, 100)),
    "without head": lambda model: without_head(model, 0, 1),
}


@pytest.mark.parametrize(
    ("position", "name"),
    [(position, name) for position in ("rope", "partial") for name in CHANGES]
    + [("xpos", "frozen"), ("xpos", "erased")],
)
@torch.no_grad()
def test_the_model_is_as_before_afterwards(name, position):
    """After an exception, too, and with an extension set."""
    model = sharp(position=position, context=64)
    text, ids = random_text(1, length=100), torch.arange(100) + 300
    model.positions.extension = Linear(2.0)
    before = [dict(vars(part)) for part in model.modules()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    right = model(text, ids)
    with CHANGES[name](model):
        wrong = model(text, ids)
    with pytest.raises(KeyError), CHANGES[name](model), CHANGES["erased"](model):
        raise KeyError
    assert not torch.equal(wrong, right) and torch.equal(model(text, ids), right)
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert [dict(vars(part)) for part in model.modules()] == before


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("frozen", dict(position="none"), "position is 'none', which rotates nothing"),
        ("erased", dict(position="none"), "position is 'none', which rotates nothing"),
        ("extended", dict(position="alibi"), "position is 'alibi', which rotates nothing"),
        ("erased", dict(attention="linear"), "attention is 'linear'; it must be 'softmax'"),
        *((name, changes, says)
          for name in ("sign", "clamped", "profiled")
          for changes, says in (
              (dict(position="alibi"), "position is 'alibi', which rotates nothing"),
              (dict(position="xpos"), "position is 'xpos', whose tables hold a decay too"),
              (dict(attention="linear"), "attention is 'linear'; it must be 'softmax'"),
          )),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_is_refused(name, changes, says):
    with pytest.raises(ValueError, match=says), CHANGES[name](sharp(**changes)):
        pass


@pytest.mark.parametrize(
    "read", [plane_norms, by_distance, position_share, partial(scores, layer=0)]
)
def test_linear_attention_cannot_be_read(read):
    with pytest.raises(ValueError, match="attention is 'linear'; it must be 'softmax'"):
        read(sharp(attention="linear"), random_text())


# The mistakes.


def told(model, name, position_ids):
    """cos and sin, of queries and keys, that the mistaken model is told."""
    with defect(model, name):
        return model.places(position_ids)


def bfloat16(values):
    """Rounded to the upper half of float32, ties to even, by its bits."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def first_layer(model):
    """q, k, v of the first layer `[B, H, S, D]` in float64, and what its attention gives."""
    x, _, result = heard(model, TEXT, 0)
    project = model.blocks[0].attention.project.weight.double()
    split = (x.double() @ project.T).unflatten(-1, (3, 2, 8))
    return *split.permute(2, 0, 3, 1, 4).detach().numpy(), result


def rotated(model, x, positions):
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
def test_scores_are_those_of_a_wrong_definition(name, query, key, position, interleaved):
    model, ids = sharp(position=position, interleaved=interleaved), np.arange(LENGTH)
    q, k, _, _ = first_layer(model)
    q, k = rotated(model, q, query * ids), rotated(model, k, key * ids)
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
    v = rotated(model, v, np.arange(LENGTH))
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
    (cos, sin), ours = told(sharp(), "bf16 positions", torch.arange(2048)).query, kept.long()
    assert len(torch.cat((cos, sin), -1).unique(dim=0)) == len(kept.unique()) == 641
    assert torch.equal(cos, sharp().places(ours).query[0])


@kinds
def test_bf16_tables_are_the_right_ones_rounded(position):
    model, ids = sharp(position=position), torch.arange(5000, 5100)
    places = told(model, "bf16 tables", ids)
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
        places = told(model, name, ids)
        for cos, sin in (places.query, places.key):
            assert cos.dtype == sin.dtype == torch.float32
            np.testing.assert_allclose(cos, np.cos(angle.astype(float)), rtol=0, atol=2**-24)
            np.testing.assert_allclose(sin, np.sin(angle.astype(float)), rtol=0, atol=2**-24)
    exact = model.places(ids).query[0]
    moved = (told(model, "float32 product", ids).query[0] - exact).abs().max()
    assert moved <= (first + 128) * 2**-23 + 2**-23  # theta and product rounded, then the table


def test_narrow_angles_keep_the_scale_of_an_extension():
    model, ids = sharp(), torch.arange(32)
    model.positions.extension = YaRN(2.0, 16)
    assert model.positions.extension.attention_scaling > 1.01
    got, right = told(model, "float32 product", ids), model.places(ids)
    torch.testing.assert_close(got.query, right.query, rtol=0, atol=2 * 33 * 2**-23)


@torch.no_grad()
def test_restart_counts_from_0_every_64_tokens_wherever_it_began():
    model, text = sharp(), torch.arange(150)[None] * 5 % TOKENS
    wrong = torch.arange(150) % 64
    right, got = model(text), model(text, wrong)
    for shift in (0, 1000):
        with defect(model, "restart"):
            assert torch.equal(model(text, torch.arange(150) + shift), got)
    assert torch.equal(got[:, :64], right[:, :64])
    assert (got[:, 64:] - right[:, 64:]).abs().max() > 0.01


@pytest.fixture(scope="module")
def trained():
    """Enough steps that the loss depends on order: a text in which each letter follows another."""
    fields = dict(layers=1, context=96, batch=8, steps=40, warmup=4, learning_rate=0.02, seed=1)
    experiment = replace(SMALL, evaluate_every=40, **fields)
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
