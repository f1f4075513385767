"""`make gpu` without a GPU: its checks under the interpreter, its logic by a stand-in clock."""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no wheels for this system")

from rope.book.measured import clock, gpu
from rope.book.measured.bench.cases import Case
from rope.book.measured.gpu import __main__ as program
from rope.book.measured.gpu import checks, decoding, records, tiles
from rope.kernels import triton as kernel

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")


# Triton's interpreter is slow, and the kernel's tiles are the same: one token; a rest; five key
# heads, of which a program takes four; two tiles of tokens; one tensor.
SMALL = ((1, 4, 1, 1, 8, 8), (2, 3, 2, 5, 8, 4), (1, 4, 5, 3, 4, 4), (1, 1, 1, 17, 4, 4),
         (1, 3, 0, 2, 4, 4))  # fmt: skip
RUNS = dict.fromkeys(checks.CHECKS, (SMALL, checks.DTYPES[:1])) | {
    f"{name} in half": (((1, 1, 0, 1, 4, 4), SMALL[1]), checks.DTYPES[1:])
    for name in ("values", "heads", "strides")
}
if CUDA:
    RUNS = dict.fromkeys(checks.CHECKS, (checks.SHAPES, checks.DTYPES))


@pytest.mark.parametrize("run", RUNS)
def test_the_kernel_passes(run, monkeypatch):
    shapes, dtypes = RUNS[run]
    monkeypatch.setattr(checks, "SHAPES", shapes)
    monkeypatch.setattr(checks, "DTYPES", dtypes)
    said = checks.check(run.split()[0], DEVICE)
    assert not said.startswith("wrong"), said


def broken(old, new):
    """The kernel's launch with one thing wrong."""

    def launch(q, k, q_out, k_out, cos, sin, ids, *, interleaved, inverse, right=kernel.launch):
        given = dict(cos=cos, sin=sin, ids=ids, interleaved=interleaved, inverse=inverse)
        given[old] = new(given[old])
        flags = {name: given.pop(name) for name in ("interleaved", "inverse")}
        right(q, k, q_out, k_out, *given.values(), **flags)

    return launch


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("values", "sin", lambda sin: -sin),
        ("values", "inverse", lambda inverse: False),
        ("outside", "ids", lambda ids: ids.clamp(0, checks.ROWS - 1)),
        ("heads", "cos", lambda t: t if t.dim() == 2 else t[:, :1].expand_as(t)),
    ],
    ids=["sign", "never back", "clamped", "tables of the first head"],
)
def test_a_fault_in_the_kernel_is_found(name, old, new, monkeypatch):
    monkeypatch.setattr(checks, "SHAPES", 2 * SMALL[1:2])
    monkeypatch.setattr(checks, "DTYPES", checks.DTYPES[:1])
    with patch.object(kernel, "launch", broken(old, new)):
        assert checks.check(name, DEVICE).startswith("wrong: AssertionError")


def test_arithmetic_in_the_format_of_the_vectors_is_found(monkeypatch):
    """Tables, products and sums round to bfloat16, where the store alone may."""
    monkeypatch.setattr(checks, "DTYPES", (torch.bfloat16,))
    monkeypatch.setattr(checks, "SHAPES", SMALL)

    def narrow(q, k, q_out, k_out, cos, sin, ids, *, interleaved, inverse):
        cos, sin = (t.bfloat16() for t in checks.rows_of(cos, sin, ids, inverse))
        for x, out in ((q, q_out), (k, k_out)):
            a, b = pairs(x, 2 * cos.shape[-1], interleaved)
            y, z = pairs(out, 2 * cos.shape[-1], interleaved)
            c, d = a * cos - b * sin, b * cos + a * sin
            out[..., 2 * cos.shape[-1] :] = x[..., 2 * cos.shape[-1] :]
            y.copy_(c), z.copy_(d)

    def pairs(x, width, interleaved):
        split = x[..., :width].unflatten(-1, (-1, 2) if interleaved else (2, -1))
        return split.unbind(-1 if interleaved else -2)

    with patch.object(kernel, "launch", narrow):
        assert checks.check("values", DEVICE).startswith("wrong: AssertionError: a pair is off by")


