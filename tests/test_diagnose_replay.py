"""Test the diagnosis through files: an engine in any language gets the report of a direct call."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engines import answer
from test_diagnose import FAULTS, RIGHT, D, codes, variant, words

import rope
from rope.diagnose import diagnose
from rope.diagnose.__main__ import main
from rope.diagnose.replay import SHIFT, diagnose_answers, read, write, write_probes
from rope.extensions import YaRN

HERE = Path(__file__).parent
# One rotation per code path. Files can't show faults that depend on the input's dtype or that write
# into the input.
SAMPLE_FAULTS = [
    *("one ahead in decoding", "only the first heads", "heads for tokens", "a cumulative sum"),
    *("first row for all", "two layouts", "key rotated twice", "rolled by one", "gain after"),
    *("growing frequencies", "self-extend", "bfloat16 ids", "bfloat16 tables", "identity beyond"),
    *("a table read round", "dropout", "rest zeroed"),
]
SAMPLE_RIGHT = [
    *("interleaved", "permuted on the way", "layer norm", "YaRN", "dynamic", "temperature", "xpos"),
]


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    """Return a function that writes the probes for a width once and returns their path."""
    folder = tmp_path_factory.mktemp("probes")

    def path(head_dim=D, num_kv_heads=2, max_position=1 << 17):
        probes = folder / f"{head_dim}-{num_kv_heads}-{max_position}.safetensors"
        if not probes.exists():
            write_probes(
                probes, head_dim, num_heads=4, num_kv_heads=num_kv_heads, max_position=max_position
            )
        return probes

    return path


@pytest.fixture
def report_of(tmp_path):
    """Return a function that lets a rotation answer probes and diagnoses the answers."""

    def report(rotate, probes, expected=None, **options):
        answer(rotate, probes, tmp_path / "answers.safetensors", **options)
        return diagnose_answers(tmp_path / "answers.safetensors", probes, expected=expected)

    return report


@pytest.mark.parametrize("name", SAMPLE_FAULTS)
def test_a_fault_has_the_finding_of_the_call(name, probed, report_of):
    code, rotate = FAULTS[name]
    assert codes(report_of(rotate, probed())) == [code]


def test_sizes_that_grow_need_nearer_probes(probed, report_of):
    code, rotate = FAULTS["key scaled like its query"]
    with pytest.raises(ValueError, match=r"no answer.*max_position"):
        report_of(rotate, probed())
    assert codes(report_of(rotate, probed(max_position=256))) == [code]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SAMPLE_RIGHT)
def test_a_correct_rotation_has_no_fault(name, dtype, probed, report_of):
    probes = probed(max_position=256 if name == "xpos" else 1 << 17)
    report = report_of(RIGHT[name], probes, dtype=dtype)
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
    ("theta = pos[token * step]", "theta = pos[token * step] % 4096", "norm", "wraps"),
    ("rope(x, shape, shift, 0,", "rope(x, shape, pos, 1,", "neox", "cache-shift"),
]


@pytest.mark.parametrize(("old", "new", "mode", "code"), IN_C)
def test_a_program_in_c_is_diagnosed(tmp_path, capsys, old, new, mode, code):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler in the PATH")
    assert old in C
    (tmp_path / "engine.c").write_text(C.replace(old, new) if old else C)
    engine = tmp_path / "engine"
    subprocess.run([compiler, "-O1", f"{engine}.c", "-o", engine, "-lm"], check=True)
    probes, answers = tmp_path / "probes.safetensors", tmp_path / "answers.safetensors"
    assert main(["probes", "--head-dim", "64", "--axes", "bshd", "-o", str(probes)]) == 0
    run(engine, mode, "10000", probes=probes, answers=answers)
    assert main(["answers", str(answers), "--probes", str(probes), "--json"]) == bool(code)
    report = json.loads(capsys.readouterr().out)
    assert [each["code"] for each in report["findings"]] == ([code] if code else [])
    if not code:
        query = report["query"]
        assert query["layout"] == ("half" if mode == "neox" else "interleaved")
        # The C program multiplies float32 powers up over the planes.
        assert query["rotary_dim"] == 64 and query["base"] == pytest.approx(10000, rel=1e-5)


def test_a_program_in_javascript_is_diagnosed(tmp_path, capsys):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node in the PATH")
    probes, answers = tmp_path / "probes.json", tmp_path / "answers.json"
    assert main(["probes", "--head-dim", str(D), "-o", str(probes)]) == 0
    page = json.loads((HERE.parent / "chapters/is_my_rope_right.ipynb").read_text())
    text = "".join(line for cell in page["cells"] for line in cell["source"])
    (tmp_path / "engine.mjs").write_text(text.partition("```js\n")[2].partition("```")[0])
    run(node, tmp_path / "engine.mjs", "500000", probes=probes, answers=answers)
    config = tmp_path / "config.json"
    facts = {"model_type": "llama", "head_dim": D, "max_position_embeddings": 8192}
    config.write_text(json.dumps(facts))
    command = ["answers", str(answers), "--probes", str(probes), "--expected", str(config)]
    assert main([*command, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [each["code"] for each in report["findings"]] == ["frequencies"]
    assert report["query"]["layout"] == "half" and report["query"]["base"] == 5e5


ROTARY = rope.RotaryEmbedding(D)
SCALED = rope.RotaryEmbedding(D, extension=YaRN(4.0, 4096))
FACTOR = SCALED.extension.attention_scaling


def back(rotary, factor=1.0):
    """Return a function that moves keys by a negative number of positions and scales them."""
    return lambda k, by: rotary.rotate(k, offset=-by, inverse=True) * factor


# Each case: the rotation, the cache's shift, the finding's variant, and the factor that it names.
IN_CACHE = {
    "right": (ROTARY, back(ROTARY), None, None),
    "left out": (ROTARY, None, None, None),
    "still": (ROTARY, lambda k, by: k, "still", None),
    "reversed": (ROTARY, lambda k, by: ROTARY.rotate(k, offset=-by), "reversed", None),
    "the factor again": (SCALED, back(SCALED, FACTOR**2), "sized", FACTOR),
    "smaller": (ROTARY, back(ROTARY, 0.97), "sized", 0.97),
    "another base": (ROTARY, back(rope.RotaryEmbedding(D, base=5e5)), "moved", None),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", IN_CACHE)
def test_shifted_keys_are_compared_with_rotated_ones(name, dtype, probed, report_of):
    rotary, shift, how, factor = IN_CACHE[name]

    def moved(k, by):  # all tokens by the same number of positions
        return torch.cat([shift(x, by) for x in k.split(1, dim=2)], dim=2)

    report = report_of(rotary, probed(), dtype=dtype, shift=shift and moved)
    assert codes(report) == ["cache-shift"] * (how is not None)
    rel = max(1e-5, torch.finfo(dtype).eps)
    for fault in report.findings:
        assert variant(fault) == how and f"{SHIFT:+d}" in words(fault)
        numbers = [float(each) for each in words(fault) if re.fullmatch(r"\d+\.\d+", each)]
        assert factor is None or numbers == [pytest.approx(factor, rel=rel)]


@pytest.mark.parametrize(
    ("suffix", "axes", "head_dim", "heads"),
    [
        *(
            ("safetensors", "bhsd", D, (2, 1)),
            ("npz", "bshd", D, (2, 1)),
            ("json", "bhsd", 8, (2, 1)),
        ),
        *(("npz", "bhsd", 8, (7, 7)), ("npz", "bshd", 8, (7, 1))),  # as many heads as tokens
    ],
)
def test_each_format_and_order_of_axes_gives_the_report_of_the_call(
    tmp_path, suffix, axes, head_dim, heads
):
    pytest.importorskip("safetensors")
    probes, answers = tmp_path / f"probes.{suffix}", tmp_path / f"answers.{suffix}"
    options = dict(num_heads=heads[0], num_kv_heads=heads[1])
    count = write_probes(probes, head_dim, axes=axes, **options)
    names = {name.partition(".")[0] for name in read(probes)}
    assert names == {f"{i:02d}" for i in range(count)}
    rotary = rope.RotaryEmbedding(head_dim)

    def engine(q, k, ids):
        if axes == "bhsd":
            return rotary(q, k, ids)
        return [x.transpose(1, 2) for x in rotary(q.transpose(1, 2), k.transpose(1, 2), ids)]

    answer(engine, probes, answers)
    direct = diagnose(rotary, head_dim, dtype=torch.float32, **options)
    report = replace(diagnose_answers(answers, probes), unexamined=direct.unexamined)
    assert str(report) == str(direct)


@pytest.mark.parametrize("call", ["00", "14", "37"])
def test_the_first_position_that_is_not_finite_is_named(probed, tmp_path, call):
    probes, path = probed(), tmp_path / "a.safetensors"
    answer(ROTARY, probes, path, shift=back(ROTARY))
    answers, ids = read(path), read(probes)[f"{call}.position_ids"]
    answers[f"{call}.k"][..., -3:, 3] = torch.nan
    write(path, answers)
    (fault,) = diagnose_answers(path, probes).findings
    assert fault.code == "not-finite" and str(int(ids[:, -3:].min())) in words(fault)


def test_two_engines_are_compared(probed, tmp_path, capsys):
    probes, ours, theirs = probed(), tmp_path / "a.safetensors", tmp_path / "b.safetensors"
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


def test_keys_in_a_narrower_dtype_than_queries_are_judged_in_it(probed, report_of):
    def mixed(q, k, ids):
        q, k = ROTARY(q, k, ids)
        return q, k.bfloat16().float()

    assert report_of(mixed, probed()).ok


def test_calls_with_several_rows_or_one_token_may_be_left_out(probed, tmp_path):
    probes, path = probed(), tmp_path / "answers.safetensors"
    answer(ROTARY, probes, path)
    answers = read(path)

    def without(left_out):
        write(path, {name: x for name, x in answers.items() if not left_out(x.shape)})
        return diagnose_answers(path, probes)

    assert codes(without(lambda shape: shape[0] == 3 and shape[2] == 7)) == ["batch-rejected"]
    assert codes(without(lambda shape: shape[2] == 1)) == ["batch-rejected"]
    with pytest.raises(ValueError, match="no answer"):
        without(lambda shape: shape[0] == 1 and shape[2] == 7)


def test_answers_of_the_wrong_shape_raise(probed, tmp_path, capsys):
    probes, path = probed(), tmp_path / "a.npz"
    answer(ROTARY, probes, path)
    answers = read(path)
    write(path, answers | {"00.q": answers["00.q"].transpose(1, 2)})
    assert main(["answers", str(path), "--probes", str(probes)]) == 2
    assert re.search(r"00\.q.*\[1, 4, 7, 32\]", capsys.readouterr().err)


REJECTED = [
    ("probes --head-dim 64 -o {}/x.txt", "x.txt", ".safetensors"),
    ("probes --head-dim 8 --axes sbhd", "axes", "'sbhd'"),
    (f"probes --head-dim 8 --length {2**31}", "--length", "2**31"),
    *((f"answers {{}}/x.{kind} --probes {{}}/x.{kind}", f"x.{kind}") for kind in ("npz", "json")),
    ("answers {}/x.safetensors --probes {}/x.safetensors", "x.safetensors"),
    ("answers {}/x.npz --probes {}/none.npz", "none.npz"),
    ("answers {}/empty.json --probes {}/empty.json", "empty.json", "diagnose probes"),
]


def test_a_file_without_valid_tensors_raises(tmp_path, capsys):
    for suffix in ("safetensors", "npz", "json"):
        (tmp_path / f"x.{suffix}").write_text("{}x")
    write(tmp_path / "empty.json", {"x": torch.ones(1)})
    for command, *expected in REJECTED:
        assert main(command.replace("{}", str(tmp_path)).split()) == 2
        message = capsys.readouterr().err
        assert all(each in message for each in expected), message
