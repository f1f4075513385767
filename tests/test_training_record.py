"""The sweep and its record: measured rightly, resumed after a stop, read with honest intervals."""

import json
import math

import pytest
import torch
from scipy import stats

from rope.measuring.intervals import T_95
from rope.training import Experiment, train
from rope.training import sweep as sweep_module
from rope.training.corpus import corpus_of, load_corpus
from rope.training.data import IGNORED, SYMBOLS
from rope.training.defects import DEFECTS
from rope.training.inside import erased, frozen
from rope.training.lengths import (
    OFFSETS,
    by_distance,
    by_position,
    edges,
    extended,
    extensions_of,
    shifted,
    tuned,
)
from rope.training.loop import token_losses, validation_loss
from rope.training.measure import SHORT_WINDOWS, measure
from rope.training.plan import PLAN, RECALL, SEEDS, TEXT, experiments
from rope.training.results import interval, recorded, runs, steps_to, trained
from rope.training.sweep import keep

TINY = dict(layers=1, width=16, heads=2, context=16, batch=8, steps=3, warmup=1, evaluate_every=2)


def tiny(**changed):
    return train(Experiment(**{**TINY, **changed}), progress=False)


def test_loss_by_position_is_the_mean_over_the_tokens_of_each_bin():
    run = tiny()
    found = by_position(run.model, run.data, 3)
    inputs, targets = run.data.validation(3, 256)
    losses = token_losses(run.model, inputs, targets)
    assert found["edges"] == edges(16) and found["edges"][-1] == 256
    for low, high, loss in zip(found["edges"], found["edges"][1:], found["loss"], strict=False):
        assert loss == pytest.approx(losses[:, low:high].mean().item(), rel=1e-5)


def test_prefixes_change_nothing_where_the_spectrum_is_one():
    run = tiny()
    whole, prefixes = (by_position(run.model, run.data, 2, prefixes=on) for on in (False, True))
    assert prefixes["loss"] == pytest.approx(whole["loss"], rel=1e-5)


def test_prefixes_let_a_dynamic_spectrum_follow_each_length():
    run = tiny()
    with torch.no_grad():  # scores that a turn can move: three steps leave them near zero
        run.model.blocks[0].attention.project.weight.mul_(100)
    dynamic = extensions_of(run.model.experiment)["dynamic"]
    plain = by_position(run.model, run.data, 2)
    with extended(run.model, dynamic):
        followed = by_position(run.model, run.data, 2, prefixes=True)
    inside = [high <= 16 for high in followed["edges"][1:]]
    for known, before, after in zip(inside, plain["loss"], followed["loss"], strict=True):
        assert (before == pytest.approx(after, rel=1e-5)) == known


def test_learned_vectors_end_with_the_trained_context():
    run = tiny(position="learned")
    found = by_position(run.model, run.data, 2)
    assert [loss is None for loss in found["loss"]] == [high > 16 for high in found["edges"][1:]]


def test_a_shift_of_all_positions_changes_nothing_for_rotations_and_much_for_sinusoids():
    rotary, sinusoidal = (tiny(position=name) for name in ("rope", "sinusoidal"))
    losses = shifted(rotary.model, rotary.data, 4)
    assert len(losses) == len(OFFSETS)
    # A table entry is within 2^-25 of its value, a score within a few of those.
    assert max(losses) - min(losses) < 1e-5
    moved = shifted(sinusoidal.model, sinusoidal.data, 4)
    assert max(moved) - min(moved) > 100 * (max(losses) - min(losses))


