"""Test keys moved in their storage dtype: the theorem's error bounds, and unchanged planes."""

import pytest
import torch
from strategies import normal

from rope import RotaryEmbedding, inverse_frequencies, reference
from rope.book.measured import moving


@pytest.mark.parametrize("dtype", moving.DTYPES)
def test_errors_are_those_of_the_matrices(dtype):
    """Compare keys moved by `shift` with keys rotated by the float64 reference."""
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_pairs_of_slow_planes_in_one_binade_stay_unchanged(dtype):
    """Check that all pairs within the theorem's bound stay unchanged, and no pair far beyond it."""
    u = torch.finfo(dtype).eps / 2
    rotary = RotaryEmbedding(128)
    k = rotary.rotate(normal((1, 1, 500, 128), 0, dtype), offset=77)
    unchanged, one = rotary.shift(k, -1) == k, k.abs().frexp()
    inside = one.mantissa != 0.5  # not a power of two
    both = (inside & unchanged, inside, one.exponent)
    stays, within, binade = (t[0, 0].chunk(2, dim=-1) for t in both)
    same = within[0] & within[1] & (binade[0] == binade[1])
    slow = rotary.inv_freq <= 0.49 * u
    assert slow.sum() in (20, 6) and same[:, slow].sum() > 400
    assert (stays[0] & stays[1])[same & slow].all()
    assert not (stays[0] & stays[1])[:, rotary.inv_freq > 4 * u].any()
