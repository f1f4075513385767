"""The error report: its oracle, its committed figures, and the field's defects it is about."""

import json

import mpmath
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rope import RotaryEmbedding, inverse_frequencies, rotary_tables
from rope.accuracy import RESULT, pairs, peers, relativity, report, tables, truth
from rope.accuracy.__main__ import main
from rope.accuracy.cases import CASES, PEER_BASES, QUICK_CASES, Case, fingerprint
from rope.extensions import REGISTRY, Default, YaRN
from rope.measuring.record import layout

HALF_UNIT = 2.0**-25  # the rounding of a cosine to float32
ANGLE = 2.0**-30  # what a float64 angle may be off by, up to 2**20
COMMITTED = json.loads(RESULT.read_text(encoding="utf-8"))
DTYPE = {"float32": torch.float32, "float64": torch.float64}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """The quick form of the report, through the command."""
    pytest.importorskip("transformers")
    pytest.importorskip("rotary_embedding_torch")
    path = tmp_path_factory.mktemp("accuracy") / "quick.json"
    assert main(["--quick", str(path)]) == 0
    assert [entry.name for entry in path.parent.iterdir()] == ["quick.json"]
    return json.loads(path.read_text(encoding="utf-8"))


def test_cheap_rows_are_as_exact_as_their_bound():
    theta = truth.spectrum(128, 10000.0, Default())[:8]
    rows = truth.Rows(theta)
    generator = torch.Generator().manual_seed(0)
    chosen = [0, 1, 31, 32, 1023, 1024, 2**20, *torch.randint(2**20, (50,), generator=generator)]
    for position in map(int, chosen):
        start = position - position % 1024
        block = rows.block(start, position + 1)
        for j, exact in enumerate(truth.exact_row(position, theta)):
            for table, value in zip(block, exact, strict=True):
                assert abs(mpmath.mpf(table[-1, j].item()) - value) < truth.ROWS_ERROR


def test_rows_refuse_what_they_do_not_hold():
    rows = truth.Rows([mpmath.mpf(1)])
    for start, stop in ((5, 9), (0, 0), (2**21, 2**21 + 1), (-1024, 5)):
        with pytest.raises(ValueError, match=f"start is {start} and stop {stop}.*: round start"):
            rows.block(start, stop)


def test_committed_figures_are_this_programs():
    assert COMMITTED["program"] == fingerprint() != fingerprint(quick=True)
    assert set(COMMITTED["versions"]) == set(report.PACKAGES)
    assert layout(COMMITTED) + "\n" == RESULT.read_text(encoding="utf-8")
    found = [
        (row["base"], row["settings"], row["dim"], row["dtype"]) for row in COMMITTED["tables"]
    ]
    assert found == [(c.base, c.settings, c.dim, kind) for c in CASES for kind in DTYPE]
    assert {row["extension"] for row in COMMITTED["tables"]} == set(REGISTRY)
    assert COMMITTED["peers"]["positions"] == [round(2 ** (step / 2)) for step in range(41)]
    assert all(len(errors) == 41 for errors in COMMITTED["peers"]["base_10000"].values())
    assert len(RESULT.read_bytes()) < 50_000


@pytest.mark.parametrize("source", ["committed", "fresh"])
def test_every_error_is_within_its_bound(source, request):
    """An attention factor above 1 lifts entries to where a unit is twice as large."""
    figures = COMMITTED if source == "committed" else request.getfixturevalue("fresh")
    cases = [case for case in (CASES if source == "committed" else QUICK_CASES) for _ in DTYPE]
    for case, row in zip(cases, figures["tables"], strict=True):
        unit = 2 if case.extension.attention_scaling > 1 else 1
        rounding = 0.0 if row["dtype"] == "float64" else unit * HALF_UNIT
        assert row["max_error"] <= rounding + ANGLE, row
        assert row["bound"] == report.rounded(rounding + ANGLE)
    for row in figures["pairs"]:
        assert row["max_error"] <= (1 if row["dtype"] == "float64" else 2), row
    for base in PEER_BASES:
        assert max(figures["peers"][f"base_{base:.0f}"]["ours"]) <= HALF_UNIT + ANGLE


def test_committed_errors_are_found_again_where_they_are_said_to_be():
    """Where another machine's `pow` rounds a frequency the other way, they move by 2**-30."""
    cases = [case for case in CASES for _ in DTYPE]
    for case, row in zip(cases, COMMITTED["tables"], strict=True):
        [errors] = tables.errors_at(case, [row["position"]], DTYPE[row["dtype"]])
        assert abs(errors[row["plane"]] - row["max_error"]) < ANGLE, row


