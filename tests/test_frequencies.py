import math

import mpmath
import numpy as np
import pytest
import torch
from strategies import tolerance

from rope import inverse_frequencies, rotary_tables


@pytest.mark.parametrize("scale", [1.0, 1.25])
@pytest.mark.parametrize("position", [1, 4095, 131071, 1_000_003, 2**33 + 1])
def test_tables_against_mpmath(position, scale):
    """Compare with 50 digits; the angle, cos or sin, and the scale are each rounded."""
    ids, theta = torch.tensor([position]), inverse_frequencies(64)
    cos, sin = rotary_tables(ids, theta, dtype=torch.float64, scale=scale)
    with mpmath.workdps(50):
        exact = [position * mpmath.mpf(10000) ** (-mpmath.mpf(2 * j) / 64) for j in range(32)]
        exact_cos = [float(scale * mpmath.cos(x)) for x in exact]
        exact_sin = [float(scale * mpmath.sin(x)) for x in exact]
    allowed = scale * (2 * position + 2) * torch.finfo(torch.float64).eps
    np.testing.assert_allclose(cos[0], exact_cos, rtol=0, atol=allowed)
    np.testing.assert_allclose(sin[0], exact_sin, rtol=0, atol=allowed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tables_are_rounded_once(dtype):
    theta, allowed = inverse_frequencies(8), tolerance(dtype, operations=1.001)
    exact = rotary_tables(10_000, theta, dtype=torch.float64)
    for table, wide in zip(rotary_tables(10_000, theta, dtype=dtype), exact, strict=True):
        assert table.dtype == dtype
        torch.testing.assert_close(table.double(), wide, rtol=0, atol=allowed)


@pytest.mark.parametrize("shape", [(), (60,), (3, 20), (3, 1, 20), (0, 4)])
def test_positions_of_any_shape(shape):
    theta = inverse_frequencies(8)
    ids = torch.arange(math.prod(shape)).view(shape)
    tables = rotary_tables(ids, theta, dtype=torch.bfloat16, scale=1.5)
    counted = rotary_tables(ids.numel(), theta, dtype=torch.bfloat16, scale=1.5)
    for table, rows in zip(tables, counted, strict=True):
        assert table.shape == (*shape, 4)
        assert torch.equal(table.reshape(-1, 4), rows)


def test_negative_positions_rotate_back():
    theta = inverse_frequencies(8)
    cos, sin = rotary_tables(torch.tensor([7]), theta)
    back_cos, back_sin = rotary_tables(torch.tensor([-7]), theta)
    assert torch.equal(back_cos, cos)
    assert torch.equal(back_sin, -sin)
