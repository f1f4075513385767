"""Keys moved in the format they are stored in: the theorem's bounds, and the planes at rest."""

import json

import mpmath
import pytest
import torch
from strategies import normal

from rope import RotaryEmbedding, inverse_frequencies, reference
from rope.book.measured.accuracy import moving
from rope.book.measured.record import layout

HALVES = (torch.bfloat16, torch.float16)
COMMITTED = json.loads(moving.RESULT.read_text(encoding="utf-8"))


def test_rho_is_the_roundings_of_one_move():
    exact = (2 + mpmath.sqrt(2)) / 2**24
    for dtype, storage in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11), (None, 0.0)):
        assert abs(moving.rho(dtype or torch.float32) - storage - exact) < 2.0**-60


@pytest.mark.parametrize("dtype", moving.DTYPES)
def test_errors_are_those_of_the_matrices(dtype):
    """The keys of the program, moved by itself, against the definition's rotation in float64."""
    error, ratio = moving.moved(dtype, steps=3, delta=-5, keys=4)
    rotary, random = RotaryEmbedding(128), torch.Generator().manual_seed(moving.SEED)
    k = torch.randn(1, 1, 4, 128, generator=random, dtype=torch.float64).to(dtype)
    k = rotary.rotate(k, offset=moving.START)
    first = k[0, 0].double().numpy()
    theta = inverse_frequencies(128).numpy()
    for s in range(3):
        k = rotary.shift(k, -5)
        right = reference.rotate_matrix(first, [-5 * (s + 1)] * 4, theta, interleaved=False)
        off = (k[0, 0].double() - torch.tensor(right)).norm(dim=-1)
        size = torch.tensor(first).norm(dim=-1)
        assert error[s] == pytest.approx(float((off / size).max()), rel=1e-6, abs=1e-12)
    assert (ratio >= 1).all()


@pytest.mark.parametrize(("dtype", "delta"), [(torch.bfloat16, -300), (torch.float16, 7)])
def test_no_pair_exceeds_its_bound(dtype, delta):
    """By other steps than that of the record, which keeps the least ratio of its own."""
    assert (moving.moved(dtype, steps=200, delta=delta, keys=8).ratio >= 1).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_pairs_of_slow_planes_in_one_binade_stand(dtype):
    """All of them, by every move as far as the theorem has it, and none farther on."""
    u = torch.finfo(dtype).eps / 2
    rotary = RotaryEmbedding(128)
    k = rotary.rotate(normal((1, 1, 500, 128), 0, dtype), offset=77)
    moves, one = rotary.shift(k, -1) == k, k.abs().frexp()
    inside = one.mantissa != 0.5  # no power of two
    both = (inside & moves, inside, one.exponent)
    stands, within, binade = (t[0, 0].chunk(2, dim=-1) for t in both)
    same = within[0] & within[1] & (binade[0] == binade[1])
    slow = rotary.inv_freq <= 0.49 * u
    assert slow.sum() in (20, 6) and same[:, slow].sum() > 400
    assert (stands[0] & stands[1])[same & slow].all()
    assert not (stands[0] & stands[1])[:, rotary.inv_freq > 4 * u].any()


def test_the_record_is_this_programs():
    """Up to 1,000 of its 4,000 moves are made again."""
    assert moving.committed() == COMMITTED
    assert layout(COMMITTED) + "\n" == moving.RESULT.read_text(encoding="utf-8")
    assert [COMMITTED[name] for name in ("steps", "keys", "delta")] == [4000, 32, -1]
    for dtype in moving.DTYPES:
        record = COMMITTED[str(dtype).removeprefix("torch.")]
        error, ratio = moving.moved(dtype, steps=1000)
        for s in (1, 10, 100, 1000):
            assert float(error[s - 1]) == pytest.approx(record["error"][str(s)], rel=0.02)
        assert ratio.min() >= record["least_ratio"] * 0.98 >= 0.98
    assert COMMITTED["float32"]["largest_ratio"] < 5  # the bound is no idle one


def test_the_program_writes_what_it_measured(tmp_path, monkeypatch):
    short = moving.moved
    monkeypatch.setattr(moving, "moved", lambda dtype: short(dtype, steps=1000, keys=1))
    monkeypatch.setattr(moving, "STEPS", 1000)
    moving.main(tmp_path / "moving.json")
    written = json.loads((tmp_path / "moving.json").read_text(encoding="utf-8"))
    assert set(written) == set(COMMITTED) and written["steps"] == 1000
    assert written["float32"]["least_ratio"] >= 1
