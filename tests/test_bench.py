"""Test what the benchmark times, which failures it names, and how it measures."""

import json
import math
from dataclasses import replace

import pytest
import torch

from rope import rotary_embedding
from rope.book.measured import meters
from rope.book.measured.baselines import BASELINES, Baseline
from rope.book.measured.bench import __main__ as program
from rope.book.measured.bench import cases, report, suites
from rope.book.measured.bench.cases import PREFILL, TRAINING, Case

CPU = torch.device("cpu")
SMALL = Case(2, 4, 2, 16, 8)
BRIEF = {"rounds": 2, "seconds": 0}


def planted(name, rotate, package="torch", **keywords):
    """Return a baseline that calls rotate(x, tables) for q and for k."""
    return Baseline(
        name, package, lambda tables: lambda *qk: tuple(rotate(x, tables) for x in qk), **keywords
    )


def right(x, tables):
    return rotary_embedding(x, tables.cos, tables.sin, interleaved=tables.case.interleaved)


def fail_when_called(x, tables):
    raise RuntimeError("no memory\nat line 2")


@pytest.fixture
def few(monkeypatch):
    """Give the command planted baselines and two small cases; return the cases."""
    pair = SMALL, replace(SMALL, seq=8)
    monkeypatch.setattr(cases, "full", lambda device: pair)
    monkeypatch.setattr(suites, "FULL", BRIEF)
    chosen = (
        planted("rope", right),
        planted("slanted", lambda x, tables: right(x, tables) * (1 + 2**-18)),
        planted("breaking", fail_when_called),
        planted("elsewhere", right, devices=("cuda",)),
        Baseline("failing", "torch", {}.__getitem__),
        planted("missing", right, package="no-such-package"),
    )
    monkeypatch.setattr(program, "BASELINES", chosen)
    return pair


def test_a_run_times_the_right_ones_and_names_the_others(tmp_path, few):
    path = tmp_path / "out.json"
    assert program.main(["--device", "cpu", "--output", str(path)]) == 0
    written = json.loads(path.read_text(), parse_constant=pytest.fail)  # no NaN
    assert [Case(**entry["case"]) for entry in written["cases"]] == list(few)
    for entry in written["cases"]:
        assert set(entry["times"]) == {"copy", "rope"}
        assert all(line["median"] > 0 for line in entry["times"].values())
        not_timed = entry["not timed"]
        assert not_timed.pop("slanted").startswith("q: off by ")
        assert not_timed.pop("failing").startswith("KeyError: ")
        assert not_timed == {
            "breaking": "RuntimeError: no memory",
            "elsewhere": "does not support cpu",
        }
    about = written["metadata"]
    assert torch.__version__.startswith(about["versions"]["torch"])  # maybe with a build suffix
    assert {"commit", "cpu", "device", "effort", "platform", "python", "rope"} <= set(about)
    assert str(tmp_path) not in path.read_text()


WRONG = {
    "q: off by": (SMALL, lambda x, t: rotary_embedding(x, t.cos, t.sin, interleaved=True)),
    "k: off by": (SMALL, lambda x, t: right(x, t) if x.shape[1] == 4 else x.clone()),
    "off by inf": (SMALL, lambda x, t: right(x, t) * torch.nan),
    "is torch.float64 [2, 4, 16, 8], not torch.float32": (SMALL, lambda x, t: right(x, t).double()),
}


@pytest.mark.parametrize("complaint", WRONG)
def test_a_wrong_baseline_is_not_timed(complaint):
    case, rotate = WRONG[complaint]
    entry = suites.measure(case, [planted("wrong", rotate)], CPU, BRIEF)
    assert complaint in entry["not timed"]["wrong"] and set(entry["times"]) == {"copy"}


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_every_baseline_here_is_right_or_unsupported(dtype, interleaved):
    """Check the real transformers package."""
    pytest.importorskip("transformers")
    chosen = [one for one in BASELINES if "cpu" in one.devices and "compiled" not in one.name]
    for seq in (1, 70):
        case = Case(2, 4, 2, seq, 64, dtype, interleaved)
        entry = suites.measure(case, chosen, CPU, BRIEF)
        unsupported = {one.name for one in chosen if one.unsupported(case, CPU)}
        assert set(entry["not timed"]) == unsupported, entry["not timed"]
        names = {one.name for one in chosen} - unsupported
        assert names | {"copy"} == set(entry["times"]) and "rope" in names


def test_decoding_names_the_ways_that_fail(monkeypatch):
    monkeypatch.setattr(suites, "compiled", lambda call: call)
    entry, names = suites.measure_decoding(2, CPU, BRIEF), ("copy", "rope", "formula")
    assert set(entry["seconds"]) == {f"{n}, {way}" for n in names for way in ("eager", "compiled")}
    assert set(entry["not timed"]) == {f"{name}, graph" for name in names}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_grids_are_distinct_ordered_and_fit_in_memory(device):
    grid = cases.full(device)
    assert len({case.name for case in grid}) == len(set(grid)) == len(grid)
    assert all(Case(**case.changes) == case for case in grid)
    # The inputs, a copy, a result, and three temporaries of the same size from transformers.
    assert max(case.bytes // 2 for case in cases.full("cpu")) * 6 < 4e9


def test_calls_take_turns_and_a_failure_stops_only_its_call():
    order = []

    def call(name):
        def one():
            order.append(name)
            if name == "c" and order.count("c") > 2:
                raise RuntimeError("late")

        return one

    calls = {name: call(name) for name in "abc"}
    times, failed = meters.time_all(calls, CPU, rounds=8, seconds=0)
    assert {name: len(taken) for name, taken in times.items()} == {"a": 8, "b": 8}
    assert str(failed["c"]) == "late" and order.count("c") == 3
    rounds = [order[at : at + 4] for at in range(len(order) - 20, len(order), 4)]
    assert all(sorted(one) == ["a", "a", "b", "b"] for one in rounds)  # warmed up, then timed
    assert len({one[0] for one in rounds}) == 2  # both calls go first in some rounds


def test_ratios_are_within_a_case():
    medians = {"copy": 1.0, "rope": 1.1, "Liger": 4.0}
    lines = {name: {"median": value} for name, value in medians.items()}
    record = {"cases": [{"case": c.changes, "times": lines} for c in (PREFILL, TRAINING)]}
    assert report.ratio(record, TRAINING, "copy", over="Liger") == 0.25
    assert report.ratio(record, PREFILL, "rope") == 1.1
    assert math.isnan(report.ratio(record, TRAINING, "flash-attn"))
