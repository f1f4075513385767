"""Two files instead of a call: the same report, for engines that are no Python and not ours."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from engines import answer
from test_config_models import configuration, layer_types
from test_diagnose import FAULTS, RIGHT, D, stateful
from test_diagnose_corpus import DEFECTS, MODELS, load, rotation_of

import rope
from rope.config import rotary_settings
from rope.diagnose import diagnose
from rope.diagnose.__main__ import main
from rope.diagnose.files import read, write
from rope.diagnose.replay import SHIFT, diagnose_answers, write_probes
from rope.extensions import YaRN

HERE = Path(__file__).parent
# What a file cannot show: writing into the input, the dtype that an input had, and a NaN's begin.
UNSEEN = {
    "lucidrains_xpos_dtype", "modalities_activation_dtype", "neox_returns_float32",
    "unsloth_in_place", "in place", "float32 back", "ids of the vectors' dtype",
    "products in bfloat16",
}  # fmt: skip
FAR = "positions up to 131071 give sizes 1000 times as large as others"
SIZES = {"key stretched like its query", "decay of the query alone"}
# Functions that refuse a call, or a dtype; an engine leaves it out, or has one dtype.
REFUSES = {
    "few tokens a call", "reach", "ids along the heads", "one row at a time", "float64 alone",
    "bfloat16 alone", "xpos in bfloat16 alone, whose centre is far", "xpos from the middle",
}  # fmt: skip


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The probes for a width, written once each."""
    folder = tmp_path_factory.mktemp("probes")

    def path(head_dim=D, num_kv_heads=2, max_position=1 << 17):
        made = folder / f"{head_dim}-{num_kv_heads}-{max_position}.safetensors"
        if not made.exists():
            write_probes(
                made, head_dim, num_heads=4, num_kv_heads=num_kv_heads, max_position=max_position
            )
        return made

    return path


@pytest.fixture
def judged(tmp_path):
    def report(rotate, probes, expected=None, cache=False, **options):
        answer(rotate, probes, tmp_path / "answers.safetensors", **options)
        path = tmp_path / "answers.safetensors"
        return diagnose_answers(path, probes, expected=expected, cache=cache)

    return report


def codes(report):
    return [each.code for each in report.findings]


@pytest.mark.parametrize("path", DEFECTS, ids=lambda path: path.stem)
def test_a_public_defect_is_named_as_of_a_function(path, asked, judged):
    defect = load(path)
    probes, against = asked(64, getattr(defect, "HEADS", 2)), getattr(defect, "AGAINST", None)
    report = judged(defect.rotate, probes, against)
    # Positions in half precision end at 65,504, and of infinity comes NaN.
    expected = "not-finite" if path.stem == "gpt_neox_half_angles" else defect.EXPECTED
    assert report.ok if path.stem in UNSEEN else codes(report) == [expected], report


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in REFUSES])
def test_a_fault_is_named_as_of_a_function(name, asked, judged):
    code, rotate = FAULTS[name] if name != "state" else ("stateful", stateful())
    if name in SIZES:
        with pytest.raises(ValueError, match=FAR):
            judged(rotate, asked())
        rotate, probes = FAULTS[name][1], asked(max_position=256)
        assert codes(judged(rotate, probes)) == [code]
    else:
        report = judged(rotate, asked())
        assert report.ok if name in UNSEEN else codes(report) == [code], report


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [name for name in RIGHT if name not in REFUSES])
def test_a_right_one_is_not_accused(name, dtype, asked, judged):
    decays = "xpos" in name or name == "retention"
    probes = asked(max_position=256 if decays else 1 << 17)
    report = judged(RIGHT[name], probes, dtype=dtype)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", MODELS.split())
def test_a_model_of_transformers_is_not_accused(model_type, asked, judged):
    config, facts = configuration(model_type)
    for layer_type in layer_types(facts):
        settings = rotary_settings(facts, layer_type=layer_type)
        width = settings.head_dim if model_type in ("gptj", "codegen") else settings.dim
        width = 64 if model_type == "roformer" else width
        table = 4096 if model_type in ("gptj", "codegen", "roformer") else 1 << 17
        rotate = rotation_of(config, layer_type)
        report = judged(rotate, asked(width, max_position=table), settings)
        assert report.ok, (layer_type, str(report))
        assert report.query.layout == ("interleaved" if settings.interleaved else "half")


def run(*words, **files):
    """A program that reads one file and writes another; the page's own way to call one."""
    with files["probes"].open("rb") as probes, files["answers"].open("wb") as answers:
        subprocess.run(words, stdin=probes, stdout=answers, check=True, timeout=120)


