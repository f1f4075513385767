"""Models that read otherwise, longer and longer texts, and go on training: against loops."""

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import small_models
import torch
from small_models import heard, random_text
from strategies import tolerance

import rope
from rope import reference
from rope.book.measured.record import layout
from rope.book.training import POSITIONS, Experiment, context, policies, second, train
from rope.book.training.corpus import corpus_of
from rope.book.training.experiment import TEXT
from rope.book.training.inside import frozen, scores, weights
from rope.book.training.lengths import extended
from rope.book.training.loop import adjusted, validation_loss
from rope.book.training.reading import clamped, profiled, profiles, windowed, without_head
from rope.book.training.results import RECORDED
from rope.extensions import NTK

LENGTH = 24
SMALL = Experiment(layers=2, width=16, heads=2, context=8, batch=4, steps=6, warmup=1)
sharp = partial(small_models.sharp, SMALL)
WORDS = corpus_of("the quick brown fox jumps over the lazy dog. " * 130)

pytestmark = pytest.mark.usefixtures("one_thread")


def given(model, inputs, layer=0):
    """q and k of a layer, before the rotation: float64 `[B, H, S, D]`."""
    q, k, _ = model.blocks[layer].attention.heads(heard(model, inputs, layer)[0])
    return q.detach().double().numpy(), k.detach().double().numpy()


def rotation(model, offset):
    """R of an offset, `[D, D]`: what stands between query and key."""
    theta = model.positions.frequencies(8, torch.device("cpu")).numpy()
    layout = dict(interleaved=model.experiment.interleaved)
    return reference.rotate_matrix(np.eye(8), np.full(8, offset), theta, **layout).T


# Reading otherwise.


@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_a_window_is_the_text_cut_for_each_query(position):
    """In one layer: what a query gives is what it gives where the last 8 keys are all there is.

    With its positions kept, so that added vectors are the same.
    """
    if position == "learned":
        pytest.skip("its vectors end with the context")
    model, text = sharp(position=position, layers=1), random_text(1)
    with windowed(model):
        got = model(text)
    assert not torch.allclose(got, model(text))
    for end in range(1, LENGTH + 1):
        start = max(0, end - 8)
        alone = model(text[:, start:end], torch.arange(start, end))
        bound = tolerance(torch.float32, alone.abs().max().item(), operations=200)
        torch.testing.assert_close(got[:, end - 1], alone[:, -1], rtol=0, atol=bound)


def streamed(model, text, sinks, moved):
    """Logits of a model that reads a token at a time, with a cache of 8 unrotated keys a layer."""
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
                del cache[sinks]  # the oldest that is no sink
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


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("sinks", "moved"), [(0, True), (0, False), (2, True), (2, False), (7, True)]
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
    with windowed(model, sinks, moved=not moved):
        other = model(text)
    assert torch.equal(got, other) == (sinks == 0)


@torch.no_grad()
def test_policies_judge_the_last_characters(monkeypatch):
    """Of one layer a window is a reading anew; and each policy is its own change of the model."""
    monkeypatch.setattr(policies, "JUDGED", 5)
    model, text = sharp(layers=1), random_text(2, LENGTH + 1)
    inputs, targets = text[:, :-1], text[:, 1:]
    found = policies.by_policy(model, inputs, targets)
    assert found["recomputed"] == pytest.approx(found["window"], rel=1e-5)
    assert len({round(loss, 4) for loss in found.values()}) == 4
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
    ("changes", "sinks", "says"),
    [
        (dict(), 8, "sinks is 8 of a window of 8 keys; the query itself must have one"),
        (dict(), -1, "sinks is -1"),
        (dict(position="alibi"), 2, "position is 'alibi', which rotates nothing"),
        (dict(attention="linear"), 0, "attention is 'linear'"),
    ],
)
def test_a_window_that_cannot_be_is_refused(changes, sinks, says):
    with pytest.raises(ValueError, match=says), windowed(sharp(**changes), sinks):
        pass


