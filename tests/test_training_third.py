"""The third plan: its runs, what is measured of each, and its record."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import lines

from rope.book.training import second, third, train
from rope.book.training.corpus import corpus_of
from rope.book.training.data import IGNORED, NAMES, SYMBOLS, EvenLookupData
from rope.book.training.experiment import TEXT, Experiment
from rope.book.training.inside import by_distance
from rope.book.training.loop import validation_loss
from rope.book.training.reading import clamped
from rope.book.training.results import RECORDED, recorded, runs

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = corpus_of("the quick brown fox jumps over the lazy dog. " * 120 + lines(370, 0))


def small(experiment, **changed):
    sizes = dict(layers=2, width=16, heads=2, batch=4, steps=2, warmup=1)
    return replace(experiment, **sizes | changed)


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


def test_each_kind_of_run_is_measured(monkeypatch):
    """By what its numbers are elsewhere; the sizes cut, so that nothing takes long."""
    monkeypatch.setattr(third, "FAR", (9, 201))
    monkeypatch.setattr(third, "SEQUENCES", 4)
    monkeypatch.setattr(third, "LONG_SEQUENCES", 1)
    monkeypatch.setattr(third, "ADJUSTING_STEPS", 1)
    monkeypatch.setattr(third, "PROFILE_WINDOWS", 4)
    monkeypatch.setattr(third, "RANGES", ((0, 2), (2, 16)))

    def entry(experiment, **keywords):
        run = train(small(experiment), progress=False, **keywords)
        return run, json.loads(json.dumps(third.measure(run)))

    run, found = entry(replace(TEXT, context=16), corpus=WORDS)
    plain = validation_loss(run.model, run.data)
    for name, draw in (("last", None), ("random", 0)):
        assert found["replaced"][name]["none"]["within"] == pytest.approx(plain, rel=1e-6)
        with clamped(run.model, range(4), 8, draw=draw):
            loss = validation_loss(run.model, run.data)
        assert found["replaced"][name]["all"]["within"] == loss != plain
    inputs, _ = run.data.validation(64, 16)
    score = by_distance(run.model, inputs)[0]
    assert found["score"][1][0] == pytest.approx(
        [score[1, 0, :2].mean().item(), score[1, 0, 2:].mean().item()]
    )
    assert not hasattr(run.model, "profile")
    _, found = entry(replace(TEXT, context=16, position="none"), corpus=WORDS)
    assert set(found) == {"loss", "score", "position_share"}
    _, found = entry(third.CODE_SHORT, corpus=WORDS)
    assert set(found) == {"loss"}
    _, found = entry(third.EXACT)
    assert len(found["by_distance"]) == 32
    run, found = entry(third.EVEN)
    assert found["right"] == [second.answered(run.model, run.data, d) for d in (9, 201)]


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


def test_one_number_a_distance_tells_those_apart_that_share_a_bucket():
    exact = train(small(third.EXACT), progress=False).model.positions
    exact.numbers.weight.data = torch.arange(128.0)[:, None].expand(-1, 2)
    bias = exact(torch.arange(128)).bias
    assert len(bias[0, -1].unique()) == 128 and exact.reach == 128
    assert torch.equal(bias[0, 100, 40], bias[0, 90, 30])
    with pytest.raises(IndexError):
        exact(torch.arange(129))


def test_the_third_record_holds_its_plan():
    text = (RECORDED / "third.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == recorded("third")  # all finite
    assert recorded("third")["metadata"]["command"].endswith("sweep --plan third")
    made = [Experiment(**run["experiment"]) for run in recorded("third")["runs"]]
    assert made == list(third.THIRD) and len(set(made)) == len(made)
    assert len(runs(third.EVEN, plan="third", base=100.0)) == 3
