"""Test training: experiments, their data, the training loop, and the record of all runs."""

import json
import math
from dataclasses import asdict, replace

import pytest
import torch
from strategies import tolerance
from torch.nn.functional import cross_entropy

from rope.book.training import Decoder, Experiment, load_corpus, train
from rope.book.training.__main__ import repeated
from rope.book.training.corpus import corpus_of
from rope.book.training.data import (
    IGNORED,
    NAMES,
    SYMBOLS,
    LookupData,
    RecallData,
    TextData,
)
from rope.book.training.loop import (
    make_optimizer,
    training_step,
    validation_loss,
)
from rope.book.training.plans import EVEN
from rope.book.training.results import FILES, RECORDED, recorded, runs

CORPUS = corpus_of("".join(chr(97 + n * n % 23) for n in range(2000)))
SMALL = Experiment(
    layers=1, width=16, heads=2, context=16, batch=4, steps=17, warmup=3, evaluate_every=4
)

pytestmark = pytest.mark.usefixtures("one_thread")


def trained(experiment=SMALL):
    return train(experiment, corpus=CORPUS, progress=False)


# The experiment.


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(attention="sparse"), "attention.*sparse.*softmax"),
        *((dict(position=name, attention="linear"), f"position.*{name}.*linear")
          for name in ("alibi", "t5", "xpos")),
    ],
)  # fmt: skip
def test_an_experiment_that_cannot_run_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        Experiment(**changes)


def test_an_experiment_comes_back_from_its_record():
    other = Experiment("recall", "none", "linear", 2, 64, 2, 64, 8, 9, 1e-3, 5, 0.0, 100.0, 3, 1)
    assert Experiment(**json.loads(json.dumps(asdict(other)))) == other


# The data.


def test_the_corpus_is_all_of_pydoc():
    topics = pytest.importorskip("pydoc_data.topics").topics
    corpus = load_corpus()
    text = "\n".join(topics[name] for name in sorted(topics))
    assert corpus.decode(torch.cat((corpus.training, corpus.validation))) == text
    assert len(corpus.validation) == len(text) // 10
    assert corpus.vocabulary == "".join(sorted(set(text)))


def test_windows_are_text_and_the_text_one_further():
    data = TextData(replace(SMALL, batch=400), corpus_of("".join(map(chr, range(100, 160)))))
    inputs, targets = data.training(1)
    # Each character occurs once, so a window's characters show where it was cut.
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(16))
    assert torch.equal(targets, inputs + 1)
    assert inputs[:, 0].unique().tolist() == list(range(54 - 16))  # all that have a target
    inputs, targets = data.validation(2, 4)
    assert inputs.tolist() == [[54, 55, 56, 57], [55, 56, 57, 58]]
    assert torch.equal(targets, inputs + 1)


@pytest.mark.parametrize("made", [lambda e: TextData(e, CORPUS), RecallData])
def test_a_batch_follows_from_seed_and_step_alone(made):
    """Check steps in any order and another method; validation data must not depend on the seed."""
    experiment = replace(SMALL, context=64)
    first, again = made(experiment), made(replace(experiment, position="alibi"))
    ahead = [again.training(step) for step in (3, 2, 1)][::-1]
    again.validation(3, 64)
    for step, wanted in enumerate(ahead, 1):
        assert all(map(torch.equal, first.training(step), wanted))
    other = made(replace(experiment, seed=1))
    assert all(map(torch.equal, other.validation(3, 64), first.validation(3, 64)))
    drawn = [other.training(1), *map(first.training, range(1, 4))]  # no batch is drawn twice
    assert len({tuple(inputs.flatten().tolist()) for inputs, _ in drawn}) == 4


@pytest.mark.parametrize(("length", "questions"), [(64, 32), (65, 3)])
def test_recall_answers(length, questions):
    fields = dict(task="recall", context=length, batch=32, questions=questions)
    data = RecallData(replace(SMALL, **fields))
    for inputs, targets in (data.training(1), data.validation(32, length)):
        assert inputs.shape == targets.shape == (32, length)
        distances = inputs[:, 1::2] - SYMBOLS + 1
        assert distances.unique().tolist() == list(range(1, questions + 1))
        for row, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
            assert all(token < SYMBOLS for token in row[::2]) and set(wanted[::2]) == {IGNORED}
            for place in range(1, length, 2):
                source = place - (2 * (row[place] - SYMBOLS + 1) - 1)
                assert wanted[place] == (row[source] if source >= 0 else IGNORED)


