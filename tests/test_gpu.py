"""Test the benchmark's GPU suites without a GPU, in Triton's interpreter and with a fake clock."""

import json
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no wheels for this system")

from rope.book.measured import record
from rope.book.measured.bench import __main__ as program
from rope.book.measured.bench import correctness, suites
from rope.book.measured.bench.cases import Case
from rope.kernels import triton as kernel

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
# Small shapes, because Triton's interpreter is slow, but with tiles as on a GPU: one token;
# unrotated coordinates; five key heads, four per program; two tiles of tokens; one tensor.
SMALL = ((1, 4, 1, 1, 8, 8), (2, 3, 2, 5, 8, 4), (1, 4, 5, 3, 4, 4), (1, 1, 1, 17, 4, 4),
         (1, 3, 0, 2, 4, 4))  # fmt: skip


def launch(xs, outs, cos, sin, ids, flags):
    """Launch the kernel on any device, and return the outputs."""
    (q, q_out), (k, k_out) = [*zip(xs, outs, strict=True), (xs[0][:, :0], outs[0][:, :0])][:2]
    kernel.launch(q, k, q_out, k_out, cos, sin, ids, **flags)
    return tuple(outs)


class Launched(torch.autograd.Function):
    """Call the kernel on any device, with a gradient."""

    @staticmethod
    def forward(ctx, cos, sin, ids, flags, *xs):
        ctx.tables, ctx.flags = (cos, sin, ids), flags
        return launch(xs, [torch.empty_like(x) for x in xs], cos, sin, ids, flags)

    @staticmethod
    def backward(ctx, *grads):
        flags = ctx.flags | {"inverse": not ctx.flags["inverse"]}
        return (*[None] * 4, *Launched.apply(*ctx.tables, flags, *grads))


def by_kernel(xs, cos, sin, ids=None, *, interleaved=False, inverse=False, inplace=False):
    """Rotate as `correctness.rotate_all` does on a GPU."""
    flags = {"interleaved": interleaved, "inverse": inverse}
    if inplace:
        return launch(xs, xs, cos, sin, ids, flags)
    return Launched.apply(cos, sin, ids, flags, *xs)


@pytest.fixture
def rotate(monkeypatch):
    """Return this device's rotation; the interpreter truncates to bfloat16 where a GPU rounds."""
    if CUDA:
        return correctness.rotate_all
    right = correctness.store_error
    monkeypatch.setattr(
        correctness, "store_error", lambda t: right(t) * (2 if t == torch.bfloat16 else 1)
    )
    return by_kernel


@pytest.mark.parametrize("name", correctness.CHECKS)
@pytest.mark.parametrize("half", [False, True], ids=["float32", "half"])
def test_the_kernel_passes(name, half, rotate, monkeypatch):
    if not CUDA:
        monkeypatch.setattr(
            correctness, "SHAPES", (SMALL[4], SMALL[1], SMALL[0]) if half else SMALL
        )
        dtypes = correctness.DTYPES[1:] if half else correctness.DTYPES[:1]
        monkeypatch.setattr(correctness, "DTYPES", dtypes)
    result = correctness.check_kernel(name, DEVICE, rotate)
    assert not result.startswith("wrong"), result


@pytest.mark.parametrize("name", ["values", "strides"])
def test_the_checks_call_the_public_functions(name):
    """Run two checks on a CPU, where the public functions call the C loop."""
    assert not correctness.check_kernel(name, torch.device("cpu")).startswith("wrong")


