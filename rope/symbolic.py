"""Build rotations in SymPy, and prove identities by reducing differences to exactly 0.

The chapters use these proofs. A proof shows an identity in symbols, not at a few sample values. If
SymPy can't reduce the difference between the two sides to 0, the proof raises NotEqual.
"""

from collections.abc import Callable, Sequence

import sympy as sp


class NotEqual(AssertionError):
    """Raised if a proof fails because SymPy can't reduce `difference`, left - right, to 0.

    >>> try:
    ...     prove_equal(sp.Symbol("x"), 0)
    ... except NotEqual as error:
    ...     print(error.difference)
    x
    """

    def __init__(self, difference: sp.Expr | sp.Matrix, message: str) -> None:
        super().__init__(message)
        self.difference = difference


def rotation(angle: sp.Expr) -> sp.Matrix:
    """Return the 2 x 2 matrix that rotates counterclockwise by `angle` radians.

    >>> rotation(sp.pi / 2)
    Matrix([
    [0, -1],
    [1,  0]])
    """
    cos, sin = sp.cos(angle), sp.sin(angle)
    return sp.Matrix([[cos, -sin], [sin, cos]])


def block_rotation(angles: Sequence[sp.Expr]) -> sp.Matrix:
    """Return the block-diagonal matrix that rotates plane j by angles[j] (RoFormer, equation 15).

    Returns a 2p x 2p Matrix for p angles in radians.

    >>> block_rotation([0, sp.pi]).diagonal()
    Matrix([[1, 1, -1, -1]])
    """
    return sp.Matrix(sp.diag(*(rotation(angle) for angle in angles)))


def complex_pair(name: str) -> tuple[sp.Matrix, sp.Expr]:
    """Return a 2-D vector both as the real vector (a, b) and as the complex number a + I b.

    >>> vector, number = complex_pair("q")
    >>> vector.T, number
    (Matrix([[q_1, q_2]]), q_1 + I*q_2)
    """
    a, b = sp.symbols(f"{name}_1 {name}_2", real=True)
    return sp.Matrix([a, b]), a + sp.I * b


def real_symbols(names: str) -> tuple[sp.Symbol, ...]:
    """Return a tuple with one real symbol for each of the names, which are separated by spaces.

    >>> real_symbols("theta")
    (theta,)
    """
    return sp.symbols(names, real=True, seq=True)


def difference(left: sp.Expr | sp.Matrix, right: sp.Expr | sp.Matrix) -> sp.Expr | sp.Matrix:
    """Return left - right, simplified: 0 or a zero matrix if SymPy proves that they are equal.

    left, right: scalars, or matrices of the same shape. Raises TypeError for floating-point
    numbers, because rounding can make different expressions equal.

    >>> x = sp.Symbol("x", real=True)
    >>> difference(sp.exp(sp.I * x), sp.cos(x) + sp.I * sp.sin(x))
    0
    """
    rest = sp.sympify(left) - sp.sympify(right)
    for side in (sp.sympify(left), sp.sympify(right)):
        if side.has(sp.Float):
            raise TypeError(
                f"{next(iter(side.atoms(sp.Float)))} is a floating-point number; a proof needs "
                "exact numbers; use sympy.Rational or a symbol"
            )
    return rest.applyfunc(_simplified) if isinstance(rest, sp.MatrixBase) else _simplified(rest)


def prove_equal(left: sp.Expr | sp.Matrix, right: sp.Expr | sp.Matrix) -> None:
    """Prove that two expressions are equal wherever both are defined.

    Raises NotEqual if a difference remains. The two sides may be equal even then.
    Raises TypeError for floating-point numbers, as `difference` does.

    >>> m, n, theta = real_symbols("m n theta")
    >>> prove_equal(rotation(m * theta).T * rotation(n * theta), rotation((n - m) * theta))
    """
    rest = difference(left, right)
    entries = list(rest) if isinstance(rest, sp.MatrixBase) else [rest]
    if any(entry is not sp.S.Zero for entry in entries):
        raise NotEqual(rest, f"SymPy can't reduce left - right to 0; what remains is {rest}")


def _without_complex_exponentials(expression: sp.Expr) -> sp.Expr:
    """Rewrite a complex expression as real part + I * imaginary part, without e^{i ...}."""
    if not expression.has(sp.I, sp.re, sp.im, sp.conjugate, sp.Abs):
        return expression
    return sp.expand(expression.rewrite(sp.exp, sp.cos), complex=True)


def _pythagoras(expression: sp.Expr) -> sp.Expr:
    """Replace sin^2 by 1 - cos^2, so that at most one sine factor per angle remains."""

    def is_sine_power(e: sp.Expr) -> bool:
        return e.is_Pow and isinstance(e.base, sp.sin) and e.exp.is_Integer and e.exp > 1

    def reduced(power: sp.Pow) -> sp.Expr:
        squares, rest = divmod(power.exp, 2)
        return (1 - sp.cos(power.base.args[0]) ** 2) ** squares * power.base**rest

    return sp.expand(expression.replace(is_sine_power, reduced))


# The cheap steps come first. The first four are enough for polynomials in real symbols and in the
# sines, cosines, and e^{i ...} of their integer combinations. The last two handle roots, quotients,
# and half-angles.
_STEPS: tuple[Callable[[sp.Expr], sp.Expr], ...] = (
    sp.expand,
    _without_complex_exponentials,
    lambda e: sp.expand(sp.expand_trig(e)),
    _pythagoras,
    sp.trigsimp,
    sp.simplify,
)


def _simplified(expression: sp.Expr) -> sp.Expr:
    """Return 0 if a rewriting step yields 0, otherwise the shortest form that the steps found."""
    forms = [expression]
    for step in _STEPS:
        forms.append(step(forms[-1]))
        if forms[-1] is sp.S.Zero:
            return sp.S.Zero
    return min(reversed(forms), key=sp.count_ops)
