"""The record: each run measured rightly, resumed after a stop, and read; what a step costs."""

import json
from concurrent.futures import Future
from dataclasses import asdict
from unittest.mock import patch

import pytest
import torch
from small_models import plain_logits
from strategies import normal, tolerance
from torch.nn.functional import scaled_dot_product_attention

from rope import reference
from rope.attention.linear import linear_attention_quadratic
from rope.book.measured.record import write
from rope.book.training import Experiment, cost, load_corpus, train
from rope.book.training import sweep as sweep_module
from rope.book.training.corpus import corpus_of
from rope.book.training.data import IGNORED, SYMBOLS
from rope.book.training.defects import DEFECTS
from rope.book.training.experiment import PLAN, SEEDS, TEXT
from rope.book.training.inside import erased, frozen
from rope.book.training.lengths import (
    OFFSETS,
    by_distance,
    by_position,
    edges,
    extended,
    extensions_of,
    shifted,
    tuned,
)
from rope.book.training.loop import token_losses, validation_loss
from rope.book.training.results import FILES, RECORDED, recorded, runs, trained
from rope.book.training.second import SECOND
from rope.book.training.sweep import keep, measure, sweep
from rope.book.training.third import EVEN, THIRD
from rope.frequencies import inverse_frequencies, rotary_tables

TINY = dict(layers=1, width=16, heads=2, context=16, batch=8, steps=3, warmup=1, evaluate_every=2)
SHORT = corpus_of("the quick brown fox jumps over the lazy dog. " * 130)

pytestmark = pytest.mark.usefixtures("one_thread")


def tiny(corpus=None, **changed):
    return train(Experiment(**{**TINY, **changed}), corpus=corpus, progress=False)


def test_loss_by_position_is_the_mean_over_the_tokens_of_each_bin():
    run = tiny()
    found = by_position(run.model, run.data, 3)
    inputs, targets = run.data.validation(3, 256)
    losses = token_losses(run.model, inputs, targets)
    assert found["edges"] == edges(16) and found["edges"][-1] == 256
    for low, high, loss in zip(found["edges"], found["edges"][1:], found["loss"], strict=False):
        assert loss == pytest.approx(losses[:, low:high].mean().item(), rel=1e-5)


def test_prefixes_let_a_dynamic_spectrum_follow_each_length():
    """Each bin is read as a text that ends with it, by the frequencies of that length."""
    run = tiny()
    with torch.no_grad():  # scores that a rotation can move: three steps leave them near zero
        run.model.blocks[0].attention.project.weight.mul_(100)
    dynamic = extensions_of(run.model.experiment)["dynamic"]
    with extended(run.model, dynamic):
        found = by_position(run.model, run.data, 2, prefixes=True)
    inputs, targets = run.data.validation(2, 256)
    for low, high, loss in zip(found["edges"], found["edges"][1:], found["loss"], strict=False):
        factor = max(1.0, high / 16)  # of the base, with R = 8: arXiv 2309.00071
        base = 10000.0 * factor ** (8 / 6)
        theta = torch.from_numpy(reference.inverse_frequencies(8, base))
        with patch.object(run.model.positions, "frequencies", lambda *_, theta=theta: theta):
            plain = token_losses(run.model, inputs[:, :high], targets[:, :high])[:, low:]
        assert loss == pytest.approx(plain.mean().item(), rel=1e-5)


def test_learned_vectors_end_with_the_trained_context():
    run = tiny(position="learned")
    found = by_position(run.model, run.data, 2)
    assert [loss is None for loss in found["loss"]] == [high > 16 for high in found["edges"][1:]]


def test_a_shift_of_all_positions_moves_sinusoids_and_no_rotations():
    rotary, sinusoidal = (tiny(position=name) for name in ("rope", "sinusoidal"))
    # A table entry is within 2^-25 of its value, a score within a few of those.
    plain = validation_loss(rotary.model, rotary.data, 4)
    assert shifted(rotary.model, rotary.data, 4) == pytest.approx([plain] * len(OFFSETS), abs=1e-5)
    inputs, targets = sinusoidal.data.validation(4, 16)
    for offset, loss in zip(OFFSETS, shifted(sinusoidal.model, sinusoidal.data, 4), strict=True):
        logits = plain_logits(sinusoidal.model, inputs, torch.arange(16) + offset)
        exact = torch.nn.functional.cross_entropy(logits.mT, targets).item()
        assert loss == pytest.approx(exact, rel=1e-5)


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
        assert found[d - 1] == pytest.approx(right / len(asked))
    far = (inputs == SYMBOLS + 31) & (targets != IGNORED)
    assert (found[31] is None) == (not far.any())


def test_a_model_is_tuned_on_longer_windows_that_training_did_not_draw(monkeypatch):
    run, steps, yarn = tiny(), [], extensions_of(TEXT)["yarn"]

    def step(model, optimizer, data, experiment, number):
        steps.append((data.experiment.seed, experiment.context, model.positions.extension))

    monkeypatch.setattr("rope.book.training.loop.training_step", step)
    tuned(run, yarn)
    assert set(steps) == {(1000, 8 * 16, yarn)} and run.model.experiment.seed != 1000


