"""Test the accuracy report: its oracle, the shipped errors, and published float32 errors."""

import json

import mpmath
import pytest
import torch

from rope import inverse_frequencies, rotary_tables
from rope.book.measured import accuracy, truth
from rope.book.measured.accuracy import CASES
from rope.book.measured.record import RECORDED, layout, recorded, rounded
from rope.extensions import REGISTRY, Default

HALF_UNIT = 2.0**-25  # the rounding of a cosine to float32
ANGLE = 2.0**-30  # the largest error of a float64 angle up to 2**20
SHIPPED = recorded("accuracy")
DTYPE = {"float32": torch.float32, "float64": torch.float64}
#: Pairs of a case and its row in the shipped report, one pair per dtype.
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
    assert layout(SHIPPED) + "\n" == (RECORDED / "accuracy.json").read_text(encoding="utf-8")
    rows = [(row["base"], row["settings"], row["dim"], row["dtype"]) for row in SHIPPED["tables"]]
    assert rows == [(c.base, c.settings, c.dim, kind) for c in CASES for kind in DTYPE]
    assert {row["extension"] for row in SHIPPED["tables"]} == set(REGISTRY)


def test_shipped_errors_are_within_their_bounds_and_found_again():
    """Check shipped errors to within 2**-30, since another machine's `pow` may round differently.

    An attention factor above 1 raises entries above 1, where a unit in the last place doubles.
    """
    for case, row in ROWS:
        unit = 2 if case.extension.attention_scaling > 1 else 1
        rounding = 0.0 if row["dtype"] == "float64" else unit * HALF_UNIT
        assert row["max_error"] <= rounding + ANGLE and row["bound"] == rounded(rounding + ANGLE)
        [errors] = accuracy.errors_at(case, [row["position"]], DTYPE[row["dtype"]])
        assert abs(errors[row["plane"]] - row["max_error"]) < ANGLE, row


def test_no_sample_beats_the_pass_over_everything():
    """Check every second extension, each with a different base."""
    near = {2**power + step for power in range(21) for step in (-1, 0, 1)} - {2**20 + 1}
    for number in range(0, len(CASES) // 4, 2):
        for case, row in ROWS[8 * number + 2 * (number % 4) :][:2]:
            errors = accuracy.errors_at(case, near, DTYPE[row["dtype"]])
            assert max(map(max, errors)) <= min(row["max_error"] + ANGLE, row["bound"]), row


def test_the_program_measures_up_to_a_position(tmp_path, monkeypatch):
    monkeypatch.setattr(accuracy, "LARGEST", 5000)
    monkeypatch.setattr(accuracy, "CASES", CASES[:1])
    accuracy.main(tmp_path / "accuracy.json")
    written = json.loads((tmp_path / "accuracy.json").read_text(encoding="utf-8"))
    for new, old in zip(written["tables"], SHIPPED["tables"], strict=False):
        assert new.keys() == old.keys() and new["position"] <= 5000
        assert 0 < new["max_error"] <= old["max_error"]


@pytest.mark.parametrize(
    ("last", "published"), [(8191, 2.8e-4), (131071, 4.2e-3), (1048575, 2.5e-2)]
)
def test_float32_angles_are_off_as_published(last, published):
    """Check the last positions of 8K, 131K and 1M with base 10,000 and d = 128.

    The error of our tables stays at 3e-8.
    """
    exact, _ = truth.exact_rows([last], truth.spectrum(128, 10000.0, Default()))
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, 128, 2).float() / 128)
    theirs = (last * frequencies).cos()
    ours, _ = rotary_tables(torch.tensor([last]), inverse_frequencies(128))
    assert float((theirs - exact).abs().max()) == pytest.approx(published, rel=0.02)  # two digits
    assert 2.5e-8 < float((ours - exact).abs().max()) <= HALF_UNIT + ANGLE
