"""Test how a model uses positions and how planted defects change it, against independent code."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import small_models
import torch
from small_models import TOKENS, exact_scores, heads, heard
from strategies import tolerance

from rope.book.training import Decoder, Experiment
from rope.book.training.defects import DEFECTS, defect
from rope.book.training.inside import (
    by_distance,
    by_plane,
    diagonal_means,
    erased,
    frozen,
    plane_norms,
    position_share,
    scores,
    weights,
)
from rope.book.training.lengths import extended
from rope.book.training.positions import POSITIONS
from rope.book.training.reading import clamped, profiled, windowed, without_head
from rope.extensions import NTK, Linear

LENGTH = 12
SMALL = Experiment(layers=2, width=16, heads=2, context=16)
sharp = partial(small_models.sharp, SMALL)
random_text = partial(small_models.random_text, length=LENGTH)
layouts = pytest.mark.parametrize("interleaved", [False, True])


def assert_scores(got, expected):
    seen = torch.ones(LENGTH, LENGTH).tril().bool()
    assert (got[..., ~seen] == -math.inf).all()
    allowed = tolerance(torch.float32, expected[..., seen].abs().max().item() + 10, 32)
    torch.testing.assert_close(got.double()[..., seen], expected[..., seen], rtol=0, atol=allowed)


@layouts
@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_scores_and_weights_are_those_of_the_definition(position, interleaved):
    model, text = sharp(position=position, interleaved=interleaved), random_text()
    for layer in range(2):
        assert_scores(scores(model, text, layer), exact_scores(model, text, layer))
        assert torch.equal(weights(model, text, layer), scores(model, text, layer).softmax(-1))


@pytest.mark.parametrize(("position", "interleaved"), [("rope", False), ("partial", True)])
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


def test_means_by_distance_are_those_of_a_loop():
    model, text = sharp(), random_text()
    score, weight = by_distance(model, text)
    assert score.shape == weight.shape == (2, 2, LENGTH)
    for layer, head in np.ndindex(2, 2):
        for got, square in ((score, scores), (weight, weights)):
            values = square(model, text, layer)[:, head].double().numpy()
            for distance in range(LENGTH):
                pairs = [values[b, m, m - distance] for b in range(3) for m in range(distance, 12)]
                assert got[layer, head, distance].item() == pytest.approx(np.mean(pairs))


@torch.no_grad()
def test_each_planes_part_of_the_scores():
    """Check that a plane's part is the entire score if all other planes are erased."""
    model, text = sharp(), random_text()
    found = by_plane(model, text)
    for plane in range(4):
        with erased(model, [j for j in range(4) if j != plane]):
            alone = diagonal_means(scores(model, text, 0))  # in the first layer
        torch.testing.assert_close(found[plane, 0], alone)


@pytest.mark.parametrize("position", ["rope", "t5"])
def test_position_share_is_that_of_a_regression(position):
    """Compare with NumPy's least squares, with a dummy variable per query and per distance."""
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


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@torch.no_grad()
def test_with_every_plane_frozen_the_model_knows_no_positions(attention):
    model, text = sharp(attention=attention), random_text()
    plain = Decoder(replace(model.experiment, position="none"), TOKENS)
    plain.load_state_dict(model.state_dict())
    with frozen(model, range(4)):
        assert torch.equal(model(text), plain(text))


@layouts
@pytest.mark.parametrize("position", ["rope", "partial", "xpos"])
@torch.no_grad()
def test_a_frozen_plane_compares_content_and_an_erased_one_says_nothing(position, interleaved):
    model, text = sharp(position=position, interleaved=interleaved), random_text()
    _, _, _, places = heads(model, text)
    planes = 2 if position == "partial" else 4
    for j in range(planes):
        still, silent = (
            [[table.clone() for table in tables] for tables in (places.query, places.key)]
            for _ in range(2)
        )
        for (cos, sin), right in zip(still, (places.query, places.key), strict=True):
            cos[:, j], sin[:, j] = torch.hypot(*right)[:, j], 0  # the decay of xPos stays
        for table in silent[0]:
            table[:, j] = 0
        for change, (query, key) in ((frozen, still), (erased, silent)):
            with change(model, [j]):
                got = scores(model, text, 0)
            assert_scores(got, exact_scores(model, text, query=query, key=key))


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


@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_the_model_is_as_before_afterwards(name):
    """Check that every change is undone, even after an exception and with an extension set."""
    model = sharp(context=64)
    text, ids = random_text(1, length=100), torch.arange(100) + 300
    model.positions.extension = Linear(2.0)
    before = [dict(vars(part)) for part in model.modules()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    right = model(text, ids)
    with pytest.raises(KeyError), CHANGES[name](model), CHANGES["erased"](model):
        raise KeyError
    assert torch.equal(model(text, ids), right)
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert [dict(vars(part)) for part in model.modules()] == before


# The planted defects.