@pytest.mark.parametrize("position", ["rope", "partial"])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("planes", [[], [1], "all"])
@torch.no_grad()
def test_clamped_scores_are_those_of_a_loop(position, interleaved, planes):
    """Plane by plane: the rotation of the offset, or of 7 where it is 8 or more."""
    model, text = sharp(position=position, interleaved=interleaved), random_text(2)
    every = range(model.positions.dim // 2)
    planes = every if planes == "all" else planes
    q, k = given(model, text)
    theta = model.positions.frequencies(8, torch.device("cpu")).numpy()
    width = 2 * len(every)
    with clamped(model, planes):
        caught = softmaxed(model, text)
    for b, h, m in np.ndindex(2, 2, LENGTH):
        row = []
        for n in range(m + 1):
            a, c = q[b, h, m], k[b, h, n]
            score = a[width:] @ c[width:]
            for j in every:
                offset = min(m - n, 7) if j in planes else m - n
                pair = (2 * j, 2 * j + 1) if interleaved else (j, j + len(every))
                x, y = (v[pair[0]] + 1j * v[pair[1]] for v in (a, c))
                score += (x * np.conj(y) * np.exp(1j * offset * theta[j])).real
            row.append(score / math.sqrt(8))
        expected = np.exp(row - np.max(row))
        got = caught[b, h, m, : m + 1].double().numpy()
        np.testing.assert_allclose(got, expected / expected.sum(), rtol=0, atol=1e-5)


def softmaxed(model, inputs):
    """The weights of the first layer as it is called: read from what it does to its values."""
    attention = model.blocks[0].attention
    found = []
    for key in range(inputs.shape[1]):  # values that are 1 at one key alone

        def heads(x, key=key):
            q, k, v = type(attention).heads(attention, x)
            one = torch.zeros_like(v)
            one[:, :, key] = 1
            return q, k, one

        caught = []
        hook = attention.out.register_forward_pre_hook(
            lambda _, given, caught=caught: caught.append(given[0])
        )
        attention.heads = heads
        model(inputs)
        del attention.heads
        hook.remove()
        found.append(caught[0].unflatten(-1, (2, 8))[..., 0])  # [B, S, H]
    return torch.stack(found, dim=-1).transpose(1, 2)  # [B, H, S, keys]


@pytest.mark.parametrize("interleaved", [False, True])
@torch.no_grad()
def test_a_profile_is_what_a_loop_makes_of_the_scores(interleaved):
    """Content: the mean over the offsets 0 ... 7, as often as 8 tokens have them. Then the rest."""
    model, text = sharp(interleaved=interleaved), random_text(3, 8)
    profile = profiles(model, text)
    assert profile.shape == (2, 2, 8)
    share = np.arange(8, 0, -1) / 36
    mean = sum(weight * rotation(model, -d) for d, weight in enumerate(share))
    for layer in range(2):
        q, k = given(model, text, layer)
        content = np.einsum("bhmi,ij,bhnj->bhmn", q, mean, k) / math.sqrt(8)
        plain = scores(model, text, layer).double().numpy()
        for head, d in np.ndindex(2, 8):
            rest = [plain[b, head, m, m - d] - content[b, head, m, m - d]
                    for b in range(3) for m in range(d, 8)]  # fmt: skip
            assert profile[layer, head, d].item() == pytest.approx(np.mean(rest), abs=1e-4)
    q, k = given(model, text)
    content = np.einsum("bhmi,ij,bhnj->bhmn", q, mean, k) / math.sqrt(8)
    with profiled(model, profile):
        got = softmaxed(model, text)
    for b, h, m in np.ndindex(3, 2, 8):
        row = [content[b, h, m, n] + profile[0, h, m - n].item() for n in range(m + 1)]
        expected = np.exp(row - np.max(row))
        np.testing.assert_allclose(
            got[b, h, m, : m + 1].double().numpy(), expected / expected.sum(), rtol=0, atol=1e-5
        )


@torch.no_grad()
def test_under_a_profile_all_questions_prefer_the_same_offsets():
    """Equal tokens: the log ratio of two keys' weights is the same for every query."""
    model, text = sharp(), torch.tensor([[3, 3, 3, 3, 3, 3, 3, 1], [3, 3, 3, 3, 3, 3, 3, 2]])

    def preference():
        return softmaxed(model, text)[:, :, 7, [2, 5]].log().diff(dim=-1)[..., 0]  # [B, H]

    plain = preference()
    with profiled(model, profiles(model, random_text(20, 8))):
        forced = preference()
    assert (plain[0] - plain[1]).abs().min() > 0.01
    torch.testing.assert_close(forced[0], forced[1], rtol=0, atol=1e-4)


@torch.no_grad()
def test_a_head_that_is_removed_adds_nothing():
    model, text = sharp(), random_text(2, 8)
    right = model(text)
    with without_head(model, 1, 0):
        got = model(text)
    other = sharp()
    other.blocks[1].attention.out.weight[:, :8] = 0  # the columns that read head 0
    torch.testing.assert_close(got, other(text))
    assert not torch.allclose(got, right) and torch.equal(model(text), right)
    for layer, head in ((2, 0), (0, 2)):
        with pytest.raises(IndexError), without_head(model, layer, head):
            pass


# After more and more of the text.


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


def test_extensions_follow_the_ratio_or_stay(monkeypatch):
    monkeypatch.setattr(context, "JUDGED", 4)
    run = trained(width=32)
    with torch.no_grad():  # scores that a rotation can move
        for block in run.model.blocks:
            block.attention.project.weight.mul_(50)
    ntk = {"ntk, twice the ratio": context.EXTENSIONS["ntk, twice the ratio"]}
    monkeypatch.setattr(context, "EXTENSIONS", ntk)
    found = context.by_extension(run.model, run.data)["ntk, twice the ratio"]
    for kind, factor in (("ratio", 8.0), ("served", 32.0)):
        with extended(run.model, NTK(factor)):
            assert context.by_ratio(run.model, run.data)[1][2] == found[kind][1][2]
    assert found["ratio"][0][2] != found["served"][0][2]


def test_clamped_groups_are_the_planes_and_their_losses(monkeypatch):
    monkeypatch.setattr(context, "JUDGED", 4)
    run = trained(width=32)  # 8 planes: wavelengths 6.3, 19.9, 62.8, ...
    with torch.no_grad():
        for block in run.model.blocks:
            block.attention.project.weight.mul_(50)
    found = context.by_clamp(run.model, run.data)
    planes = found["planes"]
    assert planes["finished"] == [0] and planes["unfinished"] == list(range(1, 8))
    assert planes["first two unfinished"] == [1, 2] and planes["all"] == list(range(8))
    plain = context.by_ratio(run.model, run.data)
    at = context.RATIOS.index(found["ratio"])
    assert found["loss"]["none"] == pytest.approx([half[at] for half in plain], rel=1e-5)
    assert found["loss"]["none"] != pytest.approx(found["loss"]["all"], rel=1e-5)


@pytest.mark.parametrize("position", ["alibi", "rope", "none"])
def test_attention_mass_is_that_of_a_loop(position, monkeypatch):
    monkeypatch.setattr(context, "JUDGED", 5)
    model, text = sharp(position=position), random_text(2)
    got = context.attention_mass(model, text)
    edges = [0, 1, 2, 3, 4, 8, 16]
    assert got.shape == (2, 2, len(edges))
    for layer, head in np.ndindex(2, 2):
        weight = weights(model, text, layer)[:, head].double().numpy()
        for place, (low, high) in enumerate(zip(edges, (*edges[1:], 99), strict=True)):
            shares = [sum(weight[b, m, n] for n in range(m + 1) if low <= m - n < high)
                      for b in range(2) for m in range(LENGTH - 5, LENGTH)]  # fmt: skip
            assert got[layer, head, place].item() == pytest.approx(np.mean(shares), abs=1e-6)


def test_mass_beyond_the_context_is_told_for_each_head(monkeypatch):
    monkeypatch.setattr(context, "JUDGED", 4)
    run = trained(position="alibi")
    found = context.mass_by_ratio(run.model, run.data)
    inputs, _ = context.endings(run.data, 8)
    for place, ratio in enumerate(context.RATIOS[1:]):
        far = inputs[:, -8 * ratio :]
        for layer in range(2):
            weight = weights(run.model, far, layer)[:, :, -4:].double()
            at = torch.arange(8 * ratio)
            beyond = at[-4:, None] - at >= 8
            share = (weight * beyond).sum(-1).mean(dim=(0, 2))
            assert found["beyond"][place][layer] == pytest.approx(share.tolist(), abs=1e-6)
    mean = context.attention_mass(run.model, inputs).mean(dim=(0, 1))
    assert found["mass"][-1] == mean.tolist() and sum(found["mass"][-1]) == pytest.approx(1.0)


# Adjusting.


def test_a_model_adjusts_within_the_change_and_leaves_the_first_alone():
    run = trained()
    before = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    every = range(4)
    after = adjusted(run, lambda model: frozen(model, every), steps=3)
    other = adjusted(run, lambda model: frozen(model, []), steps=3)
    assert all(torch.equal(weight, before[name]) for name, weight in run.model.state_dict().items())
    name = "blocks.0.attention.project.weight"
    assert not torch.equal(after.state_dict()[name], before[name])
    assert not torch.equal(after.state_dict()[name], other.state_dict()[name])
    with torch.no_grad():
        assert torch.equal(after(random_text(1, 8)), after(random_text(1, 8)))


def test_forced_offsets_are_told_at_once_and_adjusted(monkeypatch):
    monkeypatch.setattr(second, "PROFILE_WINDOWS", 8)
    monkeypatch.setattr(second, "ADJUSTING_STEPS", 2)
    run = trained()
    found = second.offsets_forced(run)
    assert found["as it is"]["at once"] == validation_loss(run.model, run.data)
    with frozen(run.model, range(4)):
        assert found["no offsets"]["at once"] == validation_loss(run.model, run.data)
    assert {*found} == {"as it is", "profile", "no offsets"}
    assert found["profile"]["at once"] != found["profile"]["adjusted"]