def broken(old, new):
    """Return `by_kernel` with one argument changed."""

    def rotate(xs, cos, sin, ids=None, inplace=False, **flags):
        arguments = dict(cos=cos, sin=sin, ids=ids, interleaved=False, inverse=False) | flags
        arguments[old] = new(arguments[old])
        return by_kernel(xs, inplace=inplace, **arguments)

    return rotate


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("values", "sin", lambda sin: -sin),
        ("values", "inverse", lambda inverse: False),
        ("outside", "ids", lambda ids: ids.clamp(0, correctness.ROWS - 1)),
        ("values", "cos", lambda t: t if t.dim() == 2 else t[:, :1].expand_as(t)),
    ],
    ids=["sign", "never inverse", "clamped", "tables of the first head"],
)
def test_a_fault_in_the_kernel_is_found(name, old, new, monkeypatch):
    monkeypatch.setattr(correctness, "SHAPES", (SMALL[4], SMALL[1]))
    monkeypatch.setattr(correctness, "DTYPES", correctness.DTYPES[:1])
    result = correctness.check_kernel(name, DEVICE, broken(old, new))
    assert result.startswith("wrong: AssertionError")


def test_tables_in_the_dtype_of_the_vectors_are_found(monkeypatch):
    def narrow(xs, cos, sin, *ids, **flags):
        cos, sin = (table.bfloat16().float() for table in (cos, sin))
        return correctness.rotate_all(xs, cos, sin, *ids, **flags)

    monkeypatch.setattr(correctness, "DTYPES", (torch.bfloat16,))
    result = correctness.check_kernel("values", torch.device("cpu"), narrow)
    assert result.startswith("wrong: AssertionError: a pair is off by")


@pytest.fixture
def fake_clock(monkeypatch):
    """Fake the times so that a tile is slower the more it differs from (8, 2, 4)."""

    def time_all(calls, device, **effort):
        seconds = {}
        for name, call in calls.items():
            call()
            parts = name.split("×")
            sizes = zip(map(int, parts), (8, 2, 4), strict=True) if len(parts) == 3 else [(5, 0)]
            seconds[name] = [1.0 + sum(abs(a - b) for a, b in sizes)] * 2
        return seconds, {}

    monkeypatch.setattr(suites, "time_all", time_all)
    for name, few in (("TOKENS", (2, 8)), ("HEADS", (2,)), ("WARPS", (1, 4))):
        monkeypatch.setattr(suites, name, few)


def test_the_best_tile_is_found_and_wrong_ones_are_named(fake_clock):
    def sometimes_wrong(tables):
        def rotate(q, k):
            results = by_kernel((q, k), tables.cos, tables.sin)
            tokens, _, warps = kernel.tile(32, 2, 2)
            return (results[0] + 1, results[1]) if (tokens, warps) == (2, 1) else results

        return rotate

    case = Case(1, 4, 2, 20, 64)
    with patch.object(suites, "ours", sometimes_wrong):
        entry = suites.measure_tiles(case, DEVICE)
    assert entry["best"] == "8×2×4" and entry["seconds"] == {"8×2×4": 1.0, "rule": 6.0, "copy": 6.0}
    assert entry["not right"] == ["2×2×1: other bits"] and Case(**entry["case"]) == case


