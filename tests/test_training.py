"""Training: its data, its loop, and that a run which is killed ends as if it had not been."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from strategies import tolerance
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR

from rope.training import Corpus, Experiment, load_corpus, train
from rope.training.corpus import corpus_of
from rope.training.data import FARTHEST, IGNORED, SYMBOLS, RecallData, TextData, data_for
from rope.training.decoder import Decoder
from rope.training.loop import (
    learning_rate,
    make_optimizer,
    token_losses,
    training_step,
    validation_loss,
)
from rope.training.plan import PLAN, experiments

CORPUS = corpus_of("".join(chr(97 + n * n % 23) for n in range(2000)))
SMALL = Experiment(
    layers=1, width=16, heads=2, context=16, batch=4, steps=17, warmup=3, evaluate_every=4
)


pytestmark = pytest.mark.usefixtures("one_thread")


def trained(experiment=SMALL, **keywords):
    corpus = CORPUS if experiment.task == "text" else None
    return train(experiment, corpus=corpus, progress=False, **keywords)


def timeless(metrics):
    return [{key: line[key] for key in line if key != "seconds"} for line in metrics]


def same(one, other):
    one, other = (run.model.state_dict() for run in (one, other))
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


# The experiment.


@pytest.mark.parametrize(
    ("field", "value", "error", "says"),
    [
        ("task", "translation", ValueError, "task is 'translation'; it must be one of text, rec"),
        ("position", "rotary", ValueError, "position is 'rotary'; it must be one of none, "),
        ("attention", "flash", ValueError, "attention is 'flash'; it must be one of softmax, lin"),
        *((name, 0, ValueError, f"{name} is 0; it must be at least 1")
          for name in ("layers", "width", "heads", "context", "batch", "steps", "evaluate_every")),
        *((name, -1, ValueError, f"{name} is -1; it must be at least 0")
          for name in ("warmup", "seed")),
        *((name, 2.0, TypeError, f"{name} is 2.0; it must be an integer")
          for name in ("layers", "width", "heads", "context", "batch", "steps", "evaluate_every",
                       "warmup", "seed")),
        ("learning_rate", 0.0, ValueError, "learning_rate is 0.0; it must be above 0"),
        ("learning_rate", math.nan, ValueError, "learning_rate is nan; it must be finite"),
        ("learning_rate", "1", TypeError, "learning_rate is '1'; it must be a real number"),
        ("weight_decay", -0.1, ValueError, "weight_decay is -0.1; it must be at least 0"),
        ("base", -1.0, ValueError, "base is -1; it must be positive"),
        ("base", "1e4", TypeError, "base is '1e4'; it must be a real number"),
        ("interleaved", 1, TypeError, "interleaved is 1; it must be True or False"),
        ("heads", 3, ValueError, "width is 128 for 3 heads; each head must get a multiple of 4"),
        ("width", 24, ValueError, "width is 24 for 4 heads; each head must get a multiple of 4"),
    ],
)  # fmt: skip
def test_what_no_run_could_be_made_of_is_refused(field, value, error, says):
    with pytest.raises(error) as raised:
        Experiment(**{field: value})
    assert str(raised.value).startswith(says)


@pytest.mark.parametrize("position", ["alibi", "t5", "xpos"])
def test_linear_attention_has_no_place_for_a_bias(position):
    with pytest.raises(ValueError, match=rf"position is '{position}' .* none, .* rope, partial$"):
        Experiment(position=position, attention="linear")


def test_the_key_differs_where_a_field_does():
    other = Experiment(
        "recall", "none", "linear", 2, 64, 2, 64, 8, 9, 1e-3, 5, 0.0, 100.0, True, 3, 1
    )
    made = [Experiment(), *(
        replace(Experiment(), **{field.name: getattr(other, field.name)})
        for field in fields(Experiment)
    )]  # fmt: skip
    assert len({experiment.key() for experiment in made}) == len(made) == 17
    assert Experiment(**json.loads(json.dumps(other.as_dict()))) == other
    assert replace(Experiment(), seed=7).key() == Experiment(seed=7).key()


def test_the_plan_has_each_run_once():
    every = experiments()
    assert len(every) == len({experiment.key() for experiment in every})
    assert set(every) == {experiment for part in PLAN.values() for experiment in part}
    assert len({f"{e.name}-{e.key()}" for e in every}) == len(every)


# The data.


def test_the_corpus_is_all_of_pydoc():
    topics = pytest.importorskip("pydoc_data.topics").topics
    corpus = load_corpus()
    text = "\n".join(topics[name] for name in sorted(topics))
    assert corpus.decode(torch.cat((corpus.training, corpus.validation))) == text
    assert len(corpus.validation) == len(text) // 10
    assert corpus.vocabulary == "".join(sorted(set(text)))


def test_encoding_is_undone_by_decoding():
    tokens = CORPUS.encode("abcba")
    assert tokens.dtype == torch.int64 and CORPUS.decode(tokens) == "abcba"
    empty = CORPUS.encode("")
    assert empty.dtype == torch.int64 and CORPUS.decode(empty) == ""
    with pytest.raises(ValueError, match=r"text holds 'é', which the corpus does not: "):
        CORPUS.encode("abécb")


def test_a_python_without_its_topics_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(RuntimeError, match=r"no pydoc_data\.topics, .*\.corpus_of\(text\)"):
        load_corpus.__wrapped__()


def test_too_little_text_is_refused():
    with pytest.raises(ValueError, match=r"the text has 19 characters; .* at least 20"):
        corpus_of("a" * 19)
    short = corpus_of("ab" * 50)
    with pytest.raises(ValueError, match=r"the training text has 90 characters; .* 90 of a seq"):
        TextData(replace(SMALL, context=90), short)
    with pytest.raises(ValueError, match=r"the validation text has 10 characters; .* 16 of a"):
        train(SMALL, corpus=short, progress=False)


def test_windows_are_text_and_the_text_one_further():
    data = TextData(replace(SMALL, batch=400), corpus_of("".join(map(chr, range(100, 160)))))
    inputs, targets = data.training(1)
    # Each character stands once, so that a window tells where it was cut.
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(16))
    assert torch.equal(targets, inputs + 1)
    assert inputs[:, 0].unique().tolist() == list(range(54 - 16))  # any that has a target
    inputs, targets = data.validation(2, 4)
    assert inputs.tolist() == [[54, 55, 56, 57], [55, 56, 57, 58]]
    assert torch.equal(targets, inputs + 1)


@pytest.mark.parametrize("task", ["text", "recall"])
def test_a_batch_follows_from_seed_and_step_alone(task):
    experiment = replace(SMALL, task=task, context=64)
    corpus = CORPUS if task == "text" else None
    first, again = (data_for(experiment, corpus) for _ in range(2))
    ahead = [again.training(step) for step in (5, 4, 3, 2, 1)][::-1]
    again.validation(3, 64)
    drawn = [first.training(step) for step in (1, 2, 3, 4, 5)]
    for one, other in zip(drawn, ahead, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert len({tuple(inputs.flatten().tolist()) for inputs, _ in drawn}) == 5
    other = data_for(replace(experiment, seed=1), corpus)
    assert not torch.equal(other.training(1)[0], drawn[0][0])
    for a, b in zip(other.validation(3, 64), first.validation(3, 64), strict=True):
        assert torch.equal(a, b)  # seeds are compared on the same text
    # The ways to know positions are compared on the same batches too.
    way = data_for(replace(experiment, position="alibi"), corpus)
    assert torch.equal(way.training(1)[0], drawn[0][0])


@pytest.mark.parametrize("length", [64, 65, 130])
def test_recall_answers(length):
    data = RecallData(replace(SMALL, task="recall", context=length))
    for inputs, targets in (data.training(1), data.validation(4, length)):
        assert inputs.shape == targets.shape == (4, length)
        for row, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
            for place, (token, answer) in enumerate(zip(row, wanted, strict=True)):
                if place % 2 == 0:
                    assert 0 <= token < SYMBOLS and answer == IGNORED
                    continue
                distance = token - SYMBOLS + 1
                assert 1 <= distance <= FARTHEST
                source = place - (2 * distance - 1)
                assert answer == (row[source] if source >= 0 else IGNORED)
    assert data.tokens == SYMBOLS + FARTHEST


def test_recall_needs_a_context_in_which_something_is_asked():
    # Shorter than two times the farthest, a batch may ask for nothing, and its loss is 0/0.
    with pytest.raises(ValueError, match="context is 16; "):
        train(replace(SMALL, task="recall"), progress=False)


# The loop.


@pytest.mark.parametrize(("warmup", "steps"), [(10, 100), (1, 7), (20, 5)])
def test_the_learning_rate_is_that_of_torch_s_schedules(warmup, steps):
    experiment = replace(SMALL, warmup=warmup, steps=steps)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=experiment.learning_rate)
    expected = []
    rise = LinearLR(optimizer, 1 / warmup, 1.0, max(1, warmup - 1))
    for _ in range(warmup):
        expected += rise.get_last_lr()
        optimizer.step(), rise.step()
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=experiment.learning_rate)
    if steps > warmup:
        fall = CosineAnnealingLR(optimizer, steps - warmup, experiment.learning_rate / 10)
        for _ in range(steps - warmup):
            optimizer.step(), fall.step()
            expected += fall.get_last_lr()
    ours = [learning_rate(experiment, step) for step in range(1, steps + 1)]
    if warmup == 1:
        expected[0] = experiment.learning_rate
    assert ours == pytest.approx(expected[:steps], rel=1e-12)  # float64; torch's is recursive
    assert learning_rate(replace(SMALL, warmup=0), SMALL.steps) == pytest.approx(3e-4)


def test_a_step_is_adamw_s():
    data = data_for(SMALL, CORPUS)
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


@pytest.mark.parametrize("task", ["text", "recall"])
def test_training_lowers_the_loss(task):
    run = trained(replace(SMALL, task=task, context=64, steps=60))
    losses = [line["loss"] for line in run.metrics]
    kinds = run.data.tokens
    # At the start nothing is known. In the recall task symbols alone are answers, 16 of 48 tokens.
    assert abs(losses[0] - math.log(kinds)) < 0.2
    assert losses[-1] < losses[0] - 0.5
    assert losses[-1] == validation_loss(run.model, run.data)


def test_looks_are_where_they_should_be():
    metrics = trained().metrics
    assert [line["step"] for line in metrics] == [0, 4, 8, 12, 16, 17]
    assert metrics[0]["training_loss"] is None and metrics[0]["seconds"] == 0
    seconds = [line["seconds"] for line in metrics]
    assert seconds == sorted(seconds)


def test_the_validation_loss_is_the_mean_over_what_is_asked():
    data = RecallData(replace(SMALL, task="recall", context=64))
    model = Decoder(data.experiment, data.tokens)
    inputs, targets = data.validation(6, 64)
    found = token_losses(model, inputs, targets)
    asked = targets != IGNORED
    assert bool((found[~asked] == 0).all())
    with torch.no_grad():
        exact = -model(inputs).double().log_softmax(-1)[asked].gather(-1, targets[asked][:, None])
    mean = pytest.approx(exact.mean().item(), rel=tolerance(torch.float32, operations=8))
    assert validation_loss(model, data, 6) == mean


def test_a_seed_gives_one_run():
    one, again, other = trained(), trained(), trained(replace(SMALL, seed=1))
    assert same(one, again) and timeless(one.metrics) == timeless(again.metrics)
    assert not same(one, other)
    assert all(a["loss"] != b["loss"] for a, b in zip(one.metrics, other.metrics, strict=True))


# What is kept.

CHILD = """
import io, sys
from pathlib import Path
import torch
from test_training import SMALL, trained

