"""Check windows, clamped planes, longer texts and adjusted models against loops."""

import copy
import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import small_models
import torch
from small_models import heads, heard, random_text
from strategies import tolerance

import rope
from rope.book.measured.record import layout
from rope.book.training import Experiment, context, policies, train
from rope.book.training.corpus import corpus_of
from rope.book.training.data import TextData
from rope.book.training.experiment import TEXT
from rope.book.training.inside import frozen, weights
from rope.book.training.loop import adjusted, make_optimizer, training_step
from rope.book.training.reading import clamped, windowed
from rope.book.training.results import RECORDED

LENGTH, CPU = 24, torch.device("cpu")
SMALL = Experiment(layers=2, width=16, heads=2, context=8, batch=4, steps=6, warmup=1)
sharp = partial(small_models.sharp, SMALL)
WORDS = corpus_of("the quick brown fox jumps over the lazy dog. " * 130)

pytestmark = pytest.mark.usefixtures("one_thread")


def after(model, inputs, score):
    """Return the first layer's attention output for these scores, float64 `[B, S, E]`."""
    _, _, v, _ = heads(model, inputs)
    ahead = torch.ones(score.shape[-2:]).triu(1).bool()
    share = score.masked_fill(ahead, -math.inf).softmax(dim=-1)
    weight = model.blocks[0].attention.out.weight.detach().double()
    return (share @ v).transpose(1, 2).flatten(2) @ weight.T


def assert_heard(model, inputs, score):
    """Assert that the first layer attends with these scores."""
    expected = after(model, inputs, score)
    allowed = tolerance(torch.float32, expected.abs().max().item(), operations=200)
    torch.testing.assert_close(heard(model, inputs)[2].double(), expected, rtol=0, atol=allowed)


# Changed reading: windows and clamped planes.


@pytest.mark.parametrize("position", ["rope", "alibi", "sinusoidal"])
@torch.no_grad()
def test_a_window_is_the_text_cut_for_each_query(position):
    """Check that, in one layer, a windowed query gives what it gives on its last 8 tokens alone.

    The positions are kept, so that added position vectors are the same.
    """
    model, text = sharp(position=position, layers=1), random_text(1)
    with windowed(model):
        got = model(text)
    for end in range(1, LENGTH + 1):
        start = max(0, end - 8)
        alone = model(text[:, start:end], torch.arange(start, end))
        bound = tolerance(torch.float32, alone.abs().max().item(), operations=200)
        torch.testing.assert_close(got[:, end - 1], alone[:, -1], rtol=0, atol=bound)


def streamed(model, text, sinks, moved):
    """Return the logits if the model reads one token at a time with 8 unrotated keys per layer."""
    inv_freq = model.positions.frequencies(8, torch.device("cpu"))
    layout = dict(interleaved=model.experiment.interleaved)
    held, logits = [[] for _ in model.blocks], []
    for t in range(text.shape[1]):
        x = model.embedding(text[:, t : t + 1]) * math.sqrt(SMALL.width)
        for block, cache in zip(model.blocks, held, strict=True):
            attention = block.attention
            q, k, v = attention.heads(block.before_attention(x))
            cache.append((t, k, v))
            if len(cache) > 8:
                del cache[sinks]  # the oldest token that isn't a sink
            keys, values = (torch.cat([row[i] for row in cache], dim=2) for i in (1, 2))
            at = torch.arange(len(cache)) if moved else torch.tensor([row[0] for row in cache])
            cos, sin = rope.rotary_tables(at, inv_freq)
            q = rope.rotary_embedding(q, cos[-1:], sin[-1:], **layout)
            weight = q @ rope.rotary_embedding(keys, cos, sin, **layout).mT / math.sqrt(8)
            mixed = weight.softmax(dim=-1) @ values
            x = x + attention.out(mixed.transpose(1, 2).flatten(2))
            x = x + block.down(torch.nn.functional.gelu(block.up(block.before_mlp(x))))
        logits.append(model.head(model.norm(x)))
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize(
    ("interleaved", "sinks", "moved"),
    [(False, 0, True), (False, 0, False), (False, 2, True), (True, 2, False), (True, 7, True)],
)
@torch.no_grad()
def test_a_window_with_sinks_is_a_cache_that_drops_the_oldest_of_the_others(
    interleaved, sinks, moved
):
    model, text = sharp(interleaved=interleaved), random_text(2)
    with windowed(model, sinks, moved=moved):
        got = model(text)
    expected = streamed(model, text, sinks, moved)
    bound = tolerance(torch.float32, expected.abs().max().item(), operations=2000)
    torch.testing.assert_close(got, expected, rtol=0, atol=bound)


@torch.no_grad()
def test_policies_judge_the_last_characters(monkeypatch):
    """Check losses: in one layer, a window equals rereading the text; sinks equal `streamed`."""
    monkeypatch.setattr(policies, "JUDGED", 5)
    model, text = sharp(layers=1), random_text(2, LENGTH + 1)
    inputs, targets = text[:, :-1], text[:, 1:]
    found = policies.by_policy(model, inputs, targets)
    assert found["recomputed"] == pytest.approx(found["window"], rel=1e-5)
    for name, moved in (("cache", True), ("text", False)):
        logits = streamed(model, inputs, policies.SINKS, moved)[:, 19:].mT
        loss = torch.nn.functional.cross_entropy(logits, targets[:, 19:]).item()
        assert found[f"sinks, positions in the {name}"] == pytest.approx(loss, rel=1e-5)
    last = [model(inputs[:, t - 7 : t + 1], torch.arange(8))[:, -1] for t in range(19, 24)]
    loss = torch.nn.functional.cross_entropy(torch.cat(last), targets[:, 19:].T.flatten())
    assert found["recomputed"] == pytest.approx(loss.item(), rel=1e-5)


