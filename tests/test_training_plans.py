"""The second plan and the third: what is measured of each kind of run, one value each."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import lines

from rope.book.training import second, third, train
from rope.book.training.corpus import corpus_of
from rope.book.training.data import IGNORED, NAMES, SYMBOLS, EvenLookupData
from rope.book.training.experiment import TEXT
from rope.book.training.inside import by_distance, by_plane, diagonal_means, erased, scores, weights
from rope.book.training.lengths import EXTENSIONS
from rope.book.training.loop import token_losses, validation_loss
from rope.book.training.positions import T5Exact
from rope.book.training.reading import clamped, without_head

pytestmark = pytest.mark.usefixtures("one_thread")

FOX = "the quick brown fox jumps over the lazy dog. "
WORDS = corpus_of(FOX * 120 + lines(370, 0))  # its last tenth, 36 windows of 16, is in part new


def small(experiment, **changed):
    sizes = dict(layers=2, width=16, heads=2, batch=4, steps=2, warmup=1)
    return replace(experiment, **sizes | changed)


@pytest.fixture
def sizes(monkeypatch):
    """So small that nothing takes long."""
    for plan in (second, third):
        monkeypatch.setattr(plan, "FAR", (9, 201))
        monkeypatch.setattr(plan, "SEQUENCES", 4)
        monkeypatch.setattr(plan, "LONG_SEQUENCES", 1)
        monkeypatch.setattr(plan, "ADJUSTING_STEPS", 1)
        monkeypatch.setattr(plan, "PROFILE_WINDOWS", 4)
    monkeypatch.setattr(second, "TEXT", replace(TEXT, context=16))
    monkeypatch.setattr(third, "RANGES", ((0, 2), (2, 16)))


def entry(plan, experiment, **keywords):
    run = train(small(experiment), progress=False, **keywords)
    return run, json.loads(json.dumps(plan.measure(run)))


@pytest.mark.usefixtures("sizes")
def test_each_kind_of_run_of_the_second_plan_is_measured():
    run, found = entry(second, replace(TEXT, context=16), corpus=WORDS)
    plain = validation_loss(run.model, run.data)
    with without_head(run.model, 0, 1):
        assert found["heads"]["rise"][0][1] == validation_loss(run.model, run.data) - plain
    inputs, _ = run.data.validation(64, 16)
    previous = weights(run.model, inputs, 0)[:, 1].diagonal(-1, 1, 2).mean().item()
    assert found["heads"]["previous"][0][1] == pytest.approx(previous, rel=1e-5)
    assert {"as it is", "window"} == set(found["by_ratio"])
    assert {"extensions", "clamped", "offsets"} < set(found)
    mean = by_distance(run.model, inputs)[0].mean(dim=(0, 1))
    assert np.sum(found["by_plane"], axis=0) == pytest.approx(mean.tolist(), abs=1e-6)
    parts = found["copied"]
    whole = parts["share"] * parts["inside"] + (1 - parts["share"]) * parts["outside"]
    assert whole == pytest.approx(found["loss"])
    kept, read = (WORDS.decode(part) for part in (WORDS.validation, WORDS.training))
    starts = [at for at in range(len(kept) - 31) if kept[at : at + 32] in read]
    copied = sorted({at + step for at in starts for step in range(32)})
    last = (len(kept) - 1) // 16 * 16
    windows = [WORDS.validation[at : last + at].view(-1, 16) for at in (0, 1)]
    loss = token_losses(run.model, *windows).flatten()  # place t holds that of character t + 1
    expected = np.mean([loss[at - 1].item() for at in copied if 1 <= at <= last])
    assert parts["inside"] == pytest.approx(expected, rel=1e-5)
    _, found = entry(second, replace(TEXT, context=16, position="learned"), corpus=WORDS)
    assert set(found["by_ratio"]) == {"as it is"} and "extensions" not in found
    _, found = entry(second, replace(second.SHUFFLED, context=16), corpus=WORDS)
    assert np.shape(found["score"]) == (2, 2, 16)
    _, found = entry(second, replace(second.LONGEST, context=32), corpus=WORDS)
    assert set(found) == {"loss"}
    _, found = entry(second, second.RECALLED)
    assert len(found["right"]) == len(found["right, window"]) and len(found["by_distance"]) == 32
    assert found["right"][:5] == found["right, window"][:5]
    run, found = entry(second, second.LOOKUP)
    assert found["right"]["as it is"] == [second.answered(run.model, run.data, d) for d in (9, 201)]
    assert set(found["right"]) == {"as it is", *EXTENSIONS}
    _, found = entry(second, replace(second.LOOKUP, position="learned"))
    assert found["right"]["as it is"][1] is None


@pytest.mark.usefixtures("sizes")
def test_each_kind_of_run_of_the_third_plan_is_measured():
    run, found = entry(third, replace(TEXT, context=16), corpus=WORDS)
    plain = validation_loss(run.model, run.data)
    for name, draw in (("last", None), ("random", 0)):
        assert found["replaced"][name]["none"]["within"] == pytest.approx(plain, rel=1e-6)
        with clamped(run.model, range(4), 8, draw=draw):
            loss = validation_loss(run.model, run.data)
        assert found["replaced"][name]["all"]["within"] == loss
    inputs, _ = run.data.validation(64, 16)
    score = by_distance(run.model, inputs)[0]
    assert found["score"][1][0] == pytest.approx(
        [score[1, 0, :2].mean().item(), score[1, 0, 2:].mean().item()]
    )
    assert not hasattr(run.model, "profile")
    _, found = entry(third, replace(TEXT, context=16, position="none"), corpus=WORDS)
    assert set(found) == {"loss", "score", "position_share"}
    _, found = entry(third, third.CODE_SHORT, corpus=WORDS)
    assert set(found) == {"loss"}
    _, found = entry(third, third.EXACT)
    assert len(found["by_distance"]) == 32
    run, found = entry(third, third.EVEN)
    assert found["right"] == [second.answered(run.model, run.data, d) for d in (9, 201)]


def test_each_planes_part_of_the_scores():
    """With one plane turning and the others silent, its part is the whole score."""
    run = train(small(replace(TEXT, context=16)), corpus=WORDS, progress=False)
    inputs, _ = run.data.validation(4, 16)
    found = by_plane(run.model, inputs)
    for plane in range(4):
        with erased(run.model, [j for j in range(4) if j != plane]):
            alone = diagonal_means(scores(run.model, inputs, 0))  # of the first layer
        torch.testing.assert_close(found[plane, 0], alone)


def test_lookups_are_counted_as_by_hand():
    run = train(small(second.LOOKUP), progress=False)
    inputs, targets = run.data.far(second.SEQUENCES, 31)
    with torch.no_grad():
        guess = run.model(inputs).argmax(-1)
    asked = list(map(tuple, (targets != IGNORED).nonzero().tolist()))
    right = sum(bool(guess[place] == targets[place]) for place in asked)
    assert second.answered(run.model, run.data, 31) == pytest.approx(right / len(asked))


def test_even_lookups_ask_equally_often_from_each_distance():
    """Within four standard deviations of the mean count, at each distance that four names have."""
    data, counts = EvenLookupData(replace(third.EVEN, batch=64)), np.zeros(128, dtype=int)
    for step in range(8):
        inputs, targets = data.training(step)
        for row, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
            for place, symbol in enumerate(wanted):
                if symbol != IGNORED:
                    statement = SYMBOLS * (row[place] - SYMBOLS * NAMES) + symbol
                    [told] = [at for at in range(place) if row[at] == statement]
                    counts[place - told] += 1
    assert not counts[::2].any()
    even = counts[1 : 128 - NAMES + 2 : 2]
    assert np.abs(even - even.mean()).max() < 4 * np.sqrt(even.mean())
    assert (counts[128 - NAMES + 3 :: 2] < 0.9 * even.mean()).all()


def test_a_profile_is_trained_with_the_weights(monkeypatch):
    """It starts at the one forced on the model, and one step moves it as far as T5's numbers."""
    monkeypatch.setattr(third, "ADJUSTING_STEPS", 1)
    monkeypatch.setattr(third, "PROFILE_WINDOWS", 4)
    run = train(small(replace(TEXT, context=16)), corpus=WORDS, progress=False)
    seen = []
    monkeypatch.setattr(
        third, "profiled", lambda *given: seen.append(given) or second.profiled(*given)
    )
    third.profile_trained(run)
    (_, before, _), (after, same, learned) = seen
    assert before is same and learned.shape == before.shape == (2, 2, 16)
    rate = third.adjusted.__globals__["ADJUSTING_RATE"] / 5  # the first of five steps of warm-up
    assert learned.abs().max().item() == pytest.approx(rate, rel=0.01)
    assert learned is after.get_parameter("profile") and learned.requires_grad


def test_an_exact_bias_has_one_number_a_distance():
    exact = T5Exact(small(third.EXACT))
    exact.numbers.weight.data = torch.arange(128.0)[:, None].expand(-1, 2)
    at = torch.arange(128)
    distance = (at[:, None] - at).clamp(min=0)
    assert torch.equal(exact(at).bias, 4.0 * distance.expand(2, -1, -1))  # sqrt(E), E = 16
    with pytest.raises(IndexError):
        exact(torch.arange(129))
