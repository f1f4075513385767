"""Test the accuracy report: its oracle, the shipped errors, and published errors of others."""

import mpmath
import pytest
import torch

from rope.book.measured import accuracy, truth
from rope.book.measured.accuracy import CASES
from rope.book.measured.baselines import COSINES
from rope.book.measured.record import RECORDED, layout, recorded, rounded
from rope.extensions import REGISTRY, Default

HALF_UNIT = 2.0**-25  # the rounding of a cosine to float32
ANGLE = 2.0**-30  # the largest error of a float64 angle up to 2**20
SHIPPED = recorded("accuracy")
DTYPE = {"float32": torch.float32, "float64": torch.float64}
#: Each case of the report and each dtype, with its row.
ROWS = list(zip([case for case in CASES for _ in DTYPE], SHIPPED["tables"], strict=True))


def test_fast_rows_keep_to_their_bound():
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


def test_the_shipped_record_is_this_programs():
    assert SHIPPED["program"] == accuracy.fingerprint()
    assert set(SHIPPED["versions"]) == set(accuracy.PACKAGES)
    assert layout(SHIPPED) + "\n" == (RECORDED / "accuracy.json").read_text(encoding="utf-8")
    rows = [(row["base"], row["settings"], row["dim"], row["dtype"]) for row in SHIPPED["tables"]]
    assert rows == [(c.base, c.settings, c.dim, kind) for c in CASES for kind in DTYPE]
    assert {row["extension"] for row in SHIPPED["tables"]} == set(REGISTRY)
    assert SHIPPED["peers"]["positions"] == [round(2 ** (step / 2)) for step in range(41)]


def test_every_error_is_within_its_bound():
    """An attention factor above 1 raises entries to where a unit is twice as large."""
    for case, row in ROWS:
        unit = 2 if case.extension.attention_scaling > 1 else 1
        rounding = 0.0 if row["dtype"] == "float64" else unit * HALF_UNIT
        assert row["max_error"] <= rounding + ANGLE, row
        assert row["bound"] == rounded(rounding + ANGLE)
    for row in SHIPPED["pairs"]:
        assert row["max_error"] <= (1 if row["dtype"] == "float64" else 2) == row["bound"], row
    for base in accuracy.PEER_BASES:
        assert max(SHIPPED["peers"][f"base_{base:.0f}"]["ours"]) <= HALF_UNIT + ANGLE


def test_shipped_errors_are_found_again_at_their_places():
    """If another machine's `pow` rounds a frequency the other way, they move by 2**-30."""
    for case, row in ROWS:
        [errors] = accuracy.errors_at(case, [row["position"]], DTYPE[row["dtype"]])
        assert abs(errors[row["plane"]] - row["max_error"]) < ANGLE, row


def test_no_sample_beats_the_pass_over_everything():
    """Take every second extension once and every base in turn."""
    for number in range(0, len(CASES) // 4, 2):
        for case, row in ROWS[8 * number + 2 * (number % 4) :][:2]:
            errors = accuracy.errors_at(case, accuracy.sample_positions(), DTYPE[row["dtype"]])
            assert max(map(max, errors)) <= min(row["max_error"] + ANGLE, row["bound"]), row


def test_the_program_repeats_the_shipped_errors():
    """Except the tables, which take minutes."""
    pytest.importorskip("transformers")
    pytest.importorskip("rotary_embedding_torch")
    jobs = accuracy.jobs().items()
    fresh = {name: rounded(job()) for name, job in jobs if not name.startswith("tables")}
    pairs = [row for name in fresh if name.startswith("pairs") for row in fresh[name]]
    relativity = [fresh[name] for name in fresh if name.startswith("relativity")]
    assert all(row["max_error"] <= row["bound"] for row in pairs)
    if {name: accuracy.version_of(name) for name in accuracy.PACKAGES} != SHIPPED["versions"]:
        pytest.skip(
            f"the record is from {SHIPPED['versions']}: run python -m rope.book.measured.accuracy"
        )
    for new, old in zip(pairs + relativity, SHIPPED["pairs"] + SHIPPED["relativity"], strict=True):
        assert new.keys() == old.keys()
        for key, value in new.items():  # a unit of the last of three digits
            same = value if isinstance(value, str) else pytest.approx(value, rel=0.01)
            assert old[key] == same, (new, old)
    for base in accuracy.PEER_BASES:
        new, old = fresh[f"peers: base_{base:.0f}"], SHIPPED["peers"][f"base_{base:.0f}"]
        assert sorted(new) == list(old)
        assert all(new[name] == pytest.approx(old[name], rel=0.01) for name in new)


@pytest.mark.parametrize(
    ("last", "published"), [(8191, 2.8e-4), (131071, 4.2e-3), (1048575, 2.5e-2)]
)
def test_float32_angles_are_off_as_published(last, published):
    """At the last positions of 8K, 131K and 1M, base 10,000, d = 128; ours stays at 3e-8."""
    pytest.importorskip("transformers")
    position = torch.tensor([last])
    exact, _ = truth.exact_rows([last], truth.spectrum(128, 10000.0, Default()))
    for name in ("float32_angles", "transformers_float32"):
        off = float((COSINES[name](position, 10000.0) - exact).abs().max())
        assert off == pytest.approx(published, rel=0.02)  # two digits were published
    ours = float((COSINES["ours"](position, 10000.0) - exact).abs().max())
    assert 2.5e-8 < ours <= HALF_UNIT + ANGLE


def test_rounded_tables_break_relativity_as_published():
    """Published without vectors or seed, so only the size must agree, within a factor of 1.5."""
    rows = {row["dtype"]: row for row in SHIPPED["relativity"]}
    for dtype, published in (("bfloat16", 0.084), ("float16", 0.0135), ("float32", 1.6e-6)):
        assert 1 / 1.5 < rows[dtype]["score_error_norm_sqrt_dim"] / published < 1.5
    assert rows["bfloat16"]["norm_error"] == pytest.approx(0.0028, rel=0.02)
    assert set(rows) == {str(dtype).removeprefix("torch.") for dtype in accuracy.HALVES}