def test_the_record_of_policies():
    path = RECORDED / "policies.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    assert layout(record) + "\n" == path.read_text(encoding="utf-8") and path.stat().st_size < 4000
    assert Experiment(**record["experiment"]) == TEXT and record["seeds"] == [0, 1, 2]
    assert set(record["loss"]) == {"recomputed", *policies.STREAMED}
    assert "changes" not in record["metadata"]["commit"]
    for window, anew in zip(record["loss"]["window"], record["loss"]["recomputed"], strict=True):
        assert abs(window - anew) < 0.05 and 1.5 < anew < 2.2


@pytest.mark.parametrize(
    ("position", "interleaved", "planes"), [("rope", False, [1]), ("partial", True, "all")]
)
@torch.no_grad()
def test_clamped_planes_take_a_far_distance_for_the_farthest_trained(position, interleaved, planes):
    """Compare with scores summed over planes, with offsets clamped to 7 in the clamped planes."""
    model, text = sharp(position=position, interleaved=interleaved), random_text(2)
    q, k, _, _ = heads(model, text)
    count, at = model.positions.dim // 2, torch.arange(LENGTH)
    offset = (at[:, None] - at)[..., None].expand(-1, -1, count).clone()
    chosen = list(range(count)) if planes == "all" else planes
    offset[..., chosen] = offset[..., chosen].clamp(max=7)
    turn = torch.polar(torch.ones(()).double(), offset * model.positions.frequencies(8, CPU))
    one, other = (complex_planes(x, count, interleaved) for x in (q, k))
    score = torch.einsum("bhmj,bhnj,mnj->bhmn", one, other.conj(), turn).real
    score = score + q[..., 2 * count :] @ k[..., 2 * count :].mT
    with clamped(model, planes if planes != "all" else range(count)):
        assert_heard(model, text, score / math.sqrt(8))


def complex_planes(x, count, interleaved):
    """Return the rotated coordinates of `[B, H, S, D]` as complex numbers `[B, H, S, R/2]`."""
    shape, axis = ((count, 2), -1) if interleaved else ((2, count), -2)
    return torch.complex(*x[..., : 2 * count].unflatten(-1, shape).unbind(axis))


# Reading after increasingly long contexts.


def trained(**changes):
    experiment = replace(SMALL, **changes)
    return train(experiment, corpus=WORDS, progress=False)


def test_the_same_characters_are_judged_at_every_ratio(monkeypatch):
    monkeypatch.setattr(context, "JUDGED", 4)
    run = trained()
    inputs, targets = context.endings(run.data, 8)
    count = len(inputs)
    assert count % 2 == 0 and count * 128 < len(run.data.corpus.validation) <= (count + 2) * 128 + 1
    found = context.by_ratio(run.model, run.data)
    for half, ratio in np.ndindex(2, 5):
        length = 8 * context.RATIOS[ratio]
        rows = slice(0, count // 2) if half == 0 else slice(count // 2, count)
        with torch.no_grad():
            logits = run.model(inputs[rows, -length:]).double()
        judged = -logits.log_softmax(-1).gather(-1, targets[rows, -length:, None])[:, -4:]
        assert found[half][ratio] == pytest.approx(judged.mean().item(), rel=1e-5)
    learned = trained(position="learned")
    rows = context.by_ratio(learned.model, learned.data)
    assert all(row[0] is not None and row[1:] == [None] * 4 for row in rows)


def test_attention_mass_is_that_of_a_loop(monkeypatch):
    monkeypatch.setattr(context, "JUDGED", 5)
    model, text = sharp(), random_text(2)
    got = context.attention_mass(model, text)
    edges = [0, 1, 2, 3, 4, 8, 16]
    assert got.shape == (2, 2, len(edges))
    for layer, head in np.ndindex(2, 2):
        weight = weights(model, text, layer)[:, head].double().numpy()
        for place, (low, high) in enumerate(zip(edges, (*edges[1:], 99), strict=True)):
            shares = [sum(weight[b, m, n] for n in range(m + 1) if low <= m - n < high)
                      for b in range(2) for m in range(LENGTH - 5, LENGTH)]  # fmt: skip
            assert got[layer, head, place].item() == pytest.approx(np.mean(shares), abs=1e-6)


# Adjusting a model to a change.


def test_a_model_adjusts_within_the_change_and_leaves_the_first_alone():
    """Compare `adjusted` with its training loop, on batches drawn with a separate seed."""
    run = trained()
    before = copy.deepcopy(run.model.state_dict())
    after = adjusted(run, lambda model: frozen(model, range(4)), steps=3).state_dict()
    experiment = replace(SMALL, steps=3, warmup=5, learning_rate=3e-4, seed=1000)
    plain, data = copy.deepcopy(run.model), TextData(experiment, WORDS)
    optimizer = make_optimizer(plain, experiment)
    with frozen(plain, range(4)):
        for step in (1, 2, 3):
            training_step(plain, optimizer, data, experiment, step)
    for name, weight in plain.state_dict().items():
        assert torch.equal(after[name], weight)
        assert torch.equal(run.model.state_dict()[name], before[name])