def test_answers_by_distance_are_counted_as_by_hand():
    run = tiny(task="recall", context=64)
    found = by_distance(run.model, run.data, 12)
    inputs, targets = run.data.validation(12, 64)
    with torch.no_grad():
        guesses = run.model(inputs).argmax(-1)
    for d in (1, 3, 9):
        asked = [
            (row, at)
            for row in range(12)
            for at in range(64)
            if inputs[row, at] == SYMBOLS + d - 1 and targets[row, at] != IGNORED
        ]
        right = sum(bool(guesses[place] == targets[place]) for place in asked)
        assert found["accuracy"][d - 1] == pytest.approx(right / len(asked))
    far = (inputs == SYMBOLS + 31) & (targets != IGNORED)
    assert (found["accuracy"][31] is None) == (not far.any())


def test_an_extension_is_taken_back_and_refused_where_nothing_turns():
    run = tiny()
    inputs, targets = run.data.validation(2, 16)
    before = token_losses(run.model, inputs, targets)
    with extended(run.model, extensions_of(run.model.experiment)["ntk"]):
        assert not torch.equal(token_losses(run.model, inputs, targets), before)
    with pytest.raises(KeyError), extended(run.model, extensions_of(run.model.experiment)["ntk"]):
        raise KeyError
    assert torch.equal(token_losses(run.model, inputs, targets), before)
    with (
        pytest.raises(TypeError, match="'alibi'; an extension changes the frequencies"),
        extended(tiny(position="alibi").model, extensions_of(TEXT)["ntk"]),
    ):
        pass


def test_tuning_leaves_the_trained_model_as_it_is():
    run = tiny()
    before = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    after = tuned(run, extensions_of(run.model.experiment)["yarn"])
    assert all(torch.equal(weight, before[name]) for name, weight in run.model.state_dict().items())
    assert not torch.equal(after.embedding.weight, run.model.embedding.weight)


def test_tuning_draws_batches_that_training_did_not(monkeypatch):
    seeds = []
    monkeypatch.setattr(
        "rope.training.lengths.training_step", lambda *given: seeds.append(given[2].experiment.seed)
    )
    tuned(tiny(), extensions_of(TEXT)["yarn"])
    assert len(set(seeds)) == 1 and seeds[0] not in SEEDS


def test_a_thorough_entry_has_what_the_chapters_read(monkeypatch):
    monkeypatch.setattr("rope.training.lengths.TUNED_STEPS", 1)
    run = tiny(width=32, heads=1)
    entry = measure(run, thoroughly=True)
    plain = validation_loss(run.model, run.data, SHORT_WINDOWS)
    assert entry["defects"]["none"] == plain and set(DEFECTS) < set(entry["defects"])
    for name, change in (("frozen", frozen), ("erased", erased)):
        with change(run.model, [3]):
            found = validation_loss(run.model, run.data, SHORT_WINDOWS) - plain
        assert entry["inside"][name][3] == found
        with change(run.model, range(4, 8)):
            found = validation_loss(run.model, run.data, SHORT_WINDOWS) - plain
        assert entry["inside"][f"{name}_bands"][1] == found
    assert entry["extensions"]["default"]["loss"] == entry["by_position"]["loss"]
    assert set(entry["extensions"]) == set(extensions_of(run.model.experiment))
    assert len(entry["shifted"]["loss"]["exact"]) == len(entry["shifted"]["offset"])


def test_an_unfinished_run_is_not_loaded(tmp_path):
    train(Experiment(**TINY), folder=tmp_path, progress=False)
    kept = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    torch.save(kept | {"step": 2}, tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match="stands at step 2; it must have gone 3"):
        sweep_module.load(tmp_path)


def test_intervals_are_those_of_student():
    assert pytest.approx([stats.t.ppf(0.975, n) for n in range(1, 11)], abs=5e-4) == T_95
    values = [1.5, 1.6, 1.55, 1.7, 1.52]
    found = interval(values)
    low, high = stats.t.interval(0.95, 4, loc=sum(values) / 5, scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-4)
    with pytest.raises(ValueError, match="values has 1 numbers"):
        interval([1.0])


def test_steps_to_a_loss_lie_between_looks():
    curve = {"step": [0, 10, 20], "loss": [3.0, 2.0, 1.0]}
    assert [steps_to(curve, loss) for loss in (3.5, 2.5, 1.0, 0.9)] == [0.0, 5.0, 20.0, None]


