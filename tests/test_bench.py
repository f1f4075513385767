"""The benchmark: what it refuses to time, what it never forgets to name, and how it counts."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from rope import reference, rotary_embedding
from rope.book.figures.on_the_gpu import LOOKS, by_length
from rope.book.measured import clock, programs
from rope.book.measured.bench import RECORDED, cases, check, memory, recorded, report, run
from rope.book.measured.bench import __main__ as program
from rope.book.measured.bench.cases import PREFILL, TRAINING, Case
from rope.book.measured.bench.field import FIELD, Competitor, setting
from rope.book.measured.traffic import Traffic

CPU = torch.device("cpu")
SMALL = Case(2, 4, 2, 16, 8)
SWIFT = {"rounds": 2, "seconds": 0}


def planted(name, rotate, package="torch", **keywords):
    """A competitor from rotate(x, made) -> x'."""
    return Competitor(
        name, package, lambda made: lambda q, k: (rotate(q, made), rotate(k, made)), **keywords
    )


def right(x, made):
    return rotary_embedding(x, made.cos, made.sin, interleaved=made.case.interleaved)


def fail_when_called(x, made):
    raise RuntimeError("no memory\nat line 2")


def fail_when_prepared(made):
    raise OSError("no file")


@pytest.fixture
def few(monkeypatch):
    """The program with planted competitors and two small cases."""
    monkeypatch.setattr(run, "settle_allocator", lambda pages: None)  # of this whole process
    pair = SMALL, replace(SMALL, mode="backward")
    monkeypatch.setattr(cases, "quick", lambda device: pair)
    monkeypatch.setattr(program, "QUICK", SWIFT)
    chosen = (
        planted("rope", right),
        planted("slanted", lambda x, made: right(x, made) * (1 + 2**-20)),
        planted("breaking", fail_when_called),
        planted("refusing", right, devices=("cuda",)),
        Competitor("failing", "torch", fail_when_prepared),
        planted("missing", right, package="no-such-package"),
    )
    monkeypatch.setattr(program, "FIELD", chosen)
    return pair


def test_a_run_names_everyone_and_times_the_right_ones(tmp_path, capsys, few):
    path = tmp_path / "out.json"
    assert program.main(["--quick", "--device", "cpu", "--output", str(path)]) == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]
    written = json.loads(path.read_text(), parse_constant=pytest.fail)  # no NaN
    assert [Case(**entry["case"]) for entry in written["cases"]] == list(few)
    for entry in written["cases"]:
        assert set(entry["times"]) == {"copy", "clone", "rope"}
        for line in entry["times"].values():
            assert 0 < line["lower"] <= line["median"] <= line["upper"]
        assert entry["times"]["rope"]["memory"] >= 1 == entry["times"]["clone"]["memory"]
        left_out = entry["not timed"]
        assert left_out.pop("slanted").startswith("q: off by ")
        assert left_out == {
            "breaking": "RuntimeError: no memory",
            "refusing": "no form for cpu",
            "failing": "OSError: no file",
        }
    about = written["metadata"]
    assert about["device"] == {"kind": "cpu", "threads": torch.get_num_threads()}
    assert torch.__version__.startswith(about["versions"]["torch"])  # with or without its build
    assert {"commit", "cpu", "effort", "platform", "python", "rope"} <= set(about)
    assert str(tmp_path) not in path.read_text()
    shown = capsys.readouterr().out
    assert "Not installed: no-such-package" in shown and "refusing: no form for cpu" in shown
    assert all(case.name in shown for case in few)


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys, few):
    """But not from what another program has measured."""
    path, real, seen = tmp_path / "out.json", run.measure, []
    other = {"program": "other", "done": {few[0].name: {}}}
    path.with_suffix(".partial.json").write_text(json.dumps(other))

    def stopping(case, *others):
        seen.append(case)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(case, *others)

    words = ["--quick", "--device", "cpu", "--output", str(path)]
    monkeypatch.setattr(run, "measure", stopping)
    assert program.main(words) == 130
    assert "run it again" in capsys.readouterr().err and not path.exists()
    kept = json.loads(path.with_suffix(".partial.json").read_text())["done"]
    assert program.main(words) == 0
    assert seen == [few[0], few[1], few[1]]
    assert json.loads(path.read_text())["cases"][0] == kept[few[0].name]
    assert not path.with_suffix(".partial.json").exists()