@pytest.fixture
def stand_in(monkeypatch):
    """A clock by which a tile takes as long as it is far from 8 tokens, 2 heads, 4 warps."""

    def time_all(calls, device, **effort):
        seconds = {}
        for name, call in calls.items():
            call()
            parts = name.split("×")
            far = sum(abs(int(a) - b) for a, b in zip(parts, (8, 2, 4), strict=False)) if (
                len(parts) == 3) else 5  # fmt: skip
            seconds[name] = [1.0 + far, 1.0 + far]
        return seconds, {}

    monkeypatch.setattr(tiles, "time_all", time_all)
    for name, few in (("TOKENS", (2, 8)), ("HEADS", (2,)), ("WARPS", (1, 4))):
        monkeypatch.setattr(tiles, name, few)
    monkeypatch.setattr(clock, "_times", lambda call, device, seconds, in_a_row: [1.0])


def test_the_best_tile_is_found_and_the_rule_beside_it(stand_in):
    small = Case(1, 4, 2, 20, 64)
    with patch.object(tiles, "ours", through_the_kernel):
        found = tiles.sweep(small, DEVICE, {}, torch.inf)
    assert found["best"] == "8×2×4" and found["seconds"] == {"8×2×4": 1.0, "rule": 6.0, "copy": 6.0}
    assert found["not right"] == [] and Case(**found["case"]) == small
    assert "8×2×4       6.00       0.17" in tiles.table([found])


def through_the_kernel(made):
    """The kernel on any device, as `ours` has it on a GPU."""

    def rotate(q, k):
        outs = torch.empty_like(q), torch.empty_like(k)
        flags = {"interleaved": made.case.interleaved, "inverse": False}
        kernel.launch(q, k, *outs, made.cos, made.sin, None, **flags)
        return outs

    return rotate


def test_a_tile_with_other_bits_is_left_out(stand_in):
    def wrong(made):
        right = through_the_kernel(made)

        def rotate(q, k):
            found = right(q, k)
            return (found[0] + 1, found[1]) if kernel.tile(32, 2, 2)[0] == 2 else found

        return rotate

    with patch.object(tiles, "ours", wrong):
        found = tiles.sweep(Case(1, 4, 2, 20, 64), DEVICE, {}, torch.inf)
    assert found["not right"] and all(
        name.startswith("2×") and name.endswith("other bits") for name in found["not right"]
    )


def test_a_sweep_ends_when_its_time_is_over(stand_in):
    over = patch.object(tiles, "ours", through_the_kernel)
    with over, pytest.raises(gpu.OutOfTime, match="1×4/2×20×64"):
        tiles.sweep(Case(1, 4, 2, 20, 64), DEVICE, {}, -torch.inf)


