"""Test the diagnosis through two files: its report is that of a call, in any language."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from engines import answer
from test_diagnose import BY_CODE, FAULTS, RIGHT, D, codes, variant, words
from test_diagnose_corpus import DEFECTS, load

import rope
from rope.diagnose import diagnose
from rope.diagnose.__main__ import main
from rope.diagnose.files import read, write
from rope.diagnose.replay import SHIFT, diagnose_answers, write_probes
from rope.extensions import YaRN

HERE = Path(__file__).parent
# What a file cannot show: writing into the input, and what depends on the dtype of the input.
UNSEEN = {
    *("unsloth_in_place", "in place", "neox_returns_float32", "float32 back"),
    *("lucidrains_xpos_dtype", "modalities_activation_dtype", "ids of the vectors' dtype"),
}
# These raise for a call or a dtype: an engine leaves a call out, and has one dtype.
RAISING = {
    *("few tokens a call", "reach", "ids along the heads", "one row at a time", "float64 alone"),
    *("bfloat16 alone", "xpos in bfloat16 alone, whose center is far", "xpos from the middle"),
    "xpos by hand in float32 alone",
}
ALWAYS = {next(name for name in group if name not in RAISING) for group in BY_CODE.values()} | {
    *("key scaled like its query", "ids of the vectors' dtype", "identity beyond"),
    *("mlx_glm_full_width", "sglang_indexer_layout", "sglang_factor_twice"),
    *("vllm_dynamic_is_static", "gpt_neox_half_angles"),
    *("interleaved", "last coordinates", "permuted on the way", "layer norm", "YaRN", "dynamic"),
    *("xpos", "temperature"),
}


def sample(names):
    """Mark as slow what adds no code and no path to the others."""
    names = [name for name in names if name not in RAISING]
    slow = pytest.mark.slow
    return [name if name in ALWAYS else pytest.param(name, marks=slow) for name in names]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Return the path of the probes for a width, which are written once."""
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
def judged(tmp_path):
    def report(rotate, probes, expected=None, **options):
        answer(rotate, probes, tmp_path / "answers.safetensors", **options)
        return diagnose_answers(tmp_path / "answers.safetensors", probes, expected=expected)

    return report


@pytest.mark.parametrize("name", sample(path.stem for path in DEFECTS))
def test_a_public_defect_is_named_as_of_a_function(name, asked, judged):
    defect = load(HERE / f"defects/{name}.py")
    probes = asked(64, getattr(defect, "HEADS", 2))
    report = judged(defect.rotate, probes, getattr(defect, "AGAINST", None))
    # Positions in half precision end at 65,504, and of infinity comes NaN.
    expected = "not-finite" if name == "gpt_neox_half_angles" else defect.EXPECTED
    assert report.ok if name in UNSEEN else codes(report) == [expected], str(report)


@pytest.mark.parametrize("name", sample(FAULTS))
def test_a_fault_is_named_as_of_a_function(name, asked, judged):
    code, rotate = FAULTS[name]
    if grows := name == "key scaled like its query":
        with pytest.raises(ValueError, match=r"131071.*max_position"):
            judged(rotate, asked())
    report = judged(rotate, asked(max_position=256 if grows else 1 << 17))
    assert codes(report) == ([] if name in UNSEEN else [code]), str(report)


@pytest.mark.parametrize("name", sample(RIGHT))
def test_a_right_one_has_no_fault(name, asked, judged):
    probes = asked(max_position=256 if "xpos" in name else 1 << 17)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        report = judged(RIGHT[name], probes, dtype=dtype)
        assert report.ok and report.dtype in str(dtype), str(report)


def run(*command, **files):
    """Run a program that reads one file and writes another."""
    with files["probes"].open("rb") as probes, files["answers"].open("wb") as answers:
        subprocess.run(command, stdin=probes, stdout=answers, check=True)


C = (HERE / "foreign/ggml.c").read_text()
# What is changed in the C program to what, for halves or neighbors, and the finding's code.
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
        # powf in float32, multiplied up over the planes
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
    for theta, found in ((5e5, []), (1e4, ["frequencies"])):
        config.write_text(json.dumps(facts | {"rope_theta": theta}))
        command = ["answers", str(answers), "--probes", str(probes), "--expected", str(config)]
        assert main([*command, "--json"]) == bool(found)
        report = json.loads(capsys.readouterr().out)
        assert [each["code"] for each in report["findings"]] == found
        assert report["query"]["layout"] == "half" and report["query"]["base"] == 5e5
    # Fewer digits than float32 has look like a rounded table.
    told = json.loads(answers.read_text())
    for tensor in told.values():
        tensor["data"] = [round(x, 3) for x in tensor["data"]]
    answers.write_text(json.dumps(told))
    assert codes(diagnose_answers(answers, probes)) == ["low-precision-tables"]


ROTARY = rope.RotaryEmbedding(D)
SCALED = rope.RotaryEmbedding(D, extension=YaRN(4.0, 4096))
FACTOR = SCALED.extension.attention_scaling


def back(rotary, factor=1.0):
    """Move keys by a negative number of positions, and multiply them by a factor."""
    return lambda k, by: rotary.rotate(k, offset=-by, inverse=True) * factor