torch.set_num_threads(1)
save, saved = torch.save, []

def half(state, path):
    saved.append(state["step"])
    if len(saved) == 1:
        return save(state, path)
    whole = io.BytesIO()
    save(state, whole)
    path.write_bytes(whole.getvalue()[: whole.tell() // 2])
    print("writing", flush=True)
    sys.stdin.read()

if sys.argv[2] == "half":
    torch.save = half
trained(folder=Path(sys.argv[1]), every=5)
"""


def child(folder, how):
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )


def kept(folder):
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def test_a_killed_run_goes_on_and_ends_as_if_it_had_not_been(tmp_path):
    """Killed while it writes the checkpoint of step 10; that of step 5 is whole."""
    process = child(tmp_path / "run", "half")
    try:
        assert process.stdout.readline() == "writing\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert kept(tmp_path / "run")["step"] == 5
    with pytest.raises((OSError, RuntimeError)):  # the newer one is broken off
        torch.load(tmp_path / "run" / "checkpoint.new", weights_only=True)

    process = child(tmp_path / "run", "whole")
    unbroken = trained(folder=tmp_path / "unbroken", every=5)
    assert process.communicate()[1] is None and process.returncode == 0
    resumed, whole = kept(tmp_path / "run"), kept(tmp_path / "unbroken")
    assert resumed["step"] == whole["step"] == SMALL.steps
    assert timeless(resumed["metrics"]) == timeless(whole["metrics"])
    torch.testing.assert_close(resumed["model"], whole["model"], rtol=0, atol=0)
    states = resumed["optimizer"]["state"], whole["optimizer"]["state"]
    torch.testing.assert_close(*states, rtol=0, atol=0)
    assert resumed["optimizer"]["param_groups"] == whole["optimizer"]["param_groups"]
    lines = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("run", "unbroken")
    ]
    assert lines[0][0] == lines[1][0] == SMALL.as_dict()
    assert timeless(lines[0][1:]) == timeless(lines[1][1:]) == timeless(unbroken.metrics)
    seconds = [line["seconds"] for line in resumed["metrics"]]
    assert seconds == sorted(seconds)
    left = {path.name for path in (tmp_path / "run").iterdir()} - {"lock"}
    assert left == {"checkpoint.pt", "metrics.jsonl"}

    plain = trained()  # nor does keeping change anything
    for weights in (resumed["model"], whole["model"], unbroken.model.state_dict()):
        assert all(
            torch.equal(weights[key], value) for key, value in plain.model.state_dict().items()
        )


@pytest.fixture
def finished(tmp_path):
    return trained(folder=tmp_path / "whole"), tmp_path / "whole"


def test_a_finished_run_is_read_again(finished):
    run, folder = finished
    again = trained(folder=folder)
    assert same(run, again) and again.metrics == run.metrics


@pytest.mark.parametrize("writes", range(8))
def test_a_kill_at_any_write_leaves_the_same_files(tmp_path, monkeypatch, finished, writes):
    run, _ = finished
    replace_file, calls = os.replace, []

    def killing(*paths):
        calls.append(paths)
        if len(calls) > writes:
            raise KeyboardInterrupt
        replace_file(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killing)
        with pytest.raises(KeyboardInterrupt):
            trained(folder=tmp_path / "run", every=5)
    again = trained(folder=tmp_path / "run", every=5)
    assert same(again, run) and timeless(again.metrics) == timeless(run.metrics)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert timeless(map(json.loads, lines[1:])) == timeless(run.metrics)
    assert kept(tmp_path / "run")["step"] == SMALL.steps


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_half_a_checkpoint_is_refused(finished, share):
    _, folder = finished
    whole = (folder / "checkpoint.pt").read_bytes()
    (folder / "checkpoint.pt").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"checkpoint\.pt .*: "):
        trained(folder=folder)


def test_what_is_no_checkpoint_is_refused(tmp_path):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"hello")
    with pytest.raises(ValueError, match="broken"):
        trained(folder=tmp_path)
    torch.save({"model": 1}, path)
    with pytest.raises(ValueError, match="broken"):
        trained(folder=tmp_path)


def test_a_run_that_diverges_says_so():
    with pytest.raises(RuntimeError, match="it must be finite: lower learning_rate"):
        train(replace(SMALL, learning_rate=1e30), progress=False)


def test_a_corpus_for_the_recall_task_is_refused():
    with pytest.raises(ValueError, match="a corpus was passed with task 'recall'"):
        train(Experiment(task="recall"), corpus=corpus_of("abc" * 700))


def test_one_experiment_has_one_key():
    assert Experiment(base=10000, weight_decay=0).key() == Experiment(weight_decay=0.0).key()


def test_another_run_s_folder_is_refused(finished):
    run, folder = finished
    with pytest.raises(ValueError, match=r"holds the run of another experiment, .*: name another"):
        trained(replace(SMALL, seed=1), folder=folder)
    other = corpus_of("".join(chr(97 + n % 23) for n in range(2000)))
    assert isinstance(other, Corpus)
    for corpus in (other, corpus_of("abc" * 700)):  # as many characters, and fewer
        with pytest.raises(ValueError, match="corpus"):
            train(SMALL, corpus=corpus, folder=folder, progress=False)
    assert same(trained(folder=folder), run)


def test_a_run_of_another_version_is_refused(finished, monkeypatch):
    _, folder = finished
    monkeypatch.setattr("rope.training.checkpoint.VERSION", 2)
    with pytest.raises(ValueError, match="a run of version 1; this code trains version 2"):
        trained(folder=folder)


def test_a_folder_is_one_run_s_at_a_time_and_free_when_its_process_is_gone(tmp_path):
    pytest.importorskip("fcntl")
    code = (
        "import sys, pathlib\n"
        "from rope.training.checkpoint import alone\n"
        "with alone(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], **pipes) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match="is another run's just now"):
            trained(folder=tmp_path)
        other.kill()
        other.wait()
    assert trained(folder=tmp_path).metrics[-1]["step"] == SMALL.steps


def test_checkpoints_every_no_steps_are_refused(tmp_path):
    with pytest.raises(ValueError, match="every is 0; it must be at least 1"):
        trained(folder=tmp_path, every=0)


def test_a_bar_is_shown_when_asked_for(capsys):
    train(SMALL, corpus=CORPUS)
    shown = capsys.readouterr().err
    assert "text-rope-softmax-16-s0" in shown and "17/17" in shown
    trained()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "keywords",
    [
        pytest.param(dict(compiled=True), marks=pytest.mark.slow),
        pytest.param(
            dict(device="cuda"),
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
        ),
    ],
)
def test_elsewhere_the_losses_are_the_same(keywords):
    experiment = replace(SMALL, evaluate_every=1, steps=8)
    here, there = trained(experiment), trained(experiment, **keywords)
    for one, other in zip(here.metrics, there.metrics, strict=True):
        # Sums of up to 64 terms in another order; at this size training does not amplify it.
        allowed = tolerance(torch.float32, scale=one["loss"], operations=64)
        assert abs(one["loss"] - other["loss"]) <= allowed