def compiled(source, folder):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler in the PATH")
    (folder / "engine.c").write_text(source)
    words = [compiler, "-O2", folder / "engine.c", "-o", folder / "engine", "-lm"]
    subprocess.run(words, check=True, timeout=120)
    return folder / "engine"


C = (HERE / "foreign/ggml.c").read_text()
# What is changed in the C program to what, and how the command then names it.
COSINE = "*a = x0 * cosf(theta) - x1 * sinf(theta)"
IN_C = [
    ("", "", ""),
    ("x0 * sinf(theta) + x1", "x0 * sinf(theta) - x1", "pairing"),
    ("theta = pos[token * step]", "theta = 2.0f * pos[token * step]", "frequencies"),
    ("theta = pos[token * step]", "theta = pos[token * step] % 4096", "wraps"),
    (COSINE, COSINE.replace("= x0", "= 1.25f * x0"), "pairing"),
    ("rope(x, shape, shift, 0,", "rope(x, shape, pos, 1,", "cache-shift"),
]


@pytest.mark.parametrize(("old", "new", "code"), IN_C)
def test_a_program_in_c_is_diagnosed(tmp_path, capsys, old, new, code):
    assert old in C
    engine = compiled(C.replace(old, new) if old else C, tmp_path)
    probes, answers = tmp_path / "probes.safetensors", tmp_path / "answers.safetensors"
    words = ["probes", "--head-dim", "128", "--axes", "bshd", "-o", str(probes)]
    assert main(words) == 0 and probes.stat().st_size < 5_000_000
    for mode, layout in (("neox", "half"), ("norm", "interleaved")):
        run(engine, mode, "10000", probes=probes, answers=answers)
        status = main(["answers", str(answers), "--probes", str(probes)])
        out = capsys.readouterr().out
        assert status == bool(code) and (f"fault {code}" in out or not code), out
        assert code or f"query: {layout}, rotary_dim 128; base 9999.98, Default()" in out


def test_a_program_in_javascript_is_diagnosed(tmp_path, capsys):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node in the PATH")
    probes, answers = tmp_path / "probes.json", tmp_path / "answers.json"
    assert main(["probes", "--head-dim", "128", "-o", str(probes)]) == 0
    assert probes.stat().st_size < 5_000_000
    page = json.loads((HERE.parent / "chapters/is_my_rope_right.ipynb").read_text())
    text = "".join(line for cell in page["cells"] for line in cell["source"])
    (tmp_path / "engine.mjs").write_text(text.partition("```js\n")[2].partition("```")[0])
    run(node, tmp_path / "engine.mjs", "500000", probes=probes, answers=answers)
    config = tmp_path / "config.json"
    facts = {"model_type": "llama", "head_dim": 128, "max_position_embeddings": 8192}
    for theta, status in ((5e5, 0), (1e4, 1)):
        config.write_text(json.dumps(facts | {"rope_theta": theta}))
        words = ["answers", str(answers), "--probes", str(probes), "--expected", str(config)]
        assert main(words) == status
        out = capsys.readouterr().out
        assert "query: half, rotary_dim 128; base 500000, Default()" in out
        assert ("fault frequencies" in out) == bool(status)
    # Fewer digits than float32 has read as a rounded table.
    told = json.loads(answers.read_text())
    for tensor in told.values():
        tensor["data"] = [round(x, 3) for x in tensor["data"]]
    answers.write_text(json.dumps(told))
    assert codes(diagnose_answers(answers, probes)) == ["low-precision-tables"]


@pytest.mark.parametrize("interleaved", [0, 1])
def test_the_operator_of_onnx_runtime_is_diagnosed(tmp_path, interleaved):
    onnx, onnxruntime = (pytest.importorskip(name) for name in ("onnx", "onnxruntime"))
    names, table = ["x", "cos", "sin", "position_ids"], (1 << 17, 32)
    shapes = [("B", "H", "S", 64), table, table, ("B", "S"), ("B", "H", "S", 64)]
    kinds = [onnx.TensorProto.FLOAT] * 3 + [onnx.TensorProto.INT64, onnx.TensorProto.FLOAT]
    each = zip([*names, "y"], kinds, shapes, strict=True)
    *inputs, output = (onnx.helper.make_tensor_value_info(*facts) for facts in each)
    node = onnx.helper.make_node("RotaryEmbedding", names, ["y"], interleaved=interleaved)
    graph = onnx.helper.make_graph([node], "rotation", inputs, [output])
    opset = [onnx.helper.make_opsetid("", 23)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=10)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    angles = torch.arange(1 << 17)[:, None] * rope.inverse_frequencies(64)
    tables = {"cos": angles.cos().float().numpy(), "sin": angles.sin().float().numpy()}

    def rotate(q, k, ids):
        given = tables | {"position_ids": ids.numpy()}
        return [torch.from_numpy(session.run(None, given | {"x": x.numpy()})[0]) for x in (q, k)]

    probes, answers = tmp_path / "probes.npz", tmp_path / "answers.npz"
    write_probes(probes, 64)
    answer(rotate, probes, answers)
    report = diagnose_answers(answers, probes)
    assert report.ok, str(report)
    assert report.query.layout == ("interleaved" if interleaved else "half")
    assert report.query.base == 10000