def test_a_thorough_entry_has_what_the_chapters_read(monkeypatch):
    monkeypatch.setattr("rope.book.training.lengths.TUNED_STEPS", 1)
    run = tiny(SHORT, heads=1, batch=64)  # a text of two long windows, read in one batch
    entry = measure(run, thoroughly=True)
    plain = validation_loss(run.model, run.data)
    assert entry["defects"]["none"] == plain and set(DEFECTS) < set(entry["defects"])
    for name, change in (("frozen", frozen), ("erased", erased)):
        for key, number, planes in ((name, 3, [3]), (f"{name}_bands", 1, range(2, 4))):
            with change(run.model, planes):
                found = validation_loss(run.model, run.data) - plain
            assert entry["inside"][key][number] == found
    assert [len(entry["inside"][f"frozen{of}"]) for of in ("", "_bands")] == [8, 4]
    assert entry["extensions"]["default"]["loss"] == entry["by_position"]["loss"]
    assert set(entry["extensions"]) == set(extensions_of(run.model.experiment))
    assert entry["shifted"]["offset"] == list(OFFSETS)
    assert entry["shifted"]["loss"]["exact"] == shifted(run.model, run.data)
    assert {"bf16 tables", "float32 product"} < set(entry["shifted"]["loss"])


class Serial:
    """An executor without processes: each call is made where it is submitted."""

    def __init__(self, *_, **__):
        pass

    def submit(self, function, *arguments):
        future = Future()
        try:
            future.set_result(function(*arguments))
        except RuntimeError as error:
            future.set_exception(error)
        return future

    def shutdown(self, **_):
        pass


def test_a_sweep_goes_on_with_the_runs_that_are_missing(tmp_path, monkeypatch):
    """Stopped by a run that diverges; what an earlier one has measured is not measured again."""
    monkeypatch.setattr(sweep_module, "ProcessPoolExecutor", Serial)
    monkeypatch.setattr(sweep_module, "as_completed", list)  # in the order of the plan
    output = tmp_path / "sweep.json"
    marked, good, bad = (
        Experiment(**TINY, seed=seed, learning_rate=rate)
        for seed, rate in ((0, 1e-3), (1, 1e-3), (2, 1e30))
    )
    plan = [marked, good, bad]
    monkeypatch.setitem(sweep_module.PLANS, "first", plan)
    earlier = {"experiment": asdict(marked), "loss": -1.0}
    write(output, {"metadata": sweep_module.metadata(), "runs": [earlier]})
    with pytest.raises(RuntimeError, match="loss"):
        sweep(output)
    first, second = json.loads(output.read_text())["runs"]
    assert first == earlier and second["experiment"] == asdict(good)
    weights = tmp_path / "rope.pt"
    assert not weights.exists()  # of another run than the one that the book reads
    monkeypatch.setattr(sweep_module, "TEXT", good)
    again = sweep_module.run(good, weights) | {name: second[name] for name in ("commit", "cpu")}
    assert second == json.loads(json.dumps(again))
    assert weights.exists()

    plan.remove(bad)
    kept = output.read_bytes()
    record = sweep(output)
    assert record["runs"] == [first, second] and output.read_bytes() == kept
    assert record["metadata"]["corpus"]["sha256"] == load_corpus().sha256
    changed = record["metadata"] | {"python": "2.7"}
    write(output, {"metadata": changed, "runs": record["runs"]})
    with pytest.raises(ValueError, match=r"python.*2\.7"):
        sweep(output)


PLANS = {"first": PLAN, "second": SECOND, "third": THIRD}


@pytest.mark.parametrize("plan", PLANS)
def test_a_record_holds_its_plan_and_no_run_twice(plan):
    text = (RECORDED / FILES[plan]).read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == recorded(plan)  # every number is finite
    command = f"python -m rope.book.training sweep --plan {plan}".removesuffix(" --plan first")
    assert recorded(plan)["metadata"]["command"] == command
    made = [Experiment(**run["experiment"]) for run in recorded(plan)["runs"]]
    assert made == list(PLANS[plan]) and len(set(made)) == len(made)


def test_runs_are_found_by_their_fields():
    assert [run["experiment"]["seed"] for run in runs(position="t5")] == list(SEEDS)
    assert len(runs(EVEN, plan="third", base=100.0)) == 3
    with pytest.raises(ValueError, match=r"first.*301"):
        runs(steps=301)


def test_the_kept_model_reads_as_well_as_the_recorded_one():
    kept = trained()
    loss = token_losses(kept.model, kept.inputs, kept.targets).mean().item()
    assert loss == pytest.approx(runs(position="rope")[0]["loss"], abs=0.1)
    assert kept.model.experiment == TEXT


def test_a_kept_model_is_the_trained_one_in_float16(tmp_path, monkeypatch):
    run = tiny()
    keep(run, tmp_path / "rope.pt", windows=4)
    monkeypatch.setattr("rope.book.training.results.RECORDED", tmp_path)
    kept = trained()
    for name, weight in run.model.state_dict().items():
        assert torch.equal(kept.model.state_dict()[name], weight.half().float())
    inputs, _ = run.data.validation(4, 16)
    assert torch.equal(kept.inputs, inputs)
    assert kept.corpus.decode(inputs[0]) == load_corpus().decode(inputs[0])


# What it costs. The seconds themselves are nobody's to test.


def test_the_attentions_are_what_their_names_say():
    q, k, v = normal((3, 2, 2, 70, 8), seed=0)  # more than a chunk of the linear one
    tables = rotary_tables(70, inverse_frequencies(8), dtype=torch.float64)
    found = {name: attend(q, k, v, *tables) for name, attend in cost.ATTENTIONS.items()}
    # Sums of 8 and of up to 70 products, of values below 5.
    allowed = tolerance(torch.float64, scale=5, operations=200)
    for name, expected in (
        ("softmax by matrix", scaled_dot_product_attention(q, k, v, is_causal=True)),
        ("softmax fused", found["softmax by matrix"]),
        ("linear", linear_attention_quadratic(q, k, v, *tables, rotate=False)),
        ("linear rotated", linear_attention_quadratic(q, k, v, *tables)),
    ):
        torch.testing.assert_close(found[name], expected, rtol=0, atol=allowed)
