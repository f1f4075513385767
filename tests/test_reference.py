import mpmath
import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from rope import reference


def test_frequencies_by_hand_and_against_mpmath():
    theta = reference.inverse_frequencies(128)
    assert theta.dtype == np.float64
    assert (theta[0], round(theta[1], 5), round(theta[63], 8)) == (1, 0.86596, 1.1548e-4)
    with mpmath.workdps(40):
        exact = [float(mpmath.mpf(10000) ** (-mpmath.mpf(2 * j) / 96)) for j in range(48)]
    # A division, a multiplication and a power give three roundings of eps/2, at most doubled.
    np.testing.assert_allclose(reference.inverse_frequencies(96), exact, rtol=3e-15)


@strategies.quick
@given(
    strategies.even,
    strategies.seeds,
    strategies.layouts,
    st.lists(st.integers(-99, 9999), max_size=5),
)
def test_both_definitions_agree(dim, seed, interleaved, positions):
    x = np.random.default_rng(seed).standard_normal((2, len(positions), dim))
    theta = reference.inverse_frequencies(dim)
    by_matrix = reference.rotate_matrix(x, positions, theta, interleaved=interleaved)
    assert by_matrix.shape == x.shape
    by_complex = reference.rotate_complex(x, positions, theta, interleaved=interleaved)
    np.testing.assert_allclose(by_complex, by_matrix, atol=1e-14)


@strategies.quick
@given(strategies.even, st.integers(0, 999), st.integers(0, 999))
def test_group_law(dim, m, n):
    theta = reference.inverse_frequencies(dim)
    product = reference.rotation_matrix(m, theta).T @ reference.rotation_matrix(n, theta)
    # Rounding changes an angle below 1000 by at most 1000 eps/2.
    np.testing.assert_allclose(product, reference.rotation_matrix(n - m, theta), atol=1e-12)


def test_the_score_is_the_real_part_of_q_times_conjugate_k():
    q, k = np.array([1.0, 2.0]), np.array([3.0, -1.0])
    expected = ((1 + 2j) * np.conj(3 - 1j) * np.exp(1j * (7 - 3) * 0.3)).real
    assert reference.score(q, k, 7, 3, [0.3]) == pytest.approx(expected, abs=1e-14)


def test_complex_positions_raise():
    with pytest.raises(TypeError, match="complex128"):
        reference.angles(1j, [0.3])
