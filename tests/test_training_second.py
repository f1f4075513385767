"""The second plan: its runs, what is measured of each, and its record."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import lines

from rope.book.training import Experiment, library, second, train
from rope.book.training import sweep as sweep_module
from rope.book.training.corpus import corpus_of
from rope.book.training.data import IGNORED
from rope.book.training.experiment import TEXT
from rope.book.training.inside import by_distance, by_plane, frozen, weights
from rope.book.training.lengths import EXTENSIONS
from rope.book.training.loop import validation_loss
from rope.book.training.reading import without_head
from rope.book.training.results import RECORDED, recorded, runs

pytestmark = pytest.mark.usefixtures("one_thread")


FOX = "the quick brown fox jumps over the lazy dog. "
WORDS = corpus_of(FOX * 120 + lines(370, 0))  # its last tenth, 36 windows of 16, is in part new


# The plan and its record.


def small(experiment):
    sizes = dict(layers=2, width=16, heads=2, batch=4, steps=2, warmup=1)
    return replace(experiment, **sizes)


def test_each_kind_of_run_is_measured(monkeypatch):
    """By what its numbers are elsewhere; the sizes cut, so that nothing takes long."""
    monkeypatch.setattr(second, "FAR", (9, 201))
    monkeypatch.setattr(second, "SEQUENCES", 4)
    monkeypatch.setattr(second, "LONG_SEQUENCES", 1)
    monkeypatch.setattr(second, "TEXT", replace(TEXT, context=16))
    monkeypatch.setattr(second, "ADJUSTING_STEPS", 1)
    monkeypatch.setattr(second, "PROFILE_WINDOWS", 4)

    def entry(experiment, **keywords):
        run = train(small(experiment), progress=False, **keywords)
        return run, json.loads(json.dumps(second.measure(run)))

    run, found = entry(replace(TEXT, context=16), corpus=WORDS)
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
    _, found = entry(replace(TEXT, context=16, position="learned"), corpus=WORDS)
    assert set(found["by_ratio"]) == {"as it is"} and "extensions" not in found
    _, found = entry(replace(second.SHUFFLED, context=16), corpus=WORDS)
    assert np.shape(found["score"]) == (2, 2, 16)
    _, found = entry(replace(second.LONGEST, context=32), corpus=WORDS)
    assert set(found) == {"loss"}
    _, found = entry(second.RECALLED)
    assert len(found["right"]) == len(found["right, window"]) and len(found["by_distance"]) == 32
    assert found["right"][:5] == found["right, window"][:5]
    run, found = entry(second.LOOKUP)
    assert found["right"]["as it is"] == [second.answered(run.model, run.data, d) for d in (9, 201)]
    assert set(found["right"]) == {"as it is", *EXTENSIONS}
    _, found = entry(replace(second.LOOKUP, position="learned"))
    assert found["right"]["as it is"][1] is None


def test_each_planes_part_of_the_scores():
    """Where one plane alone turns, each part is that of a model in which the others are silent."""
    run = train(small(replace(TEXT, context=16)), corpus=WORDS, progress=False)
    inputs, _ = run.data.validation(4, 16)
    model = run.model
    with frozen(model, [0, 2, 3]):
        parts = by_plane(model, inputs)
    with frozen(model, range(4)):
        still = by_plane(model, inputs)
    torch.testing.assert_close(parts[[0, 2, 3], 0], still[[0, 2, 3], 0])  # of the first layer
    assert not torch.allclose(parts[1, 0], still[1, 0], atol=1e-4)


def test_lookups_are_counted_as_by_hand():
    run = train(small(second.LOOKUP), progress=False)
    inputs, targets = run.data.far(second.SEQUENCES, 31)
    with torch.no_grad():
        guess = run.model(inputs).argmax(-1)
    asked = list(map(tuple, (targets != IGNORED).nonzero().tolist()))
    right = sum(bool(guess[place] == targets[place]) for place in asked)
    assert second.answered(run.model, run.data, 31) == pytest.approx(right / len(asked))


def test_a_second_sweep_keeps_commit_and_files(tmp_path, monkeypatch):
    """And refuses another Python's library in a sentence."""
    output = tmp_path / "second.json"
    tiny = small(replace(second.RECALLED, context=64))
    monkeypatch.setitem(sweep_module.PLANS, "second", (tiny,))
    monkeypatch.setattr(sweep_module.second, "SEQUENCES", 2)
    files = {f"{i}.py": lines(100, i) for i in range(20)}
    monkeypatch.setattr(sweep_module, "library_files", lambda: files)
    monkeypatch.setattr(sweep_module, "load_library", lambda: library.split(files))
    record = sweep_module.sweep(output, workers=1, plan="second")
    [run] = record["runs"]
    assert Experiment(**run["experiment"]) == tiny and run["commit"]
    assert record["files"] == dict.fromkeys(files, 100)
    assert record["metadata"]["library"]["files"] == 20
    files["a.py"] = "x" * 100
    with pytest.raises(
        ValueError, match=r"was made with library .*, and here it is .*; one record"
    ):
        sweep_module.sweep(output, plan="second")


def test_the_second_record_holds_its_plan():
    text = (RECORDED / "second.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == recorded("second")  # all finite
    assert recorded("second")["metadata"]["command"].endswith("sweep --plan second")
    made = [Experiment(**run["experiment"]) for run in recorded("second")["runs"]]
    assert made == list(second.SECOND)
    assert len(set(second.SECOND)) == len(second.SECOND)
    assert sum(path.stat().st_size for path in RECORDED.glob("*.json")) < 2**20
    found = runs(second.LONGEST, plan="second", position="none")
    assert [run["experiment"]["seed"] for run in found] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="no recorded run of the first plan"):
        runs(second.LONGEST)
