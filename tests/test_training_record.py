"""Test the training record: its measurements, a resumed sweep, and the plans of its runs."""

import json
from concurrent.futures import Future
from dataclasses import asdict

import pytest
import torch
from small_models import plain_logits

from rope.book.measured.record import write
from rope.book.training import Experiment, load_corpus, train
from rope.book.training import sweep as sweep_module
from rope.book.training.experiment import PLAN, SEEDS, TEXT
from rope.book.training.lengths import (
    OFFSETS,
    by_position,
    edges,
    shifted,
)
from rope.book.training.loop import token_losses, validation_loss
from rope.book.training.results import FILES, RECORDED, recorded, runs, trained
from rope.book.training.second import SECOND
from rope.book.training.sweep import sweep
from rope.book.training.third import EVEN, THIRD

TINY = dict(layers=1, width=16, heads=2, context=16, batch=8, steps=3, warmup=1, evaluate_every=2)

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


def test_learned_vectors_end_with_the_trained_context():
    run = tiny(position="learned")
    found = by_position(run.model, run.data, 2)
    assert [loss is None for loss in found["loss"]] == [high > 16 for high in found["edges"][1:]]


def test_a_shift_of_all_positions_moves_sinusoids_and_no_rotations():
    rotary, sinusoidal = (tiny(position=name) for name in ("rope", "sinusoidal"))
    # A table entry has an error of at most 2^-25, and a score has a few times that error.
    plain = validation_loss(rotary.model, rotary.data, 4)
    assert shifted(rotary.model, rotary.data, 4) == pytest.approx([plain] * len(OFFSETS), abs=1e-5)
    inputs, targets = sinusoidal.data.validation(4, 16)
    for offset, loss in zip(OFFSETS, shifted(sinusoidal.model, sinusoidal.data, 4), strict=True):
        logits = plain_logits(sinusoidal.model, inputs, torch.arange(16) + offset)
        exact = torch.nn.functional.cross_entropy(logits.mT, targets).item()
        assert loss == pytest.approx(exact, rel=1e-5)


class Serial:
    """An executor without processes, which runs each call when it is submitted."""

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
    """Check a sweep stopped by a diverging run, and that a restart keeps all earlier runs."""
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
    assert not weights.exists()  # only the run that the book reads is kept
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
