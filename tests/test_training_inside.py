"""What a trained model does with its positions, against loops, NumPy and the model's own output."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from strategies import normal, tolerance

from rope.extensions import Linear
from rope.training import Decoder, Experiment
from rope.training.inside import (
    by_distance,
    erased,
    frozen,
    plane_norms,
    position_share,
    scores,
    weights,
)
from rope.training.loop import token_losses
from rope.training.positions import POSITIONS

TOKENS, LENGTH = 11, 12
SMALL = Experiment(layers=2, width=16, heads=2, context=16)
ways = pytest.mark.parametrize("position", POSITIONS)
rotary_ways = pytest.mark.parametrize("position", ["rope", "partial", "xpos"])
layouts = pytest.mark.parametrize("interleaved", [False, True])


def sharp(**changes):
    """A model with large weights of every kind, whose attention prefers some keys clearly."""
    model = Decoder(replace(SMALL, **changes), TOKENS)
    with torch.no_grad():
        for seed, (name, weight) in enumerate(model.named_parameters()):
            if weight.dim() == 2 and not name.startswith("embedding"):
                weight.copy_(normal(weight.shape, seed, torch.float32) / 2)
    return model


def random_text(sequences=3, length=LENGTH, seed=0):
    drawn = torch.Generator().manual_seed(seed)
    return torch.randint(TOKENS, (sequences, length), generator=drawn)


def heard(model, inputs, layer):
    """What a layer's attention was given and what it gave, caught from outside."""
    caught = []
    handle = model.blocks[layer].attention.register_forward_hook(
        lambda _, given, result: caught.append((*given, result))
    )
    model(inputs)
    handle.remove()
    return caught[0]


@ways
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


def test_norms_are_those_before_rotation_and_after():
    """What rotation keeps: the norms of the rotated pairs are the same."""
    model, text = sharp(), random_text()
    x, places, _ = heard(model, text, 1)
    attention = model.blocks[1].attention
    q, k, _ = attention.heads(x)
    for norms, turned in zip(plane_norms(model, text), attention.rotate(q, k, places), strict=True):
        mean = torch.hypot(turned[..., :4], turned[..., 4:]).mean(dim=(0, 2))
        torch.testing.assert_close(norms[1], mean, rtol=1e-5, atol=0)


@ways
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


@pytest.mark.parametrize("position", ["rope", "partial", "xpos", "alibi", "t5"])
def test_a_head_that_sees_the_distance_alone_is_explained_by_it(position):
    model = sharp(position=position)
    share = position_share(model, torch.full((2, LENGTH), 3))
    torch.testing.assert_close(share, torch.ones_like(share), rtol=0, atol=1e-6)


@torch.no_grad()
def test_a_head_that_knows_no_positions_is_not_explained_by_them():
    """Where q and k read unrelated halves: else a token meets itself at distance 0, and shows."""
    model = Decoder(replace(SMALL, position="none"), tokens=4096)
    drawn = torch.Generator().manual_seed(1)
    few, many = (torch.randint(4096, (count, 16), generator=drawn) for count in (2, 1000))
    projection = model.blocks[0].attention.project.weight.normal_(generator=drawn)
    projection[16:32] = projection[:16]
    assert position_share(model, many)[0].max() > 0.05
    projection[:16, :8] = 0.0
    projection[16:32, 8:] = 0.0
    # By chance 15 numbers are fitted to 1,000 x 120; each key meets up to 16 queries.
    assert (position_share(model, many)[0] < 16 * 15 / 120_000).all()
    assert (position_share(model, few)[0] > 16 * 15 / 120_000).all()


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
@rotary_ways
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

        for change, put in (
            (frozen, term(turn_q.abs(), turn_k.abs())),
            (erased, torch.zeros(())),
        ):
            with change(model, [j]):
                after = scores(model, text, 0)
            moved = (after - before).double()[..., seen]
            expected = (put - term(turn_q, turn_k))[..., seen]
            bound = tolerance(torch.float32, before[..., seen].abs().max().item() + 10, 32)
            assert (moved - expected).abs().max() <= bound
            assert expected.abs().max() > 100 * bound


@torch.no_grad()
def test_with_every_plane_erased_each_query_looks_at_all_keys_alike():
    model, text = sharp(), random_text()
    uniform = sharp()
    for block in uniform.blocks:
        block.attention.project.weight[:32] = 0.0  # of q and k
    rows = torch.ones(LENGTH, LENGTH).tril()
    with erased(model, range(4)):
        assert torch.equal(model(text), uniform(text))
        share = weights(model, text, 1)
    torch.testing.assert_close(share, (rows / rows.sum(-1, keepdim=True)).expand_as(share))


@rotary_ways
@pytest.mark.parametrize("change", [frozen, erased])
def test_the_model_is_as_before_afterwards(position, change):
    """After an exception, too, and when one change stands within another."""
    model, text = sharp(position=position), random_text()
    model.positions.extension = Linear(2.0)
    before = [dict(vars(part)) for part in model.modules()]
    right, state = model(text), {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(KeyError), change(model, [0]), change(model, [1]):
        raise KeyError
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
    assert torch.equal(model(text), right)
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert [dict(vars(part)) for part in model.modules()] == before


@pytest.mark.parametrize("change", [frozen, erased])
@pytest.mark.parametrize(
    ("position", "planes", "error", "words"),
    [
        ("none", [0], ValueError, "position is 'none', which rotates nothing"),
        ("rope", [4], ValueError, "planes holds 4; the model has 4, .* up to 3"),
        ("partial", [2], ValueError, "planes holds 2; the model has 2"),
        ("rope", [-1], ValueError, "a plane is -1"),
        ("rope", [1.0], TypeError, "a plane is 1.0; it must be an integer"),
        ("rope", 3, TypeError, r"planes is 3; .* pass \[3\]"),
    ],
)
def test_what_cannot_be_changed_is_refused(change, position, planes, error, words):
    with pytest.raises(error, match=words), change(sharp(position=position), planes):
        pass


def test_what_cannot_be_seen_is_refused():
    linear, text = sharp(attention="linear"), random_text()
    for look in (plane_norms, by_distance, position_share, lambda *a: scores(*a, 0)):
        with pytest.raises(ValueError, match="attention is 'linear'; it must be 'softmax'"):
            look(linear, text)
    with pytest.raises(ValueError, match="attention is 'linear'"), erased(linear, [0]):
        pass
    for layer, words in ((2, "layer is 2; the model has 2, .* pass 1"), (-1, "layer is -1")):
        with pytest.raises(ValueError, match=words):
            weights(sharp(), text, layer)


def test_looking_leaves_nothing_behind():
    """No graph, and no hook in the model."""
    model, text = sharp(), random_text()
    looks = (*plane_norms(model, text), scores(model, text, 0), *by_distance(model, text))
    assert not any(look.requires_grad for look in looks)
    assert token_losses(model, text, text).isfinite().all()
    assert not any(block.attention._forward_pre_hooks for block in model.blocks)
