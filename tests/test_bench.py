"""The benchmark: what it refuses to time, what it never forgets to name, and how it counts."""

import json
import math
import time
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial

import pytest
import torch

from rope import reference, rotary_embedding
from rope.bench import (
    RECORDED,
    cases,
    check,
    measure,
    memory,
    record,
    recorded,
    report,
    timing,
)
from rope.bench import __main__ as program
from rope.bench.bars import bars, over_copy
from rope.bench.cases import CPU_BAR, DTYPES, GPU_BAR, STORAGES, Case
from rope.bench.competitors import Competitor, Ready, RefusedError, competitors, setting
from rope.bench.pace import NOT_ASKED, Pace, pace
from rope.bench.visits import best, finished
from rope.figures.speed import against_copy, by_length
from rope.measuring.traffic import Traffic

CPU = torch.device("cpu")
SMALL = Case("prefill", 2, 4, 2, 16, 8, 8, "float32")
SWIFT = timing.Effort(rounds=2, most=2, seconds=0.0, sample=0.0)
TWICE = replace(SWIFT, visits=2)


def planted(name, turn, package="torch", **keywords):
    """A competitor from turn(x, made) -> x'; its calls are counted in `.calls`."""
    calls = []

    def prepare(made):
        def rotate(q, k):
            calls.append(made.case.name)
            return turn(q, made), turn(k, made)

        return Ready(rotate)

    made = Competitor(name, package, prepare, **keywords)
    object.__setattr__(made, "calls", calls)
    return made


def entry_of(case, chosen):
    return finished([measure.visit(case, chosen, CPU, SWIFT)], NOT_ASKED)


def right(x, made):
    return rotary_embedding(x, made.cos, made.sin, interleaved=made.case.interleaved)


def refusing(made):
    raise RefusedError("refusing has no form for this")


def failing(made):
    raise OSError("first line\nsecond line")


def fail_when_called(x, made):
    raise RuntimeError("no memory")


def field():
    return (
        planted("rope eager", right),
        planted("slanted", lambda x, made: right(x, made) * (1 + 2**-20)),
        planted("missing", right, package="no-such-package"),
        planted("breaking", fail_when_called),
        Competitor("refusing", "torch", refusing),
        Competitor("failing", "torch", failing),
    )


@pytest.fixture
def few(monkeypatch):
    """The program with planted competitors and two small cases, each visited twice."""
    chosen = field()
    monkeypatch.setattr(program, "competitors", lambda: chosen)
    monkeypatch.setattr(program, "QUICK", TWICE)
    pair = SMALL, replace(SMALL, kind="training", direction="both")
    monkeypatch.setattr(cases, "quick", lambda device: pair)
    return {entry.name: entry for entry in chosen}