def test_new_pages_are_measured_before_any_are_kept(tmp_path, monkeypatch):
    grid, seen = [SMALL, replace(SMALL, pages="new"), replace(SMALL, seq=8)], []
    monkeypatch.setattr(run, "settle_allocator", seen.append)
    made = run.run(tmp_path / "out.json", grid, (), CPU, SWIFT)
    assert seen == ["new", "kept", "kept"]
    assert [Case(**entry["case"]) for entry in made["cases"]] == grid


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc alone can be told")
def test_new_pages_are_new_and_kept_ones_are_kept():
    """In a process of its own: the C library keeps its settings until the end."""
    code = (
        "import torch\n"
        "from rope.book.measured.bench.memory import page_faults, settle_allocator as settle\n"
        "x = torch.ones(1 << 18)\n"
        "for pages in ('new', 'kept'):\n"
        "    settle(pages)\n"
        "    print(min(page_faults(lambda: x.clone()) for _ in range(20)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    new, kept = map(int, found.stdout.split())
    assert kept < 3 and (new >= 256 or 0 < new <= 8)  # of 4 KiB, or of 2 MiB


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_truth_is_that_of_the_book(interleaved):
    case = replace(SMALL, interleaved=interleaved)
    made, x = setting(case, CPU), torch.randn(2, 4, 16, 8, dtype=torch.float64)
    truth = check.exact(x, made.angles, interleaved)
    expected = reference.rotate_complex(
        x.numpy(), range(16), reference.inverse_frequencies(8), interleaved=interleaved
    )
    rotated = check.planes(torch.from_numpy(expected), interleaved)
    assert (truth - rotated).abs().max() < 1e-14


class WrongGradient(torch.autograd.Function):
    """The rotation whose gradient is rotated forwards."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return rotary_embedding(x, cos, sin)

    @staticmethod
    def backward(ctx, grad):
        return rotary_embedding(grad, *ctx.saved_tensors), None, None


WRONG = {
    "q: off by": (SMALL, lambda x, m: rotary_embedding(x, m.cos, m.sin, interleaved=True)),
    "k: off by": (SMALL, lambda x, m: right(x, m) if x.shape[1] == 4 else x.clone()),
    "off by inf": (SMALL, lambda x, m: right(x, m) * torch.nan),
    "is torch.float64 [2, 4, 16, 8] for torch.float32": (SMALL, lambda x, m: right(x, m).double()),
    "the gradient of q: off by": (
        replace(SMALL, mode="backward"),
        lambda x, m: WrongGradient.apply(x, m.cos, m.sin),
    ),
    "not in the memory of the input": (replace(SMALL, mode="in place"), right),
}


@pytest.mark.parametrize("complaint", WRONG)
def test_what_is_wrong_is_not_timed(complaint):
    case, rotate = WRONG[complaint]
    entry = run.measure(case, [planted("wrong one", rotate)], CPU, SWIFT)
    assert complaint in entry["not timed"]["wrong one"] and set(entry["times"]) == {"copy", "clone"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_table_in_a_half_format_passes_as_narrow_alone(dtype):
    def narrow(x, made):
        return rotary_embedding(x, made.cos.to(x.dtype), made.sin.to(x.dtype))

    pair = planted("wide", narrow), planted("narrow", narrow, narrow="steps")
    entry = run.measure(replace(SMALL, dtype=dtype, seq=256), pair, CPU, SWIFT)
    assert "narrow" in entry["times"] and "off by" in entry["not timed"]["wide"]


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_everyone_here_is_right_or_has_no_form(dtype, interleaved):
    """Ours, transformers' and rotary-embedding-torch's own code, in every mode."""
    for package in ("transformers", "rotary_embedding_torch"):
        pytest.importorskip(package)
    chosen = [one for one in FIELD if "cpu" in one.devices and "compiled" not in one.name]
    for mode in cases.MODES:
        for seq, storage in ((1, cases.STORAGES[0]), (70, cases.STORAGES[1])):
            case = Case(2, 4, 2, seq, 64, dtype, interleaved, mode, storage=storage)
            entry = run.measure(case, chosen, CPU, SWIFT)
            refused = {one.name for one in chosen if one.refusal(case, CPU)}
            assert set(entry["not timed"]) == refused, entry["not timed"]
            names = {"rope"} if mode == "in place" else {"rope", "plain formula", "transformers"}
            names |= {"rope without a compiler"} if mode != "backward" else set()
            names |= {"rotary-embedding-torch"} if interleaved and mode != "in place" else set()
            assert names | {"copy", "clone"} == set(entry["times"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_quick_run_on_a_gpu(tmp_path):
    path = tmp_path / "out.json"
    assert program.main(["--quick", "--device", "cuda", "--output", str(path)]) == 0
    for entry in json.loads(path.read_text())["cases"]:
        assert {"rope", "copy", "clone"} <= set(entry["times"]), entry["not timed"]


@pytest.mark.parametrize("case", [SMALL, replace(SMALL, dtype="bfloat16"), PREFILL])
def test_bytes_are_those_of_a_copy(case):
    q, k = run.random_pair(case, CPU, seed=0)
    with Traffic() as traffic:
        q.clone(), k.clone()
    assert traffic.read + traffic.written == case.bytes


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_grids_name_each_case_once_and_fit_in_memory(device):
    grid = cases.full(device)
    assert len({case.name for case in grid}) == len(set(grid)) == len(grid)
    assert all(Case(**case.changes) == case for case in grid)
    assert {case.mode for case in cases.quick(device)} == set(cases.MODES)
    assert {1, 128, 512, 2048, 8192, 131072} <= {case.seq for case in grid}
    for case in (TRAINING,) if device == "cuda" else (PREFILL, replace(PREFILL, pages="new")):
        assert set(cases.variants(case, mode=("forward",))) <= set(grid)
    # Inputs, a copy, a result and three as large beside it, as transformers has them.
    assert max(case.bytes // 2 for case in cases.full("cpu")) * 6 < 4e9


def test_a_case_of_an_unknown_dtype_raises():
    with pytest.raises(ValueError, match=r"dtype.*'int8'"):
        replace(SMALL, dtype="int8")


def test_rounds_are_shared_and_a_failure_stops_one_alone():
    order = []

    def call(name):
        def one():
            order.append(name)
            if name == "c" and order.count("c") > 2:
                raise RuntimeError("late")

        return one

    found, failed = clock.time_all({name: call(name) for name in "abc"}, CPU, rounds=8, seconds=0)
    assert {name: len(taken) for name, taken in found.items()} == {"a": 8, "b": 8}
    assert str(failed["c"]) == "late" and order.count("c") == 3
    rounds = [order[at : at + 4] for at in range(len(order) - 20, len(order), 4)]
    assert all(sorted(one) == ["a", "a", "b", "b"] for one in rounds)  # warmed up, then timed
    assert len({one[0] for one in rounds}) == 2  # neither goes first each time


def test_peak_memory_counts_what_is_held_at_once():
    x = torch.ones(100_000)
    for call, expected in (
        (lambda: x.clone(), 1),
        (lambda: x.exp().exp(), 2),
        (lambda: x.exp().exp().exp().sum(), 2),
        (lambda: x.mul_(1.0), 0),
    ):
        held = memory.peak_memory(call, CPU)
        assert held == pytest.approx(expected * 4 * x.numel(), abs=100)


def synthetic(*grid, **medians):
    """A record of these cases: a copy takes 1 second."""
    lines = {name: {"median": value} for name, value in {"copy": 1.0, **medians}.items()}
    return {"cases": [{"case": case.changes, "times": lines} for case in grid]}


def test_ratios_are_of_one_case_and_figures_say_them():
    lengths = [replace(PREFILL, seq=seq, heads=seq // 4) for seq in (128, 512)]
    record = synthetic(*lengths, TRAINING, clone=2.0, rope=1.1, Liger=4.0)
    assert report.ratio(record, TRAINING, "Liger", over="clone") == 2
    assert math.isnan(report.ratio(record, TRAINING, "flash-attn"))
    found = report.by_length(record, PREFILL, over="clone")
    assert found == ([128, 512], {"rope": [0.55, 0.55], "Liger": [2.0, 2.0]})
    assert "Liger: 2 at 128, 2 at 512." in by_length(*found).alt
    assert {one.name for one in FIELD} == set(LOOKS)


def test_shipped_records_are_of_this_form_and_small():
    for path in RECORDED.glob("*.json"):
        assert path.stat().st_size < 40_000
        found = recorded(path.stem)
        for entry in found["cases"]:
            assert {"copy", "clone", "rope"} <= set(entry["times"]), entry["case"]
        assert report.table(found)


def test_the_chapters_programs_are_timed_as_recorded(tmp_path, monkeypatch, one_thread):
    monkeypatch.setattr(programs, "settle_allocator", lambda pages: None)  # of this whole process
    programs.measure(tmp_path / "times.json", rounds=1, positions=2)
    found = json.loads((tmp_path / "times.json").read_text(encoding="utf-8"))
    recorded = programs.recorded()
    assert found["metadata"].keys() == recorded["metadata"].keys()
    for count in map(str, programs.COUNTS):
        assert found["seconds"][count].keys() == recorded["seconds"][count].keys()
        assert all(seconds > 0 for seconds in found["seconds"][count].values())
