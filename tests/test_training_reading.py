"""Check windows, clamped planes, longer texts and adjusted models against loops."""

import copy
import math
from dataclasses import replace
from functools import partial

import pytest
import small_models
import torch
from small_models import heads, heard, random_text
from strategies import tolerance

import rope
from rope.book.training import Experiment, train
from rope.book.training.corpus import corpus_of
from rope.book.training.data import TextData
from rope.book.training.inside import frozen
from rope.book.training.loop import adjusted, make_optimizer, training_step
from rope.book.training.reading import clamped, windowed

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