def stated(tokens, at):
    """Return where the name asked for at `at` was stated before, and the set of its symbols."""
    name = tokens[at] - SYMBOLS * NAMES
    before = [n for n in range(0, at, 2) if tokens[n] // SYMBOLS == name]
    return before, {tokens[n] % SYMBOLS for n in before}


@pytest.mark.parametrize("length", [16, 17])
def test_lookups_are_answered_by_what_was_stated(length):
    data = LookupData(replace(SMALL, task="lookup", context=length))
    for inputs, targets in (data.training(1), data.validation(5, length)):
        assert inputs.shape == targets.shape and inputs.shape[1] == length
        for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
            assert all(token < SYMBOLS * NAMES for token in tokens[::2])
            assert set(wanted[::2]) == {IGNORED}
            for at in range(1, length, 2):
                assert SYMBOLS * NAMES <= tokens[at] < SYMBOLS * NAMES + NAMES
                assert (stated(tokens, at)[1] or {IGNORED}) == {wanted[at]}


@pytest.mark.parametrize("distance", [9, 101])
def test_far_answers_stand_exactly_so_far(distance):
    data = LookupData(replace(SMALL, task="lookup", context=16))
    inputs, targets = data.far(6, distance)
    assert inputs.shape[1] == distance + NAMES - 1
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        asked = [at for at, answer in enumerate(wanted) if answer != IGNORED]
        assert len(asked) == NAMES // 2
        for at in asked:
            before, symbols = stated(tokens, at)
            assert before == [at - distance] and symbols == {wanted[at]}


def test_a_task_that_only_a_record_holds_is_not_trained():
    with pytest.raises(ValueError, match=r"is 'code'.*only recorded"):
        train(Experiment(task="code"))


# The loop.


def test_a_step_is_adamw_s():
    data = TextData(SMALL, CORPUS)
    model = Decoder(SMALL, data.tokens)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    inputs, targets = data.training(1)
    loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    gradient = {name: weight.grad for name, weight in model.named_parameters()}
    found = training_step(model, make_optimizer(model, SMALL), data, SMALL, 1)
    assert found == pytest.approx(loss.item(), rel=1e-6)
    rate = SMALL.learning_rate / SMALL.warmup
    for name, weight in model.named_parameters():
        decay = rate * SMALL.weight_decay * before[name] if weight.dim() > 1 else 0.0
        step = before[name] - decay - weight.detach()  # in the first step rate g / (|g| + 1e-8)
        clear = gradient[name].abs() > 1e-6  # the 1e-8 is at most a hundredth of it
        assert clear.any()
        wanted = rate * gradient[name][clear].sign()
        allowed = tolerance(torch.float32, scale=before[name].abs().max().item())
        torch.testing.assert_close(step[clear], wanted, rtol=0.01, atol=allowed)


def test_training_lowers_the_loss_and_repeats_bit_for_bit():
    """Check that the loss starts at a guess's, falls, and is evaluated after the last step too."""
    run, again = trained(), trained()
    losses = [line["loss"] for line in run.metrics]
    assert [line["step"] for line in run.metrics] == [0, 4, 8, 12, 16, 17]
    assert abs(losses[0] - math.log(run.data.tokens)) < 0.2
    assert losses[-1] < losses[0] - 0.02
    assert losses[-1] == validation_loss(run.model, run.data)
    assert again.metrics == run.metrics
    state = again.model.state_dict()
    assert all(torch.equal(weight, state[key]) for key, weight in run.model.state_dict().items())


def test_the_validation_loss_is_the_mean_over_all_tokens():
    data = TextData(SMALL, CORPUS)
    model = Decoder(SMALL, data.tokens)
    inputs, targets = data.validation(6, 16)
    with torch.no_grad():
        exact = -model(inputs).double().log_softmax(-1).gather(-1, targets[..., None])
    mean = pytest.approx(exact.mean().item(), rel=tolerance(torch.float32, operations=8))
    assert validation_loss(model, data, 6) == mean


# The record.


@pytest.mark.parametrize("plan", FILES)
def test_a_record_holds_no_run_twice(plan):
    text = (RECORDED / FILES[plan]).read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == recorded(plan)  # every number is finite
    command = f"python -m rope.book.training sweep --plan {plan}".removesuffix(" --plan first")
    assert recorded(plan)["metadata"]["command"] == command
    made = [Experiment(**run["experiment"]) for run in recorded(plan)["runs"]]
    assert len(set(made)) == len(made)


def test_a_repeated_run_has_the_keys_of_its_entry_and_the_mean_of_its_positions():
    small = Experiment(layers=1, width=16, heads=2, context=16, batch=4, steps=4, warmup=2)
    run = {"experiment": asdict(small), "by_position": {"edges": [0, 4, 16]}}
    entry = repeated(run)
    trained = train(small, progress=False)
    assert entry["curve"]["loss"] == [line["loss"] for line in trained.metrics]
    near, far = entry["by_position"]["loss"]
    whole = repeated(run | {"by_position": {"edges": [0, 16]}})["by_position"]["loss"]
    assert whole == [pytest.approx(near / 4 + far * 3 / 4, rel=1e-12)]
    assert entry.keys() | {"text"} == recorded()["runs"][0].keys() | {"text", "by_position"}


def test_runs_are_found_by_their_fields():
    assert [run["experiment"]["seed"] for run in runs(position="t5")] == list(range(5))
    assert len(runs(EVEN, plan="third", base=100.0)) == 3
    with pytest.raises(ValueError, match=r"first.*301"):
        runs(steps=301)