def test_every_case_has_tiles_and_the_rule_is_among_those_tried():
    for case in suites.tile_cases():
        rule = kernel.tile(case.head_dim // 2, case.seq, case.heads)
        assert rule in suites.tile_candidates(case), (case.name, rule)
        assert len({tuple(tile) for tile in suites.tile_candidates(case)}) > 8


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Return a function that runs four fake jobs on the CPU, and the path of their record.

    The function returns the exit status and the names of the jobs that ran.
    """
    done = []
    results = {
        "rotations: a": {
            "case": Case(1, 2, 1, 4, 8).changes,
            "times": {},
            "not timed": {"rope": "off by 3", "Liger": "does not support half"},
        },
        "rotations: b": ValueError("no memory\nat 2"),
        "decoding: 1": {"batch": 1, "seconds": {}, "not timed": {"rope, graph": "no"}},
        "tiles: a": {"case": {}, "best": "rule", "seconds": {"rule": 1.0, "copy": 1.0}},
    }

    def job(name):
        done.append(name)
        if isinstance(results[name], Exception):
            raise results[name]
        return results[name]

    def make_jobs(*_):
        return {name: lambda name=name: job(name) for name in results}

    monkeypatch.setattr(program, "CHECKS", ["values"])
    monkeypatch.setattr(program, "check_kernel", lambda name, device: "right")
    monkeypatch.setattr(program, "make_jobs", make_jobs)
    path = tmp_path / "gpu-x.json"

    def run():
        done.clear()
        status = program.run(path, torch.device("cpu"), program.SUITES)
        return status, list(done)

    return run, path


def test_a_job_that_fails_is_recorded_and_the_rest_goes_on(command, capsys):
    run, path = command
    status, done = run()
    assert status == 1 and len(done) == 4, "an incomplete record must not count as a success"
    written = json.loads(path.read_text())
    assert written["not measured"] == {
        "rotations: a, rope": "off by 3",
        "rotations: b": "ValueError: no memory",
        "decoding: 1, rope, graph": "no",
    }
    assert written["device"] and "versions" in written["metadata"]
    assert len(written["cases"]) == len(written["decoding"]) == len(written["tiles"]) == 1
    shown = capsys.readouterr().out
    assert "values: right" in shown and "rotations: b: ValueError: no memory" in shown


def test_an_interrupted_run_resumes(command, monkeypatch, capsys):
    run, path = command
    record.write(path.with_suffix(".partial.json"), {"program": "other", "done": {"tiles: a": {}}})
    with monkeypatch.context() as patched:
        patched.setattr(suites, "first_line", lambda error: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run()
    assert "starting over" in capsys.readouterr().err
    assert not path.exists() and path.with_suffix(".partial.json").exists()
    monkeypatch.setattr(record, "RECORDED", path.parent)
    assert record.gpu_records() == {}, "a partial file must not count as a record"
    assert run()[1] == ["rotations: b", "decoding: 1", "tiles: a"]
    assert len(record.gpu_records()) == 1


def test_on_a_lost_device_no_job_starts(command, monkeypatch):
    """Check that the job that lost the device is recorded as failed, so that a restart skips it."""
    _, path = command
    lost = iter([None, None, RuntimeError("illegal memory access")])

    def synchronize():
        if error := next(lost):
            raise error

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    device = torch.device("cuda")
    jobs = {name: partial(program.attempted, j, device) for name, j in program.make_jobs().items()}
    with pytest.raises(RuntimeError, match="illegal memory access"):
        record.run_jobs(path, "p", jobs, dict)
    done = json.loads(path.with_suffix(".partial.json").read_text())["done"]
    assert list(done) == ["rotations: a", "rotations: b"] and "not measured" in done["rotations: b"]


def test_nothing_is_timed_when_the_kernel_is_wrong(command, monkeypatch):
    run, path = command
    path.write_text("an earlier record")
    monkeypatch.setattr(program, "check_kernel", lambda name, device: "wrong: off by 3")
    assert run() == (1, []) and path.read_text() == "an earlier record"


def test_the_command_knows_its_device(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert program.main(["--device", "cuda"]) == 2
    assert "CUDA" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA X1 (80 GB)")
    monkeypatch.setattr(program, "run", lambda *arguments: arguments)
    path, device, chosen = program.main([])
    assert path.name == "gpu-nvidia-x1-80-gb.json" and device.type == "cuda"
    about = program.metadata(device)
    jobs = program.make_jobs(chosen, device, about["versions"])
    assert {name.partition(":")[0] for name in jobs} == set(program.SUITES) - {"correctness"}
    assert len(jobs) == 18 + 4 + 36 and about["device"]["gpu"]


def test_every_gpu_record_is_complete_and_on_the_page():
    page = (Path(__file__).parents[1] / "chapters/on_the_gpu.ipynb").read_text(encoding="utf-8")
    assert ("No GPU was at hand" in page) == (not record.gpu_records())
    for device, written in record.gpu_records().items():
        assert device in page and written["cases"] and written["decoding"] and written["tiles"]
        assert not any(result.startswith("wrong") for result in written["checks"].values())
