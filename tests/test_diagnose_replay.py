"""Test the diagnosis through files: an engine in any language gets the report of a direct call."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engines import answer
from test_diagnose import FAULTS, RIGHT, ROTARY, D, codes, words

import rope
from rope.diagnose import diagnose
from rope.diagnose.__main__ import main
from rope.diagnose.replay import diagnose_answers, read, write, write_probes

HERE = Path(__file__).parent
# One rotation per code path. Files can't show faults that depend on the input's dtype or that write
# into the input.
SAMPLE_FAULTS = [
    *("one ahead in decoding", "heads for tokens", "a cumulative sum"),
    *("first row for all", "two layouts", "key rotated twice", "rolled by one", "layer norm after"),
    *("growing frequencies", "self-extend", "bfloat16 ids", "bfloat16 tables", "last row beyond"),
    *("a table read round", "dropout", "last coordinate doubled"),
]
SAMPLE_RIGHT = ["interleaved", "permuted on the way", "layer norm", "YaRN", "temperature"]


@pytest.fixture(scope="module")
def probes(tmp_path_factory):
    """Return the path of probes for q `[B, 4, S, D]` and k `[B, 2, S, D]`."""
    path = tmp_path_factory.mktemp("probes") / "probes.safetensors"
    write_probes(path, D, num_heads=4, num_kv_heads=2)
    return path


@pytest.mark.parametrize("name", SAMPLE_FAULTS)
def test_a_fault_has_the_finding_of_the_call(name, probes, tmp_path):
    code, rotate = FAULTS[name]
    answer(rotate, probes, tmp_path / "answers.safetensors")
    assert codes(diagnose_answers(tmp_path / "answers.safetensors", probes)) == [code]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SAMPLE_RIGHT)
def test_a_correct_rotation_has_no_fault(name, dtype, probes, tmp_path):
    answer(RIGHT[name], probes, tmp_path / "answers.safetensors", dtype=dtype)
    report = diagnose_answers(tmp_path / "answers.safetensors", probes)
    assert report.ok and report.dtype in str(dtype), str(report)


def run(*command, **files):
    """Run a program that reads the probes from stdin and writes the answers to stdout."""
    with files["probes"].open("rb") as probes, files["answers"].open("wb") as answers:
        subprocess.run(command, stdin=probes, stdout=answers, check=True)


C = (HERE / "foreign/ggml.c").read_text()
# Each case: the text to replace in the C program, its replacement, the layout, the finding's code.
IN_C = [
    ("", "", "neox", ""),
    ("", "", "norm", ""),
    ("x0 * sinf(theta) + x1", "x0 * sinf(theta) - x1", "neox", "pairing"),
    ("* tokens + token];", "* tokens + token] % 4096;", "norm", "wraps"),
]


@pytest.mark.parametrize(("old", "new", "mode", "code"), IN_C)
def test_a_program_in_c_is_diagnosed(tmp_path, old, new, mode, code):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler in the PATH")
    assert old in C
    (tmp_path / "engine.c").write_text(C.replace(old, new) if old else C)
    engine = tmp_path / "engine"
    subprocess.run([compiler, "-O1", f"{engine}.c", "-o", engine, "-lm"], check=True)
    probes, answers = tmp_path / "probes.safetensors", tmp_path / "answers.safetensors"
    assert main(["probes", "--head-dim", "64", "-o", str(probes)]) == 0
    run(engine, mode, "10000", probes=probes, answers=answers)
    assert main(["answers", str(answers), "--probes", str(probes)]) == bool(code)
    report = diagnose_answers(answers, probes)
    assert [each.code for each in report.findings] == ([code] if code else [])
    if not code:
        assert report.query.layout == ("half" if mode == "neox" else "interleaved")
        # The C program multiplies float32 powers up over the planes.
        found = report.query.rotary_dim, report.query.base
        assert found == pytest.approx((64, 10000), rel=1e-5)


@pytest.mark.parametrize(
    ("suffix", "head_dim", "heads"),
    [("safetensors", D, (2, 1)), ("json", 8, (7, 1))],  # as many heads as tokens
)
def test_each_format_gives_the_report_of_the_call(tmp_path, suffix, head_dim, heads):
    pytest.importorskip("safetensors")
    probes, answers = tmp_path / f"probes.{suffix}", tmp_path / f"answers.{suffix}"
    options = dict(num_heads=heads[0], num_kv_heads=heads[1])
    count = write_probes(probes, head_dim, **options)
    names = {name.partition(".")[0] for name in read(probes)}
    assert names == {f"{i:02d}" for i in range(count)}
    rotary = rope.RotaryEmbedding(head_dim)
    answer(rotary, probes, answers)
    direct = diagnose(rotary, head_dim, dtype=torch.float32, **options)
    report = replace(diagnose_answers(answers, probes), unexamined=direct.unexamined)
    assert str(report) == str(direct)


@pytest.mark.parametrize("call", ["00", "14"])
def test_the_first_position_that_is_not_finite_is_named(probes, tmp_path, call):
    path = tmp_path / "a.safetensors"
    answer(ROTARY, probes, path)
    answers, ids = read(path), read(probes)[f"{call}.position_ids"]
    answers[f"{call}.k"][..., -3:, 3] = torch.nan
    write(path, answers)
    (fault,) = diagnose_answers(path, probes).findings
    assert fault.code == "not-finite" and str(int(ids[:, -3:].min())) in words(fault)


def test_two_engines_are_compared(probes, tmp_path, capsys):
    ours, theirs = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    answer(ROTARY, probes, ours)
    command = ["compare", str(ours), str(theirs), "--probes", str(probes)]
    for dtype in (torch.float32, torch.bfloat16):
        answer(RIGHT["angles in float32"], probes, theirs, dtype=dtype)
        assert main(command) == 0, capsys.readouterr().out
    answer(lambda q, k, ids: (ROTARY.rotate(q, ids), ROTARY.rotate(k, ids % 4096)), probes, theirs)
    assert main(command) == 1
    out = capsys.readouterr().out
    assert "differ in the key from position 4096 on" in out and "b.safetensors, " in out
    assert "in the query" not in out and "a.safetensors" not in out


def test_calls_with_several_rows_or_one_token_may_be_left_out(probes, tmp_path):
    path = tmp_path / "answers.safetensors"
    answer(ROTARY, probes, path)
    answers = read(path)

    def without(left_out):
        write(path, {name: x for name, x in answers.items() if not left_out(x.shape)})
        return diagnose_answers(path, probes)

    assert codes(without(lambda shape: shape[0] == 3 and shape[2] == 7)) == ["batch-rejected"]
    assert codes(without(lambda shape: shape[2] == 1)) == ["batch-rejected"]
    with pytest.raises(ValueError, match=r"no answer.*max_position"):
        without(lambda shape: shape[0] == 1 and shape[2] == 7)
    write(path, answers | {"00.q": answers["00.q"].transpose(1, 2)})
    with pytest.raises(ValueError, match=r"00\.q.*\[1, 4, 7, 32\]"):
        diagnose_answers(path, probes)