def test_the_quick_report_repeats_the_committed_figures(fresh):
    assert fresh["program"] == fingerprint(quick=True)
    assert [row["extension"] for row in fresh["tables"][::2]] == [
        case.extension.name for case in QUICK_CASES
    ]
    largest = {(c["base"], c["settings"], c["dtype"]): c["max_error"] for c in COMMITTED["tables"]}
    for row in fresh["tables"]:  # a sample cannot beat a pass over everything
        assert row["max_error"] <= largest[row["base"], row["settings"], row["dtype"]] + ANGLE
    if fresh["versions"] != COMMITTED["versions"]:
        pytest.skip(
            f"the figures are those of {COMMITTED['versions']}: run python -m rope.accuracy"
        )
    for section in ("pairs", "relativity"):
        for new, old in zip(fresh[section], COMMITTED[section], strict=True):
            assert new.keys() == old.keys()
            for key, value in new.items():  # a unit of the last of three digits
                same = value if isinstance(value, str) else pytest.approx(value, rel=0.01)
                assert old[key] == same, (new, old)
    for base in PEER_BASES:
        new, old = (figures["peers"][f"base_{base:.0f}"] for figures in (fresh, COMMITTED))
        assert list(new) == list(old) == sorted(recipe.__name__ for recipe in peers.RECIPES)
        assert all(new[name] == pytest.approx(old[name], rel=0.01) for name in new)


def test_a_wrong_table_is_found(monkeypatch):
    case = Case(10000.0, Default(), 8)
    monkeypatch.setattr(tables, "our_tables", lambda case, m, dtype: narrow_tables(case, m, dtype))
    assert max(row["max_error"] for row in tables.measure_sample(case, int)) > 1e-3
    x, y = pairs.random_pairs(torch.float32, 2)
    turned = rotary_tables(torch.tensor([3, 4]), inverse_frequencies(128))
    exact = [table.double() for table in rotary_tables(2, inverse_frequencies(128))]
    assert pairs.pair_error((x, y), turned, exact, interleaved=False) > 1e3


def narrow_tables(case, positions, dtype):
    angle = positions[:, None].float() * inverse_frequencies(case.dim, case.base).float()
    return angle.cos().to(dtype), angle.sin().to(dtype)


def test_a_wrong_oracle_is_found(monkeypatch):
    monkeypatch.setattr(tables, "spectrum", lambda *_: [mpmath.mpf(1) + mpmath.mpf(2) ** -40])
    monkeypatch.setattr(tables, "errors_at", lambda *_: [[0.0]])
    monkeypatch.setattr(tables, "LARGEST", 4095)
    with pytest.raises(RuntimeError, match=r"addition theorem .* 50 digits; they must agree"):
        tables.measure_all(Case(10000.0, Default(), 2), int)


def test_an_interrupted_report_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    ran, path = [], tmp_path / "out.json"

    def job(name, stops=False):
        def run(advance):
            ran.append(name)
            if stops and len(ran) < 3:
                raise KeyboardInterrupt
            return {"name": name, "value": 0.123456}

        return "relativity", name, 1, run

    monkeypatch.setattr(report, "jobs", lambda *, quick: [job("one"), job("two", stops=True)])
    assert main(["--quick", str(path)]) == 130
    assert "run it again" in capsys.readouterr().err
    assert not path.exists()
    assert main(["--quick", str(path)]) == 0
    assert ran == ["one", "two", "two"]
    written = json.loads(path.read_text())["relativity"]
    assert written == [{"name": "one", "value": 0.123}, {"name": "two", "value": 0.123}]
    assert not path.with_suffix(".partial.json").exists()


def test_what_another_program_measured_is_not_resumed(tmp_path):
    kept = tmp_path / "a.partial.json"
    kept.write_text(json.dumps({"program": "other", "done": {"a": 1}}))
    assert report.resume(kept, "this") == {}
    assert report.resume(kept, "other") == {"a": 1}
    kept.write_text("{")
    assert report.resume(kept, "other") == {}