def test_a_run_names_everyone_and_times_the_right_ones(tmp_path, capsys, few):
    path, plot = tmp_path / "out.json", tmp_path / "out.svg"
    words = ["--quick", "--device", "cpu", "--output", str(path), "--plot", str(plot)]
    assert program.main(words) == 0
    assert {entry.name for entry in tmp_path.iterdir()} == {"out.json", "out.svg"}
    written = json.loads(path.read_text(), parse_constant=pytest.fail)  # no NaN
    assert [entry["name"] for entry in written["cases"]] == [c.name for c in cases.quick("cpu")]
    for entry in written["cases"]:
        lines = entry["competitors"]
        assert {name: line["status"] for name, line in lines.items()} == {
            "rope eager": "timed",
            "slanted": "wrong",
            "missing": "absent",
            "breaking": "failed",
            "refusing": "refused",
            "failing": "failed",
        }
        timed = lines["rope eager"]
        assert timed["lower"] <= timed["median"] <= timed["upper"] and timed["samples"] == 4
        assert len(timed["visits"]) == 2
        assert timed["peak"] >= entry["output"] and timed["of_allowed"] <= 1
        assert lines["slanted"]["why"].startswith("q: off by ")
        assert lines["missing"]["why"] == "no-such-package is not installed"
        assert lines["breaking"]["why"] == "RuntimeError: no memory"
        assert lines["failing"]["why"] == "OSError: first line"
        assert min(line["median"] for line in entry["copies"].values()) > 0
    assert len(few["slanted"].calls) == 4  # once a visit, by the check alone
    shown = capsys.readouterr().out
    assert all(name in shown for name in few) and "GB/s" in shown
    assert "missing, absent in 2 of 2 cases: no-such-package is not installed" in shown
    assert plot.read_text().startswith("<svg")

    about = written["metadata"]
    assert about["command"] == "python -m rope.bench --device cpu --quick"
    assert about["device"]["cpu"] and about["device"]["threads"] == torch.get_num_threads()
    assert about["versions"]["torch"] == torch.__version__
    assert about["versions"]["no-such-package"] == "absent"
    assert {"commit", "effort", "platform", "python"} <= set(about)
    assert str(tmp_path) not in path.read_text()


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys, few):
    path, real, stops = tmp_path / "out.json", measure.visit, [False, False, True]

    def visited(case, *others):
        seen.append(case.name)
        if stops and stops.pop(0):
            raise KeyboardInterrupt
        return real(case, *others)

    seen, words = [], ["--quick", "--device", "cpu", "--output", str(path)]
    monkeypatch.setattr(record, "visit", visited)
    assert program.main(words) == 130
    assert "run it again" in capsys.readouterr().err and not path.exists()
    first = json.loads(path.with_suffix(".partial.json").read_text())["done"]
    assert program.main(words) == 0
    one, two = (case.name for case in cases.quick("cpu"))
    assert seen == [one, two, one, one, two]  # every case once, before any for the second time
    entry = json.loads(path.read_text())["cases"][0]
    (kept,) = first[one]
    for line, taken in (
        (entry["copies"]["clone"], kept["copies"]["clone"]),
        (entry["competitors"]["rope eager"], kept["competitors"]["rope eager"]["taken"]),
    ):
        assert line["visits"][0] == pytest.approx(sum(taken["seconds"]) / 2, rel=1e-2)
    assert not path.with_suffix(".partial.json").exists()


def test_a_shorter_run_leaves_what_a_longer_one_has_done(tmp_path, monkeypatch, few):
    path, (one, two) = tmp_path / "out.json", cases.quick("cpu")
    run = partial(record.run, path, device=CPU, effort=SWIFT, command="x")
    chosen = [few["rope eager"]]

    def stopping(case, *others):
        if case is two:
            raise KeyboardInterrupt
        return measure.visit(case, *others)

    monkeypatch.setattr(record, "visit", stopping)
    with pytest.raises(KeyboardInterrupt):
        run([one, two], chosen)
    monkeypatch.setattr(record, "visit", measure.visit)
    run([two], chosen)
    kept = path.with_suffix(".partial.json")
    assert list(json.loads(kept.read_text())["done"]) == [one.name]
    before = len(chosen[0].calls)
    run([one], chosen)
    assert not kept.exists() and len(chosen[0].calls) == before


def test_new_pages_are_measured_before_any_are_kept(tmp_path, monkeypatch):
    grid = [SMALL, replace(SMALL, mode=cases.NEW_PAGES), replace(SMALL, seq=8)]
    seen = []
    monkeypatch.setattr(record, "settle_allocator", seen.append)
    path, chosen = tmp_path / "out.json", [planted("rope eager", right)]
    made = record.run(path, grid, chosen, device=CPU, effort=TWICE, command="x")
    assert seen == [memory.NEW] * 2 + [memory.KEPT] * 4
    assert [entry["name"] for entry in made["cases"]] == [case.name for case in grid]


def taken(*seconds, calls=1, pages=3):
    return {"calls": calls, "pages": [pages] * len(seconds), "seconds": list(seconds)}


def visits_of(*lines, looks=((1.0, 1.0),) * 2, name="a"):
    """One visit for each line of the competitor, and the same looks at the pace in each."""
    return [
        {"competitors": {name: line}, "copies": {"clone": line["taken"]}, "looks": looks}
        for line in lines
    ]


