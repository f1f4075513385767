import pytest
import sympy as sp
from strategies import check_raises

from rope.symbolic import (
    NotEqual,
    block_rotation,
    complex_pair,
    difference,
    prove_equal,
    real_symbols,
    rotation,
)

m, n, theta, a = real_symbols("m n theta a")
thetas = real_symbols("theta_0:2")
whole_m, whole_n = sp.symbols("m n", integer=True)
q, q_number = complex_pair("q")
k, k_number = complex_pair("k")
turn = sp.exp(sp.I * (m - n) * theta)


def blocks(position):
    return block_rotation([position * angle for angle in thetas])


EQUAL = {
    "group law": (blocks(m).T * blocks(n), blocks(n - m)),
    "group law, whole positions": (blocks(whole_m).T * blocks(whole_n), blocks(whole_n - whole_m)),
    "inverse": (blocks(m).inv(), blocks(-m)),
    "determinant": (blocks(m).det(), 1),
    "Euler": (sp.exp(sp.I * m * theta), sp.cos(m * theta) + sp.I * sp.sin(m * theta)),
    "score": (
        (rotation(m * theta) * q).dot(rotation(n * theta) * k),
        sp.re(q_number * sp.conjugate(k_number) * turn),
    ),
    "length": (sp.sqrt((rotation(m) * q).dot(rotation(m) * q)), sp.sqrt(q.dot(q))),
    "modulus": (sp.Abs(q_number * sp.exp(sp.I * m)), sp.Abs(q_number)),
    "triple angle": (sp.cos(3 * theta), 4 * sp.cos(theta) ** 3 - 3 * sp.cos(theta)),
    "xPos": (
        (sp.exp(-a * m) * rotation(m * theta) * q).dot(sp.exp(a * n) * rotation(n * theta) * k),
        sp.exp(a * (n - m)) * q.dot(rotation((n - m) * theta) * k),
    ),
}


@pytest.mark.parametrize("sides", EQUAL.values(), ids=EQUAL)
def test_true_identities_are_proved(sides):
    prove_equal(*sides)


DIFFERENT = {
    "m + n": (blocks(m).T * blocks(n), blocks(n + m)),
    "clockwise": (rotation(theta), rotation(-theta)),
    "no conjugate": (EQUAL["score"][0], sp.re(q_number * k_number * turn)),
    "i left out": (sp.exp(sp.I * theta), sp.cos(theta) + sp.sin(theta)),
    "true only at 0": (sp.sin(theta), theta),
    "another branch": (sp.sqrt(m**2), m),
    "true only of integers": (sp.exp(2 * sp.pi * sp.I * m), 1),
    "no number": (sp.nan, sp.nan),
    "too small to see": (sp.cos(m), sp.cos(m) + sp.Rational(1, 10**60)),
}


@pytest.mark.parametrize("sides", DIFFERENT.values(), ids=DIFFERENT)
def test_false_identities_raise_with_the_difference(sides):
    with pytest.raises(NotEqual) as caught:
        prove_equal(*sides)
    assert caught.value.difference == difference(*sides)
    assert isinstance(caught.value, AssertionError)


def test_rounded_numbers_and_other_shapes_raise():
    check_raises(lambda: prove_equal(0.5, sp.Rational(1, 2)), TypeError, "0.5 Rational")
    with pytest.raises(sp.ShapeError):
        prove_equal(q, k.T)
    with pytest.raises(TypeError):
        prove_equal(sp.eye(1), 1)
