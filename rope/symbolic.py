"""Rotations in SymPy and a proof that two expressions are equal: the difference is exactly 0.

Used by every chapter of parts I to IV. A proof here is an identity in symbols, not a check at
numbers; a difference that cannot be reduced to 0 is reported, never waved through.
"""

from collections.abc import Callable, Sequence

import sympy as sp


class NotEqual(AssertionError):
    """The two sides differ, or SymPy cannot reduce their difference; it is kept as `.difference`.

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
    """The 2 x 2 rotation, counter-clockwise by `angle` radians.

    >>> rotation(sp.pi / 2)
    Matrix([
    [0, -1],
    [1,  0]])
    """
    cos, sin = sp.cos(angle), sp.sin(angle)
    return sp.Matrix([[cos, -sin], [sin, cos]])


def block_rotation(angles: Sequence[sp.Expr]) -> sp.Matrix:
    """The block-diagonal rotation, plane j rotated by angles[j]: RoFormer, equation 15.

    Returns a 2p x 2p Matrix for p angles. Raises ValueError for no angles.

    >>> block_rotation([0, sp.pi]).diagonal()
    Matrix([[1, 1, -1, -1]])
    """
    if not angles:
        raise ValueError("angles is empty; a rotation needs at least one plane: pass one angle")
    return sp.Matrix(sp.diag(*(rotation(angle) for angle in angles)))


def complex_pair(name: str) -> tuple[sp.Matrix, sp.Expr]:
    """One plane written twice: the real vector (a, b) and the complex number a + I b.

    >>> vector, number = complex_pair("q")
    >>> vector.T, number
    (Matrix([[q_1, q_2]]), q_1 + I*q_2)
    """
    a, b = sp.symbols(f"{name}_1 {name}_2", real=True)
    return sp.Matrix([a, b]), a + sp.I * b


def real_symbols(names: str) -> tuple[sp.Symbol, ...]:
    """Real symbols, always as a tuple: `m, n, theta = real_symbols("m n theta")`.

    >>> real_symbols("theta")
    (theta,)
    """
    return sp.symbols(names, real=True, seq=True)


def difference(left: sp.Expr | sp.Matrix, right: sp.Expr | sp.Matrix) -> sp.Expr | sp.Matrix:
    """left - right, simplified: exactly 0 (or a matrix of zeros) when SymPy proves them equal.

    Scalars or matrices. Raises ValueError when the shapes differ, TypeError for other things, such
    as lists, and for floating-point numbers, whose rounding no proof can vouch for.

    >>> x = sp.Symbol("x", real=True)
    >>> difference(sp.exp(sp.I * x), sp.cos(x) + sp.I * sp.sin(x))
    0
    """
    left, right = sp.sympify(left), sp.sympify(right)
    for name, side in (("left", left), ("right", right)):
        if not isinstance(side, (sp.Expr, sp.MatrixBase)):
            raise TypeError(
                f"{name} is {side!r}; it must be an expression or a matrix: "
                "wrap a list or an array in sympy.Matrix"
            )
        if side.has(sp.Float):
            value = next(iter(side.atoms(sp.Float)))
            raise TypeError(
                f"{name} holds the rounded number {value}; a proof needs exact ones: "
                "write sympy.Rational or a symbol"
            )
    shapes = tuple(getattr(side, "shape", "scalar") for side in (left, right))
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"left has shape {shapes[0]} and right {shapes[1]}; they must be the same: "
            "reshape or transpose one of them"
        )
    if shapes[0] == "scalar":
        return _simplified(left - right)
    return (sp.Matrix(left) - sp.Matrix(right)).applyfunc(_simplified)


def prove_equal(left: sp.Expr | sp.Matrix, right: sp.Expr | sp.Matrix) -> None:
    """Prove that two expressions are equal wherever both have a value.

    Returns None. Raises NotEqual, naming the difference that is left; ValueError and TypeError as
    `difference` does. SymPy failing to find 0 is not a proof that the sides differ.

    >>> m, n, theta = real_symbols("m n theta")
    >>> prove_equal(rotation(m * theta).T * rotation(n * theta), rotation((n - m) * theta))
    """
    left_over = difference(left, right)
    entries = list(left_over) if isinstance(left_over, sp.MatrixBase) else [left_over]
    wrong = [(place, entry) for place, entry in enumerate(entries) if entry is not sp.S.Zero]
    if not wrong:
        return
    place, entry = wrong[0]
    where = ""
    if isinstance(left_over, sp.MatrixBase):
        row, column = divmod(place, left_over.cols)
        where = f" in {len(wrong)} of {len(entries)} entries; at [{row}, {column}]"
    raise NotEqual(left_over, f"left - right is not 0{where}: {entry} is left")


def _without_complex_exponentials(expression: sp.Expr) -> sp.Expr:
    """Real and imaginary parts apart; real expressions are left alone, since that can be slow."""
    if not expression.has(sp.I, sp.re, sp.im, sp.conjugate, sp.Abs):
        return expression
    return sp.expand(expression.rewrite(sp.exp, sp.cos), complex=True)


def _is_sine_power(expression: sp.Expr) -> bool:
    return (
        isinstance(expression, sp.Pow)
        and isinstance(expression.base, sp.sin)
        and expression.exp.is_Integer
        and expression.exp > 1
    )


def _without_square(power: sp.Pow) -> sp.Expr:
    cosine = sp.cos(power.base.args[0])
    return (1 - cosine**2) ** (power.exp // 2) * power.base ** (power.exp % 2)


def _pythagoras(expression: sp.Expr) -> sp.Expr:
    """Write sin^2 as 1 - cos^2, which leaves at most one factor sin of each angle."""
    return sp.expand(expression.replace(_is_sine_power, _without_square))


# Cheap and certain first. The first four decide every identity between polynomials in real
# symbols and in the sines, cosines and e^{i ...} of their integer combinations; the last two
# are for what is left: roots, quotients, half angles.
_STEPS: tuple[Callable[[sp.Expr], sp.Expr], ...] = (
    sp.expand,
    _without_complex_exponentials,
    lambda e: sp.expand(sp.expand_trig(e)),
    _pythagoras,
    sp.trigsimp,
    sp.simplify,
)


def _simplified(expression: sp.Expr) -> sp.Expr:
    """0 as soon as a step reaches it, otherwise the shortest form met on the way."""
    forms = [expression]
    for step in _STEPS:
        forms.append(step(forms[-1]))
        if forms[-1] is sp.S.Zero:
            return sp.S.Zero
    return min(reversed(forms), key=sp.count_ops)