def test_every_case_has_tiles_and_the_rule_is_among_those_tried():
    for case in tiles.cases():
        rule = kernel.tile(case.head_dim // 2, case.seq, case.heads)
        assert rule in tiles.candidates(case), (case.name, rule)
        assert len({tuple(tile) for tile in tiles.candidates(case)}) > 8


@pytest.fixture
def command(monkeypatch, tmp_path, stand_in):
    """The command on the CPU, with three small parts; what is done, in order."""
    done = []

    monkeypatch.setattr(checks, "CHECKS", {"values": lambda device: "right"})

    def parts(device, effort, versions, quick, until):
        small = replace(Case(1, 2, 1, 4, 8), batch=1)
        entry = {"case": small.changes, "times": {}, "not timed": {}}
        tile = {"case": small.changes, "best": "rule", "seconds": {"rule": 1.0, "copy": 1.0}}

        def job(name, result):
            def do():
                done.append(name)
                if isinstance(result, Exception):
                    raise result
                return result

            return do

        results = {
            "bench: a": entry, "bench: b": ValueError("no memory\nat 2"),
            "decoding: 1": {"batch": 1, "seconds": {"rope, eager": 2e-6}, "not timed": {}},
            "tile: a": tile,
        }  # fmt: skip
        return {name: job(name, result) for name, result in results.items()}

    monkeypatch.setattr(program, "parts", parts)

    def run(minutes=9.0):
        done.clear()
        status = program.run(tmp_path / "gpu-x.json", "X", torch.device("cpu"), minutes, False)
        return status, list(done)

    return run, tmp_path / "gpu-x.json"


def test_a_part_that_fails_is_a_sentence_and_the_rest_goes_on(command, capsys):
    run, path = command
    status, done = run()
    assert status == 1 and len(done) == 4, "a hole in the record is no success"
    record = json.loads(path.read_text())
    assert record["not measured"] == {"bench: b": "ValueError: no memory"}
    assert record["device"] == "X" and "versions" in record["metadata"]
    assert record["metadata"]["clocks"] and len(record["cases"]) == len(record["tiles"]) == 1
    out, err = capsys.readouterr()
    assert "values: right" in out and "bench: b: ValueError: no memory" in out
    assert "rope, eager 2.00" in out and "liger-kernel" in err


def test_it_stops_when_its_minutes_are_over_and_goes_on_from_there(command, monkeypatch, capsys):
    run, path = command
    now = iter([0.0, 1.0, 700.0])
    monkeypatch.setattr(program.time, "monotonic", lambda: next(now))
    assert run() == (program.AGAIN, ["bench: a"])
    assert "bench: b" in capsys.readouterr().err
    assert not path.exists() and path.with_suffix(".partial.json").exists()
    monkeypatch.setattr(gpu, "RECORDED", path.parent)
    assert records() == {}, "a part is no record"
    monkeypatch.setattr(program.time, "monotonic", lambda: 0.0)
    done = run()[1]
    assert done == ["bench: b", "decoding: 1", "tile: a"] and list(records()) == ["X"]


def test_on_a_lost_device_nothing_begins(command, monkeypatch, capsys):
    """The job that lost it is written down, so that the next start goes past it."""
    _, path = command
    lost = iter([None, None, RuntimeError("illegal memory access")])

    def synchronize():
        if error := next(lost):
            raise error

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    jobs = program.parts(None, None, None, False, 0)
    on = program.within(jobs, torch.device("cuda"), torch.inf)
    with pytest.raises(gpu.OutOfTime, match="lost before decoding: 1"):
        program.measured(path, "p", on, dict)
    kept = json.loads(path.with_suffix(".partial.json").read_text())["done"]
    assert list(kept) == ["bench: a", "bench: b"] and "not measured" in kept["bench: b"]


def test_a_wrong_kernel_makes_it_fail(command, monkeypatch):
    run, path = command
    path.write_text("an earlier record")
    monkeypatch.setattr(checks, "check", lambda name, device: "wrong: off by 3")
    assert run() == (1, []) and path.read_text() == "an earlier record"


def test_where_the_bench_finds_it_wrong_the_record_says_so():
    case = {"case": {}, "times": {}, "not timed": {"rope": "off by 3", "Liger": "not this layout"}}
    steps = {"batch": 1, "seconds": {}, "not timed": {"rope, graph": "no"}}
    record = program.whole("X", {}, {}, {"bench: a": case, "decoding: 1": steps})
    assert record["not measured"] == {
        "bench: a, rope": "off by 3",
        "decoding: 1, rope, graph": "no",
    }


@pytest.mark.skipif(CUDA, reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys):
    assert program.main([]) == 2
    assert "CUDA" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"device.*cpu.*CUDA"):
        decoding.steps(1, torch.device("cpu"), {})


def test_every_record_is_whole_and_the_page_is_of_them():
    page = (Path(__file__).parents[1] / "chapters/on_the_gpu.ipynb").read_text(encoding="utf-8")
    assert ("No GPU was at hand" in page) == (not records())
    for device, record in records().items():
        assert device in page and record["cases"] and record["decoding"] and record["tiles"]
        assert not any(said.startswith("wrong") for said in record["checks"].values())