def test_bf16_inputs_do_not_make_bf16_positions():
    """rotary-embedding-torch counts positions in the vectors' dtype, and caches what it counted."""
    theirs = pytest.importorskip("rotary_embedding_torch").RotaryEmbedding(dim=128)
    assert theirs.get_seq_pos(2048, dtype=torch.bfloat16).unique().numel() == 641
    x = torch.zeros(1, 1, 2048, 128)
    x[..., 0::2] = 1  # pairs (1, 0), which turn to (cos, sin)
    narrow, exact = x.bfloat16(), rotary_tables(2048, inverse_frequencies(128))[0]
    eps = torch.finfo(torch.bfloat16).eps
    assert (theirs.rotate_queries_or_keys(narrow)[0, 0, :, 0::2] - exact).abs().max() > 1
    assert (theirs.rotate_queries_or_keys(x)[0, 0, :, 0::2] - exact).abs().max() > 1  # float32!

    ours = RotaryEmbedding(128, interleaved=True)
    assert (ours.rotate(narrow)[0, 0, :, 0::2] - exact).abs().max() <= eps / 2
    assert torch.equal(ours.rotate(x)[0, 0, :, 0::2], exact)


def test_casting_the_model_leaves_the_tables_exact():
    """transformers casts inv_freq with the model, and takes a cast back for exact."""
    pytest.importorskip("transformers")
    positions = torch.arange(4096)
    exact = rotary_tables(4096, inverse_frequencies(128), dtype=torch.float64)[0]
    off = (peers.transformers_bfloat16(positions, 10000.0) - exact).abs().max()
    assert f"{off:.1f}" == "2.0"
    module = peers._llama(10000.0).to(torch.bfloat16).float()
    assert (module(torch.zeros(1), positions[None])[0][0, :, :64] - exact).abs().max() == off

    for cast in (torch.nn.Module.bfloat16, torch.nn.Module.half, torch.nn.Module.double):
        ours = cast(RotaryEmbedding(128, 4096))
        assert ours.cos.dtype == torch.float32
        assert (ours.cos - exact).abs().max() <= HALF_UNIT + ANGLE
        assert torch.equal(ours.inv_freq, inverse_frequencies(128))


PRODUCTS = ("mm", "matmul", "dot", "einsum", "outer", "ger", "mv", "linear", "kron", "conv")


class Functions(TorchFunctionMode):
    """The names of torch functions as they are called, before any is taken apart."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        NAMES.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    """The names of the operations that run in the end."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        NAMES.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


NAMES = []


def products(call):
    """Every name with a product of matrices or vectors in it that `call` uses."""
    NAMES.clear()
    with Functions(), Operations():
        call()
    assert {"mul", "mm", "bmm"} & set(NAMES)  # the recording works
    return {name for name in NAMES if any(part in name for part in PRODUCTS)}


def test_angles_are_never_a_matmul():
    """TF32, where it is switched on, rounds the positions of a matmul past 2,048."""
    row = torch.arange(4.0)
    assert products(lambda: torch.outer(row, row))
    assert products(lambda: torch.einsum("i,j->ij", row, row))
    assert products(lambda: row[:, None] @ row[None])
    x = torch.ones(1, 2, 8, 128)
    for extension in dict.fromkeys(case.extension for case in CASES if case.dim == 128):
        rotary = RotaryEmbedding(128, 4, extension=extension)
        assert not products(lambda r=rotary: r(x.double(), x.double(), seq_len=10**6))
        assert not products(lambda r=rotary: r(x, x))  # grows
    assert not products(lambda: RotaryEmbedding(64, 8, extension=YaRN(32.0, 4096, truncate=False)))


@pytest.mark.parametrize(
    ("last", "published"), [(8191, 2.8e-4), (131071, 4.2e-3), (1048575, 2.5e-2)]
)
def test_float32_angles_of_the_field(last, published):
    """The last positions of 8K, 131K and 1M, base 10,000, d = 128; ours stays at 3e-8."""
    pytest.importorskip("transformers")
    position = torch.tensor([last])
    exact, _ = truth.exact_rows([last], truth.spectrum(128, 10000.0, Default()))
    for recipe in (peers.float32_angles, peers.transformers_float32):
        off = float((recipe(position, 10000.0) - exact).abs().max())
        assert off == pytest.approx(published, rel=0.02)  # two digits were published
    ours = float((peers.ours(position, 10000.0) - exact).abs().max())
    assert 2.5e-8 < ours <= HALF_UNIT + ANGLE


def test_relativity_suffers_from_rounded_tables_as_published():
    """Published without vectors or seed: the size must agree, within a factor of 1.5."""
    found = {row["dtype"]: row for row in COMMITTED["relativity"]}
    for dtype, published in (("bfloat16", 0.084), ("float16", 0.0135), ("float32", 1.6e-6)):
        assert 1 / 1.5 < found[dtype]["score_error_norm_sqrt_dim"] / published < 1.5
    assert found["bfloat16"]["norm_error"] == pytest.approx(0.0028, rel=0.02)
    assert set(found) == {str(dtype).removeprefix("torch.") for dtype in relativity.DTYPES}
