"""What the cost measurements count; the seconds themselves are nobody's to test."""

import json

import pytest
import torch
from strategies import normal, tolerance
from torch.utils.flop_counter import FlopCounterMode

from rope.attention.linear import linear_attention_quadratic
from rope.bench.timing import Effort
from rope.frequencies import inverse_frequencies, rotary_tables
from rope.training import POSITIONS, Experiment, cost
from rope.training.corpus import corpus_of
from rope.training.data import data_for

CPU = torch.device("cpu")
SWIFT = Effort(rounds=2, most=2, seconds=0.0, sample=0.0)
CORPUS = corpus_of("the cat sat on the mat, " * 40)


pytestmark = pytest.mark.usefixtures("one_thread")


def experiment(**changes):
    return Experiment(**dict(layers=1, width=16, heads=2, context=16, batch=2, steps=9) | changes)


def test_every_way_is_timed_as_often():
    seconds = cost.step_seconds(
        [experiment(position=name) for name in POSITIONS], repeats=3, corpus=CORPUS
    )
    assert list(seconds) == [f"text-{name}-softmax-16-s0" for name in POSITIONS]
    assert all(len(taken) == 3 and min(taken) > 0 for taken in seconds.values())
    assert json.loads(json.dumps(seconds)) == seconds


def test_steps_take_turns_and_the_first_are_not_timed(monkeypatch):
    calls, clock = [], iter(range(1000))

    def step(model, optimizer, data, experiment, number):
        calls.append((experiment.seed, number))
        return 0.0

    monkeypatch.setattr(cost, "training_step", step)
    monkeypatch.setattr(cost.time, "perf_counter", lambda: float(next(clock)))
    found = cost.step_seconds([experiment(seed=s) for s in (0, 1)], repeats=5, corpus=CORPUS)
    assert list(found.values()) == [[1.0] * 5] * 2
    rounds = [calls[start : start + 2] for start in range(0, len(calls), 2)]
    assert len(rounds) == cost.UNTIMED + 5
    for number, pair in enumerate(rounds, start=1):
        assert sorted(pair) == [(0, number), (1, number)]
    assert len({pair[0][0] for pair in rounds}) == 2  # neither goes first each time


def test_what_cannot_be_timed_is_refused():
    with pytest.raises(ValueError, match="two experiments are named 'text-rope-softmax-16-s0'"):
        cost.step_seconds([experiment(), experiment(base=100.0)], corpus=CORPUS)
    with pytest.raises(ValueError, match="repeats is 0; it must be at least 1"):
        cost.step_seconds([experiment()], repeats=0, corpus=CORPUS)
    for name in ("batch", "heads"):
        with pytest.raises(ValueError, match=f"{name} is 0; it must be at least 1"):
            cost.attention_cost([8], **{name: 0})
    with pytest.raises(ValueError, match="length is 0; it must be at least 1"):
        cost.attention_cost([8, 0])
    with pytest.raises(ValueError, match="dim is 7; it must be even"):
        cost.attention_cost([8], head_dim=7)


def test_the_attentions_are_what_their_names_say():
    q, k, v = normal((3, 2, 2, 70, 8), seed=0)  # more than a chunk of the linear one
    tables = rotary_tables(70, inverse_frequencies(8), dtype=torch.float64)
    found = {name: attend(q, k, v, *tables) for name, attend in cost.ATTENTIONS.items()}
    # Sums of 8 and of up to 70 products, of values below 5.
    allowed = tolerance(torch.float64, scale=5, operations=200)
    for name, expected in (
        ("softmax by matrix", torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True
        )),
        ("softmax fused", found["softmax by matrix"]),
        ("linear", linear_attention_quadratic(q, k, v, *tables, rotate=False)),
        ("linear rotated", linear_attention_quadratic(q, k, v, *tables)),
    ):  # fmt: skip
        torch.testing.assert_close(found[name], expected, rtol=0, atol=allowed)
    assert not torch.allclose(found["linear"], found["linear rotated"])


def test_the_table_of_costs():
    found = cost.attention_cost([16, 32, 64], batch=2, heads=1, head_dim=8, effort=SWIFT)
    assert found["lengths"] == [16, 32, 64]
    assert (found["batch"], found["heads"], found["head_dim"]) == (2, 1, 8)
    for quantity in ("seconds", "lower", "upper", "memory"):
        assert list(found[quantity]) == list(cost.ATTENTIONS)
        assert all(len(line) == 3 for line in found[quantity].values())
    for name in cost.ATTENTIONS:
        quartiles = (found[quantity][name] for quantity in ("lower", "seconds", "upper"))
        assert all(0 < a <= b <= c for a, b, c in zip(*quartiles, strict=True))
        # Three gradients of [2, 1, S, 8] in float32 at the least.
        for held, length in zip(found["memory"][name], found["lengths"], strict=True):
            assert held >= 3 * 4 * 2 * 8 * length
    assert json.loads(json.dumps(found)) == found


def test_a_failure_is_an_entry_without_numbers(monkeypatch):
    def fail(*inputs):
        raise MemoryError("no room")

    monkeypatch.setitem(cost.ATTENTIONS, "softmax by matrix", fail)
    found = cost.attention_cost([16], heads=1, head_dim=8, effort=SWIFT)
    for quantity in ("seconds", "lower", "upper", "memory"):
        assert found[quantity]["softmax by matrix"] == [None]
        assert found[quantity]["linear"][0] > 0


def test_the_record_has_both(monkeypatch):
    monkeypatch.setattr(cost, "Experiment", experiment)
    monkeypatch.setattr(cost, "data_for", lambda made, _: data_for(made, CORPUS))
    monkeypatch.setattr(cost.attention_cost, "__defaults__", ((8, 16),))
    found = cost.costs(repeats=2, effort=SWIFT)
    assert found["threads"] == 1 and list(found["step"]) == list(POSITIONS)
    assert all(len(taken) == 2 for taken in found["step"].values())
    assert found["attention"]["lengths"] == [8, 16]


def flops(call):
    with FlopCounterMode(display=False) as counter:
        call(0)
    return counter.get_total_flops()


def test_matmuls_grow_with_the_length_or_with_its_square():
    at = {s: cost.attention_calls((1, 2, s, 16), CPU) for s in (128, 256, 384)}
    counted = {name: [flops(at[s][name]) for s in at] for name in cost.ATTENTIONS}
    for name in ("linear", "linear rotated"):
        a, b, c = counted[name]
        assert c - b == b - a > 0  # the first and the last chunk lack a product in the backward
    # Six products of 2 B H S^2 D: two forward, four backward.
    assert counted["softmax by matrix"] == [6 * 2 * 2 * s**2 * 16 for s in at]


def test_memory_grows_with_the_length_or_with_its_square():
    found = cost.attention_cost([256, 512, 1024], heads=1, head_dim=16, effort=SWIFT)["memory"]
    for name, low, high in (
        ("linear", 1.9, 2.1),
        ("linear rotated", 1.9, 2.1),
        ("softmax by matrix", 3.8, 4.0),
    ):
        a, b, c = found[name]
        assert low < b / a < high and low < c / b < high, name
    assert found["softmax fused"][-1] < found["softmax by matrix"][-1] / 8