# How keys are moved, and which sentence the finding has, with which factor.
IN_CACHE = {
    "right": (ROTARY, back(ROTARY), None, None),
    "left out": (ROTARY, None, None, None),
    "still": (ROTARY, lambda k, by: k, "still", None),
    "reversed": (ROTARY, lambda k, by: ROTARY.rotate(k, offset=-by), "reversed", None),
    "the factor again": (SCALED, back(SCALED, FACTOR**2), "sized", FACTOR),
    "larger": (ROTARY, back(ROTARY, 1.03), "sized", 1.03),
    "smaller": (ROTARY, back(ROTARY, 0.97), "sized", 0.97),
    "another base": (ROTARY, back(rope.RotaryEmbedding(D, base=5e5)), "moved", None),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", IN_CACHE)
def test_keys_moved_in_a_cache_are_compared_with_those_rotated_there(name, dtype, asked, judged):
    rotary, shift, how, factor = IN_CACHE[name]

    def moved(k, by):  # all tokens by the same, as a cache moves
        return torch.cat([shift(x, by) for x in k.split(1, dim=2)], dim=2)

    report = judged(rotary, asked(), dtype=dtype, shift=shift and moved)
    assert codes(report) == ["cache-shift"] * (how is not None)
    rel = max(1e-5, torch.finfo(dtype).eps)
    for found in report.findings:
        assert variant(found) == how and f"{SHIFT:+d}" in words(found)
        numbers = [float(each) for each in words(found) if re.fullmatch(r"\d+\.\d+", each)]
        assert factor is None or numbers == [pytest.approx(factor, rel=rel)]


@pytest.mark.parametrize(
    ("suffix", "axes", "head_dim", "heads"),
    [
        *(
            ("safetensors", "bhsd", D, (2, 1)),
            ("npz", "bshd", D, (2, 1)),
            ("json", "bhsd", 8, (2, 1)),
        ),
        # as many heads as tokens
        *(("npz", "bhsd", 8, (7, 7)), ("npz", "bshd", 8, (7, 7)), ("npz", "bshd", 8, (7, 1))),
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
    assert str(diagnose_answers(answers, probes)) == str(direct)


@pytest.mark.parametrize("call", ["00", "14", "27", "39"])
def test_what_is_not_finite_is_found_wherever_it_is(asked, tmp_path, call):
    probes, path = asked(), tmp_path / "a.safetensors"
    answer(ROTARY, probes, path, shift=back(ROTARY))
    told, ids = read(path), read(probes)[f"{call}.position_ids"]
    told[f"{call}.k"][..., -3:, 3] = torch.nan
    write(path, told)
    (found,) = diagnose_answers(path, probes).findings
    assert found.code == "not-finite" and str(int(ids[:, -3:].min())) in words(found)


def test_a_key_of_another_format_than_its_query_is_judged_in_it(asked, judged):
    def mixed(q, k, ids):
        q, k = ROTARY(q, k, ids)
        return q, k.bfloat16().float()

    assert judged(mixed, asked()).ok


def test_calls_of_several_rows_or_of_one_token_may_be_left_out(asked, tmp_path):
    probes, path = asked(), tmp_path / "answers.safetensors"
    answer(ROTARY, probes, path)
    told = read(path)

    def without(left_out):
        write(path, {name: x for name, x in told.items() if not left_out(x.shape)})
        return diagnose_answers(path, probes)

    assert codes(without(lambda shape: shape[0] == 3 and shape[2] == 7)) == ["refused"]
    assert codes(without(lambda shape: shape[2] == 1)) == ["refused"]
    with pytest.raises(ValueError, match=r"00\.[qk].*\[1, "):
        without(lambda shape: shape[0] == 1 and shape[2] == 7)


SPOILED = {
    "shape": lambda told: told.update({"00.q": told["00.q"].transpose(1, 2)}),
    "row": lambda told: told.update({"00.k": told["00.k"][:, :, 1:]}),
    "name": lambda told: told.update({"0.q": told.pop("00.q")}),
}


@pytest.mark.parametrize("case", SPOILED)
def test_what_is_no_answer_is_rejected(asked, tmp_path, case, capsys):
    probes, path = asked(), tmp_path / "a.npz"
    answer(ROTARY, probes, path)
    told = read(path)
    SPOILED[case](told)
    write(path, told)
    assert main(["answers", str(path), "--probes", str(probes)]) == 2
    assert re.search(r"00\.[qk].*\[1, [24], 7, 32\]", capsys.readouterr().err)


REJECTED = [
    ("probes --head-dim 64 -o {}/x.txt", "x.txt", ".safetensors"),
    ("probes --head-dim 63 -o {}/x.npz", "head_dim", "63"),
    ("probes -o {}/x.npz", "head_dim", "None"),
    ("probes --head-dim 8 --axes sbhd", "axes", "'sbhd'"),
    ("probes --head-dim 8 --length 64", "max_position", "64"),
    (f"probes --head-dim 8 --length {2**31}", "max_position", "2**31"),
    ("probes mine.npz --head-dim 8", "-o", "probes"),
    ("probes --head-dim 8 -o {}/no/x.npz", "folder", "/no"),
    ("answers -o x.npz", "-o", "probes"),
    *((f"answers {{}}/x.{kind} --probes {{}}/x.{kind}", f"x.{kind}") for kind in ("npz", "json")),
    ("answers {}/x.safetensors --probes {}/x.safetensors", "x.safetensors"),
    ("answers {}/x.npz --probes {}/none.npz", "none.npz"),
    ("answers {}/empty.json --probes {}/empty.json", "empty.json", "write_probes"),
]


def test_what_is_no_file_of_tensors_is_rejected(tmp_path, capsys):
    for suffix in ("safetensors", "npz", "json"):
        (tmp_path / f"x.{suffix}").write_text("{}x")
    write(tmp_path / "empty.json", {"x": torch.ones(1)})
    for command, *told in REJECTED:
        assert main(command.replace("{}", str(tmp_path)).split()) == 2
        message = capsys.readouterr().err
        assert all(each in message for each in told), message