def timed(*seconds, **keywords):
    return {"status": "timed", "peak": sum(seconds), "taken": taken(*seconds), **keywords}


def test_visits_become_one_entry():
    entry = finished(visits_of(timed(1, 2), timed(6, 7)), (1.0, 1.0))
    line = entry["competitors"]["a"]
    assert (line["median"], line["lower"], line["upper"], line["any"]) == (4, 1.75, 6.25, 4)
    assert (line["visits"], line["samples"], line["new_pages"]) == ([1.5, 6.5], 4, 3)
    assert (line["peak"], line["status"]) == (13, "timed") and entry["copies"]["clone"] | {
        "peak": 13,
        "status": "timed",
    } == line
    assert entry["rounds"] == {"all": 4, "at full speed": 4} and "looks" not in entry


def test_slow_rounds_are_left_out_where_enough_are_left():
    two = visits_of(timed(1, 9, 2), timed(3, 8, 8))
    two[0]["looks"] = [(1.0, 1.0), (1.3, 1.0), (1.1, 1.1)]
    two[1]["looks"] = [(1.0, 1.19), (1.0, 1.3), (1.3, 1.3)]
    assert best(two) == (1.0, 1.0)
    entry = finished(two, best(two))
    line = entry["competitors"]["a"]
    assert (line["median"], line["samples"], line["any"]) == (2, 3, 5.5)
    assert line["visits"] == [1.5, 3] and entry["rounds"] == {"all": 6, "at full speed": 3}
    assert entry["copies"]["clone"]["median"] == 2
    two[1]["looks"][0] = (1.3, 1.0)  # two rounds are not enough
    entry = finished(two, best(two))
    assert entry["competitors"]["a"]["samples"] == 6 == entry["copies"]["clone"]["samples"]
    assert entry["rounds"]["at full speed"] == 2


def test_who_fails_in_one_visit_is_timed_by_the_others_and_who_is_wrong_in_none():
    lost = {"status": "failed", "why": "late", "taken": taken(5, 5)}
    wrong = {"status": "wrong", "why": "off", "taken": taken(5, 5)}
    for order in (1, -1):
        line = finished(visits_of(*[timed(1, 2), lost][::order]), NOT_ASKED)["competitors"]["a"]
        assert line["status"] == "timed" and line["lost"] == 1 and line["samples"] == 2
        assert finished(visits_of(*[timed(1, 2), wrong][::order]), NOT_ASKED)["competitors"] == {
            "a": wrong
        }
    assert finished(visits_of(lost, lost), NOT_ASKED)["competitors"]["a"] == lost


def test_a_graph_counts_if_it_could_be_replayed_in_every_visit():
    graphs = [timed(1, 2, graph=taken(1, 3), launches=1) for _ in range(2)]
    line = finished(visits_of(*graphs), NOT_ASKED)["competitors"]["a"]
    assert line["graph"]["median"] == 2 and line["launches"] == 1
    graphs[1]["graph_why"] = "no"
    line = finished(visits_of(*graphs), NOT_ASKED)["competitors"]["a"]
    assert finished(visits_of(timed(1, 2)), NOT_ASKED)["rounds"]["at full speed"] is None
    assert line["graph_why"] == "no" and not {"graph", "launches"} & set(line)


def test_only_the_same_program_is_resumed():
    about = record.metadata((), CPU, SWIFT, "one")
    assert record._program(about) == record._program(about | {"command": "two"})
    assert record._program(about) != record._program(about | {"commit": "another"})


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_truth_is_that_of_the_book(interleaved):
    case = replace(SMALL, interleaved=interleaved)
    made, x = setting(case, CPU), torch.randn(2, 4, 16, 8, dtype=torch.float64)
    ours = check.exact(x, made.angles, interleaved)
    inv_freq = reference.inverse_frequencies(8)
    theirs = reference.rotate_complex(
        x.numpy(), made.positions.numpy(), inv_freq, interleaved=interleaved
    )
    turned = check.planes(torch.from_numpy(theirs), interleaved)
    assert (ours - turned).abs().max() < 1e-14