@pytest.fixture
def small_plan(monkeypatch):
    wanted = [Experiment(**TINY, seed=seed) for seed in (0, 1)]
    monkeypatch.setattr(sweep_module, "experiments", lambda parts: wanted)
    return wanted


def test_a_sweep_goes_on_where_it_was_stopped(tmp_path, small_plan, monkeypatch):
    output, folder = tmp_path / "sweep.json", tmp_path / "runs"
    first = sweep_module.measured(small_plan[0], folder)  # what an earlier sweep got done
    kept = sweep_module.run_folder(small_plan[0], folder) / "measured.json"
    written = kept.stat().st_mtime_ns
    record = sweep_module.sweep(output, folder, parts=["live"], workers=1)
    assert kept.stat().st_mtime_ns == written
    assert record["runs"][0] == first
    assert json.loads(output.read_text()) == record
    assert record["metadata"]["corpus"]["sha256"] == load_corpus().sha256
    assert [run["experiment"]["seed"] for run in record["runs"]] == [0, 1]


def test_a_sweep_refuses_a_part_that_the_plan_has_not(tmp_path):
    with pytest.raises(ValueError, match="parts holds 'bases'; the plan has positions"):
        sweep_module.sweep(tmp_path / "a.json", tmp_path, parts=["bases"])


def test_the_record_holds_the_plan_and_no_run_twice():
    assert recorded()["metadata"]["command"] == "python -m rope.training sweep"
    held = [Experiment(**run["experiment"]).key() for run in recorded()["runs"]]
    assert held == [experiment.key() for experiment in experiments()]
    for part in PLAN:
        seeds = {experiment.seed for experiment in PLAN[part]}
        assert seeds == ({0} if part == "rate" else set(SEEDS))


def test_every_recorded_number_is_finite():
    def numbers(value):
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for entry in value:
                yield from numbers(entry)
        elif isinstance(value, float):
            yield value

    assert all(math.isfinite(number) for number in numbers(recorded()["runs"]))


def test_runs_are_found_by_their_fields():
    assert len(runs(position="t5")) == len(runs(RECALL, position="t5")) == len(SEEDS)
    with pytest.raises(TypeError):
        runs(colour="blue")
    with pytest.raises(ValueError, match="no recorded run"):
        runs(steps=301)


def test_the_kept_model_reads_as_well_as_the_recorded_one():
    kept = trained()
    loss = token_losses(kept.model, kept.inputs, kept.targets).mean().item()
    assert loss == pytest.approx(runs(position="rope")[0]["loss"], abs=0.1)
    assert kept.model.experiment == TEXT


def test_a_kept_model_is_the_finished_run_in_float16(tmp_path, monkeypatch):
    experiment = Experiment(**TINY)
    run = train(experiment, folder=tmp_path / "run", progress=False)
    keep(tmp_path / "run", tmp_path / "rope.pt", windows=4)
    monkeypatch.setattr("rope.training.results.RECORDED", tmp_path)
    kept = trained()
    for name, weight in run.model.state_dict().items():
        assert torch.equal(kept.model.state_dict()[name], weight.half().float())
    inputs, _ = run.data.validation(4, 16)
    assert torch.equal(kept.inputs, inputs)
    assert kept.corpus.decode(inputs[0]) == load_corpus().decode(inputs[0])


def test_validation_loss_is_the_mean_over_all_tokens_whatever_the_batch():
    corpus = corpus_of("the quick brown fox jumps over the lazy dog. " * 40)
    run = train(Experiment(**TINY), corpus=corpus, progress=False)
    inputs, targets = run.data.validation(5, 16)
    expected = token_losses(run.model, inputs, targets).mean().item()
    assert validation_loss(run.model, run.data, 5) == pytest.approx(expected, rel=1e-5)