ROTARY = rope.RotaryEmbedding(D)
STRETCHED = rope.RotaryEmbedding(D, extension=YaRN(4.0, 4096))
FACTOR = STRETCHED.extension.attention_scaling


def back(rotary, factor=1.0):
    """Move keys by a negative number of positions, times a factor."""
    return lambda k, by: rotary.rotate(k, offset=-by, inverse=True) * factor


IN_CACHE = {
    "right": (ROTARY, back(ROTARY), None),
    "left out": (ROTARY, None, None),
    "still": (ROTARY, lambda k, by: k, "is left where it was"),
    "reversed": (ROTARY, lambda k, by: ROTARY.rotate(k, offset=-by), "goes the other way"),
    "the factor again": (STRETCHED, back(STRETCHED, FACTOR**2), "is multiplied by 1.13"),
    "another base": (ROTARY, back(rope.RotaryEmbedding(D, base=5e5)), "is off by"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", IN_CACHE)
def test_keys_moved_in_a_cache_are_compared_with_those_rotated_there(name, dtype, asked, judged):
    rotary, shift, said = IN_CACHE[name]

    def moved(k, by):  # all tokens by the same, as a cache moves
        return torch.cat([shift(x, by) for x in k.split(1, dim=2)], dim=2)

    report = judged(rotary, asked(), dtype=dtype, shift=shift and moved)
    assert codes(report) == (["cache-shift"] if said else [])
    assert not said or f"shifted by {SHIFT:+d}, {said}" in report.findings[0].sentence


@pytest.mark.parametrize("axes", ["bhsd", "bshd"])
@pytest.mark.parametrize("suffix", ["safetensors", "npz", "json"])
def test_each_format_and_order_of_axes_gives_the_report_of_the_call(tmp_path, suffix, axes):
    if suffix == "safetensors":
        pytest.importorskip("safetensors")
    probes, answers = tmp_path / f"probes.{suffix}", tmp_path / f"answers.{suffix}"
    count = write_probes(probes, D, axes=axes)
    tensors = read(probes)
    assert {name.partition(".")[0] for name in tensors} == {f"{i:02d}" for i in range(count)}

    def engine(q, k, ids):
        if axes == "bhsd":
            return ROTARY(q, k, ids)
        return [x.transpose(1, 2) for x in ROTARY(q.transpose(1, 2), k.transpose(1, 2), ids)]

    answer(engine, probes, answers)
    assert str(diagnose_answers(answers, probes)) == str(
        diagnose(ROTARY, D, num_heads=2, num_kv_heads=1, dtype=torch.float32)
    )


@pytest.mark.parametrize("axes", ["bhsd", "bshd"])
@pytest.mark.parametrize("heads", [(7, 7), (7, 1), (1, 1)])
def test_as_many_heads_as_tokens_are_no_tokens(tmp_path, heads, axes):
    probes, answers = tmp_path / "probes.safetensors", tmp_path / "answers.safetensors"
    write_probes(probes, 8, num_heads=heads[0], num_kv_heads=heads[1], axes=axes)
    rotary = rope.RotaryEmbedding(8)

    def engine(q, k, ids):
        if axes == "bhsd":
            return rotary(q, k, ids)
        return [x.transpose(1, 2) for x in rotary(q.transpose(1, 2), k.transpose(1, 2), ids)]

    answer(engine, probes, answers)
    assert diagnose_answers(answers, probes).ok


@pytest.mark.parametrize("call", ["00", "05", "14", "26", "27", "28", "32", "36", "38", "39"])
def test_what_is_not_finite_is_found_wherever_it_is(asked, tmp_path, call):
    probes = asked()
    answer(ROTARY, probes, tmp_path / "a.safetensors", shift=back(ROTARY))
    told = read(tmp_path / "a.safetensors")
    told[f"{call}.k"][..., -1, 3] = torch.nan
    write(tmp_path / "a.safetensors", told)
    assert codes(diagnose_answers(tmp_path / "a.safetensors", probes)) == ["not-finite"]


def test_a_key_of_another_format_than_its_query_is_judged_in_it(asked, judged):
    def mixed(q, k, ids):
        q, k = ROTARY(q, k, ids)
        return q, k.bfloat16().float()

    assert judged(mixed, asked()).ok


@pytest.mark.parametrize("factor", [1.03, 0.97])
def test_a_small_factor_on_moved_keys_is_seen_in_16_bits(asked, judged, factor):
    report = judged(ROTARY, asked(), dtype=torch.bfloat16, shift=back(ROTARY, factor))
    assert codes(report) == ["cache-shift"]


def test_what_may_be_left_out(asked, judged, tmp_path):
    probes = asked()
    answer(ROTARY, probes, tmp_path / "all.safetensors")
    told, ids = read(tmp_path / "all.safetensors"), read(probes)
    for rows, tokens, note in ((3, 7, ["refused"]), (None, 1, ["refused"]), (1, 7, None)):
        kept = {
            name: x
            for name, x in told.items()
            if not (rows in (None, x.shape[0]) and x.shape[2] == tokens)
        }
        write(tmp_path / "some.safetensors", kept)
        if note is not None:
            assert codes(diagnose_answers(tmp_path / "some.safetensors", probes)) == note
            continue
        with pytest.raises(ValueError, match=r"00.[qk] is not there; it must be \[1, "):
            diagnose_answers(tmp_path / "some.safetensors", probes)
    assert ids["00.position_ids"].dtype == torch.int32


def spoil(tensors, case):
    first, *_, last = sorted(tensors)
    if case == "shape":
        tensors[first] = tensors[first].transpose(1, 2)
    if case == "row":
        tensors[first] = tensors[first][:, :, 1:]
    if case == "name":
        tensors["0.q"] = tensors.pop("00.q")
    return tensors, last


@pytest.mark.parametrize("case", ["shape", "row", "name"])
def test_what_is_no_answer_gets_a_sentence(asked, tmp_path, case, capsys):
    probes = asked()
    answer(ROTARY, probes, tmp_path / "a.npz")
    tensors, _ = spoil(read(tmp_path / "a.npz"), case)
    write(tmp_path / "a.npz", tensors)
    assert main(["answers", str(tmp_path / "a.npz"), "--probes", str(probes)]) == 2
    assert "; it must be [1, " in capsys.readouterr().err


def test_what_is_no_file_of_tensors_gets_a_sentence(tmp_path, capsys):
    for suffix in ("safetensors", "npz", "json"):
        path = tmp_path / f"x.{suffix}"
        path.write_text("{}x")
        assert main(["answers", str(path), "--probes", str(path)]) == 2
        assert f"x.{suffix} is no .{suffix} of tensors" in capsys.readouterr().err
        assert main(["answers", f"{tmp_path}/none.{suffix}", "--probes", str(path)]) == 2
    for words, said in (
        (["probes", "--head-dim", "64", "-o", f"{tmp_path}/x.txt"], "x.txt must end in .safetens"),
        (["probes", "--head-dim", "63", "-o", f"{tmp_path}/x.npz"], "head_dim is 63; it must be"),
        (["probes", "-o", f"{tmp_path}/x.npz"], "head_dim is None; it must be an integer"),
        (["probes", "--head-dim", "8", "--axes", "sbhd"], "axes is 'sbhd'; it must be 'bhsd' or"),
        (["probes", "--head-dim", "8", "--length", "64"], "max_position is 64; it must be at le"),
        (["probes", "--head-dim", "8", "--length", f"{2**31}"], "; it must be below 2**31"),
        (["probes", "mine.npz", "--head-dim", "8"], "probes are written to -o"),
        (["probes", "--head-dim", "8", "-o", f"{tmp_path}/no/x.npz"], "there is no folder"),
        (["answers", "-o", "x.npz"], "-o is for probes"),
    ):
        capsys.readouterr()
        assert main(words) == 2
        assert said in capsys.readouterr().err
    write(tmp_path / "empty.json", {"x": torch.ones(1)})
    with pytest.raises(ValueError, match="holds no probes: write them by write_probes"):
        diagnose_answers(tmp_path / "empty.json", tmp_path / "empty.json")