class WrongGradient(torch.autograd.Function):
    """The rotation whose gradient is turned forwards."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return rotary_embedding(x, cos, sin)

    @staticmethod
    def backward(ctx, grad):
        return rotary_embedding(grad, *ctx.saved_tensors), None, None


PARTIAL = replace(SMALL, rotary_dim=4)
WRONG = {
    "q: off by": (SMALL, lambda x, m: rotary_embedding(x, m.cos, m.sin, interleaved=True)),
    "k: off by": (SMALL, lambda x, m: right(x, m) if x.shape[1] == 4 else x.clone()),
    "off by inf": (SMALL, lambda x, m: right(x, m) * torch.nan),
    "is torch.float64 [2, 4, 16, 8] for torch.float32": (SMALL, lambda x, m: right(x, m).double()),
    "not rotated were changed": (PARTIAL, lambda x, m: right(x, m) + (torch.arange(8) == 7)),
    "the gradient of q: off by": (
        replace(SMALL, kind="training", direction="both"),
        lambda x, m: WrongGradient.apply(x, m.cos, m.sin),
    ),
    "not in the memory of the input": (replace(SMALL, mode="in place"), right),
    "tensors were not filled": (replace(SMALL, mode="into a buffer"), right),
}


@pytest.mark.parametrize("complaint", WRONG)
def test_what_is_wrong_is_not_timed(complaint):
    case, turn = WRONG[complaint]
    entry = entry_of(case, [planted("wrong one", turn)])
    line = entry["competitors"]["wrong one"]
    assert line["status"] == "wrong" and complaint in line["why"]
    assert not {"median", "peak"} & set(line)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_table_in_a_half_format_passes_as_narrow_alone(dtype):
    case = replace(SMALL, dtype=dtype, seq=256)

    def narrow(x, made):
        tables = (made.cos.to(x.dtype), made.sin.to(x.dtype))
        return rotary_embedding(x, *tables)

    pair = planted("wide", narrow), planted("narrow", narrow, narrow=True)
    lines = entry_of(case, pair)["competitors"]
    assert [lines[name]["status"] for name in ("wide", "narrow")] == ["wrong", "timed"]


def test_writing_into_the_input_is_noted():
    def overwriting(x, made):
        return x.copy_(right(x, made))

    entry = entry_of(SMALL, [planted("one", overwriting)])
    line = entry["competitors"]["one"]
    assert line["status"] == "timed" and line["overwrites"]
    about = record.metadata((), CPU, SWIFT, "x")
    assert "overwrites its input" in report.table({"cases": [entry], "metadata": about})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_peers_are_right_where_they_do_not_refuse(dtype, interleaved):
    """transformers' and rotary-embedding-torch's own code, forward and backward."""
    names = ("transformers", "rotary-embedding-torch", "rotary-embedding-torch module")
    for name in {"transformers", "rotary_embedding_torch"}:
        pytest.importorskip(name)
    chosen = [entry for entry in competitors() if entry.name in names]
    for kind, seq in (("decode", 1), ("training", 70)):
        for width in (16, 64):
            for storage in STORAGES:
                case = Case(kind, 2, 4, 2, seq, 64, width, dtype, interleaved, storage=storage)
                grads = measure._inputs(case, CPU, seed=1)
                made, inputs = setting(case, CPU), measure._inputs(case, CPU)[0]
                for entry in chosen:
                    _, line = measure._prepared(entry, made, inputs, grads)
                    refuses = not interleaved and entry.name != "transformers"
                    assert line["status"] == ("refused" if refuses else "timed"), line
                    if refuses:
                        assert line["why"].endswith("has the interleaved layout alone")


def test_everyone_has_a_line_in_every_mode():
    """Here without a GPU, and with whatever is installed: no exception gets out."""
    chosen = [entry for entry in competitors() if "compile" not in entry.name]
    for mode in cases.MODES:
        entry = entry_of(replace(SMALL, mode=mode), chosen)
        assert list(entry["competitors"]) == [one.name for one in chosen]
        for name, line in entry["competitors"].items():
            assert line["status"] == "timed" or line["why"], name
        assert entry["competitors"]["rope eager"]["status"] == "timed"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_decoding_on_a_gpu_is_one_launch(tmp_path):
    path = tmp_path / "out.json"
    assert program.main(["--quick", "--only", "decode", "--output", str(path)]) == 0
    lines = json.loads(path.read_text())["cases"][0]["competitors"]
    assert lines["rope triton"]["launches"] == 1
    assert lines["rope triton"]["graph"]["median"] > 0


@pytest.mark.parametrize("case", [SMALL, replace(SMALL, dtype="bfloat16"), CPU_BAR])
def test_bytes_are_those_of_a_copy(case):
    dtype = getattr(torch, case.dtype)
    shapes = [(case.batch, heads, case.seq, case.head_dim) for heads in (case.heads, case.kv_heads)]
    q, k = (torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)
    with Traffic() as traffic:
        q.clone(), k.clone()
    assert traffic.read + traffic.written == case.bytes
    assert replace(case, kind="training", direction="both").bytes == 2 * case.bytes


def test_grids_name_each_case_once_and_fit_in_memory():
    for device in ("cpu", "cuda"):
        grid = cases.full(device)
        assert len({case.name for case in grid}) == len(grid)
        assert set(cases.bars(device)) <= set(grid)
        assert {case.kind for case in cases.quick(device)} == set(cases.KINDS)
        seqs = {case.seq for case in grid}
        assert min(seqs) == 1 and max(seqs) == 131072
        assert {case.head_dim for case in grid} == {64, 128, 256}
        assert {case.direction for case in grid} == set(cases.DIRECTIONS)
    # Inputs, a copy, a result and three as large beside it, as transformers has them.
    assert max(case.bytes // 2 for case in cases.full("cpu")) * 6 < 4e9


def test_cases_refuse_what_is_none():
    for changes, words in (
        ({"dtype": "int8"}, "dtype is 'int8'; it must be one of .*: pass 'float32'"),
        ({"seq": 0}, "the sizes are 2×4/2×0×8; each must be at least 1"),
        ({"rotary_dim": 7}, "rotary_dim is 7; it must be even, from 2 to head_dim 8: pass 8"),
        ({"mode": "in place", "direction": "both"}, "gradients are timed out of place"),
    ):
        with pytest.raises(ValueError, match=words):
            replace(SMALL, **changes)


def test_rounds_are_shared_and_a_failure_stops_one_alone():
    order = []

    def call(name):
        def run(turn):
            order.append(name)
            if name == "c" and len(order) > 12:
                raise RuntimeError("late")
            time.sleep(0.002 if name == "b" else 0)

        return run, nullcontext

    effort = timing.Effort(rounds=8, most=8, seconds=0.0, sample=0.0)
    found, failed = timing.time_all({name: call(name) for name in "abc"}, CPU, effort)
    assert set(found) == {"a", "b"} and str(failed["c"]) == "late"
    assert found["b"]["lower"] > found["a"]["upper"]
    rounds = [order[at : at + 2] for at in range(len(order) - 8, len(order), 2)]
    assert all(set(turn) == {"a", "b"} for turn in rounds)  # taking turns, in changing order
    assert len({tuple(turn) for turn in rounds}) == 2


def test_each_visit_has_orders_of_its_own():
    def orders(visit):
        order = []
        calls = {
            name: (lambda turn, name=name: order.append(name), nullcontext) for name in "abcdef"
        }
        timing.sample_all(calls, CPU, SWIFT, visit)
        return order

    assert orders(0) == orders(0) != orders(1)


class Moments(Pace):
    """A machine that is slow at the moments of a list, then fast."""

    def __init__(self, *moments):
        self.moments, self.least, self.in_vain = list(moments), (1.0, 1.0), 0

    def look(self):
        return (2.0 if self.moments and self.moments.pop(0) else 1.0), 1.0


def rounds_of(monkeypatch, moments, effort, device=CPU):
    """The numbers of the rounds that were recorded, as their times, and the looks around them."""
    begun = []
    asked = []
    monkeypatch.setattr(timing, "pace", lambda threads: asked.append(threads) or moments)
    monkeypatch.setattr(timing, "_sample", lambda call, count, device: call(0))
    calls = {"a": (lambda turn: begun.append(0) or float(len(begun)), nullcontext)}
    found = timing.sample_all(calls, device, effort)
    assert asked in ([], [torch.get_num_threads()])
    return [seconds - 3 for seconds in found.samples["a"]["seconds"]], found.looks


def test_a_visit_waits_for_full_speed(monkeypatch):
    patient = replace(SWIFT, patience=60.0)
    # Slow before, twice: no round. Fast before and slow after: a round that does not count.
    moments = Moments(True, True, False, True)
    numbers, looks = rounds_of(monkeypatch, moments, patient)
    assert numbers == [1, 2, 3] and [look[0] for look in looks] == [2.0, 1.0, 1.0]
    assert moments.in_vain == 0
    short = replace(SWIFT, patience=1e-9)
    for moments in (Moments(*[True] * 100), Moments(*[False, True] * 50)):
        numbers, looks = rounds_of(monkeypatch, moments, short)
        assert {look[0] for look in looks} == {2.0} and len(numbers) in (2, 3)
        assert moments.in_vain == 1
    moments.in_vain, moments.moments = 5, [True] * 100
    assert len(rounds_of(monkeypatch, moments, patient)[0]) == 2  # it is hopeless


def test_only_a_cpu_is_waited_for_and_only_if_asked(monkeypatch):
    for effort, device in ((SWIFT, CPU), (replace(SWIFT, patience=9.0), torch.device("meta"))):
        numbers, looks = rounds_of(monkeypatch, None, effort, device)
        assert numbers == [1, 2] and all(math.isnan(each) for look in looks for each in look)
    assert timing.REPEATED.visits == 3 and timing.REPEATED.patience
    assert timing.QUICK.visits == 1 and not timing.QUICK.patience


def test_full_speed_is_the_best_so_far(monkeypatch):
    monkeypatch.setattr("rope.bench.pace._WATCH", 0.0)
    machine = Pace(1)
    look = machine.look()
    assert all(0 < least <= seen for least, seen in zip(machine.least, look, strict=True))
    machine.least = (1.0, 1.0)
    assert machine.slow((1.21, 1.0)) and machine.slow((1.0, 1.21)) and not machine.slow((1.19,) * 2)
    assert max(machine.look()) < 1.0 and max(machine.least) < 1.0
    machine.waited(in_vain=True)
    assert machine.in_vain == 1 and pace(1) is pace(1)
    machine.waited(in_vain=False)
    assert machine.in_vain == 0 and machine.patience(8.0) == 8.0


def test_peak_memory_counts_what_is_held_at_once():
    x = torch.ones(100_000)
    size = 4 * x.numel()
    for call, expected in (
        (lambda: x.clone(), 1),
        (lambda: x.exp().exp(), 2),
        (lambda: x.exp().exp().exp().sum(), 2),
        (lambda: x.mul_(1.0), 0),
    ):
        assert memory.peak_memory(call, CPU) == pytest.approx(expected * size, abs=100)


def synthetic(device, times):
    """A record of all the bars' cases: seconds by competitor, of a copy that takes 1."""
    entries = []
    for case in cases.bars(device):
        many = 2 if case.direction == "both" else 1
        entries.append(
            {
                "bytes": case.bytes,
                "case": asdict(case),
                "competitors": {
                    name: {
                        "launches": 1,
                        "median": many * value,
                        "peak": case.bytes // 2,
                        "status": "timed",
                    }
                    for name, value in times.items()
                },
                "copies": {name: {"median": 1.0} for name in measure.COPIES},
                "rounds": {"all": 5, "at full speed": 4},
                "name": case.name,
                "output": case.bytes // 2,
            }
        )
    return {"cases": entries, "metadata": {"device": {"kind": device}}}


GOOD = {
    "cpu": {
        "rope eager": 1.2,
        "rope compile": 1.1,
        "transformers": 4.0,
        "rotary-embedding-torch": 9.0,
        "rotary-embedding-torch module": 6.5,
    },
    "cuda": {"rope triton": 1.05, "rope eager": 6.0, "Liger": 1.3, "flash-attn": 1.2},
}


@pytest.mark.parametrize(
    ("device", "changes", "missed"),
    [
        ("cpu", {}, 0),
        # over clone(), and over rotary-embedding-torch: 6.5 / 1.31 is 4.96
        ("cpu", {"rope eager": 1.31}, 4),
        # over clone(), in place and into a buffer, and over both peers: 4.0 / 1.6, 6.5 / 1.6
        ("cpu", {"rope compile": 1.6}, 12),
        ("cpu", {"rotary-embedding-torch module": 5.9}, 2),
        ("cpu", {"transformers": 1.1}, 9),
        ("cuda", {}, 0),
        ("cuda", {"rope triton": 1.1}, 4),
        ("cuda", {"Liger": 1.04}, 2),
    ],
)
def test_bars_are_judged_on_the_record(device, changes, missed):
    found = bars(synthetic(device, GOOD[device] | changes))
    assert all(bar.holds is not None for bar in found)
    wrong = [bar for bar in found if not bar.holds]
    assert len(wrong) == missed, [bar.sentence for bar in wrong]
    assert all(bar.where in {case.name for case in cases.bars(device)} for bar in found)


def test_bars_without_their_cases_are_not_judged():
    whole = synthetic("cpu", GOOD["cpu"])
    part = whole | {"cases": [entry for entry in whole["cases"] if "decode" in entry["name"]]}
    judged = [bar for bar in bars(part) if bar.holds is not None]
    assert [bar.bound for bar in judged] == [1.0] * 4
    for entry in whole["cases"]:
        entry["competitors"]["rope eager"] = {"status": "failed", "why": "x"}
    shown = report.verdicts(bars(whole))
    assert shown.count("not measured") == 20 and "see --bars" not in shown
    extra = synthetic("cpu", GOOD["cpu"])
    for entry in extra["cases"]:
        entry["competitors"]["rope eager"]["peak"] *= 1.06
    assert sum(bar.holds is False for bar in bars(extra)) == 4


def test_figures_say_their_numbers():
    made = synthetic("cuda", GOOD["cuda"])
    drawn = report.ratios(made, "training")
    assert "half, forward" in drawn and drawn["half, both"]["Liger"] == pytest.approx(1.3)
    alt = against_copy(drawn).alt
    assert "half, both: rope triton 1.1, flash-attn 1.2, Liger 1.3, rope eager 6." in alt
    lengths, curves = report.by_length(made, replace(GPU_BAR, kind="prefill", batch=1))
    assert lengths == [8192, 32768, 131072] and len(curves["Liger"]) == 3
    assert "flash-attn: 1.2 at 8,192, 1.2 at 131,072." in by_length(lengths, curves).alt
    with pytest.raises(ValueError, match="no times for this figure"):
        against_copy({})
    assert over_copy(made["cases"][0], "nobody") is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--only", "abacus"], "--only is 'abacus' and no case of the quick grid has it"),
        (["--threads", "0"], "--threads is 0; it must be at least 1"),
        (["--device", "cuda"], "--device is cuda and torch finds no such device"),
    ],
)
def test_the_command_refuses_in_a_sentence(words, sentence, capsys):
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(SystemExit) as stopped:
        program.main(["--quick", "--device", "cpu", *words])
    assert stopped.value.code == 2 and sentence in capsys.readouterr().err


def test_shipped_records_are_this_programs():
    with pytest.raises(ValueError, match="name is 'abacus'; it must be one of"):
        recorded("abacus")
    for path in RECORDED.glob("*.json"):
        found = recorded(path.stem)
        assert set(found) == {"cases", "metadata"}
        for entry in found["cases"]:
            assert Case(**entry["case"]).name == entry["name"]
            for name, line in entry["competitors"].items():
                assert line["status"] == "timed" or line["why"], name
        assert report.summary(found)
