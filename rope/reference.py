"""The definitions as the book writes them, in NumPy and float64: the oracle for everything else.

Chapters "Rotation in two dimensions" and "Many dimensions". Plane j of d/2 turns by m theta_j,
theta_j = base**(-2 j / d), counter-clockwise. The same map is written three times, as a matrix,
as complex multiplication and elementwise, so that no one of them is taken on trust.

Shapes: S sequence, d head dimension, ... any leading axes. Angles in radians.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rope.scalars import check_base, check_dim, check_flag

Array = NDArray[np.float64]


def inverse_frequencies(dim: int, base: float = 10000.0) -> Array:
    """The d/2 angular frequencies theta_j = base**(-2j/d), in radians per position.

    Returns float64 `[dim/2]`, falling from theta_0 = 1 when base > 1.
    Raises ValueError for a dim that is odd or below 2, or a base that is not positive and finite.
    RoFormer (arXiv 2104.09864), section 3.2.2, with j counted from 0.

    >>> inverse_frequencies(4)
    array([1.  , 0.01])
    """
    check_dim(dim)
    check_base(base)
    return float(base) ** (-2.0 * np.arange(dim // 2) / dim)


def angles(positions: ArrayLike, inv_freq: ArrayLike) -> Array:
    """The angles m theta_j, in radians.

    positions: a number, or `[S]` of them, real and finite; inv_freq: `[d/2]`.
    Returns float64 `[S, d/2]`; a single position gives one row.
    Raises TypeError for values that are not real, ValueError for wrong shapes or non-finite values.

    >>> angles(3, inverse_frequencies(4))
    array([[3.  , 0.03]])
    """
    rows = np.atleast_1d(_real("positions", positions))
    frequencies = _real("inv_freq", inv_freq)
    for name, value in (("positions", rows), ("inv_freq", frequencies)):
        if value.ndim != 1:
            raise ValueError(
                f"{name} has shape {list(value.shape)}; it must have one axis: use .ravel()"
            )
    return rows[:, None] * frequencies


def rotation_matrix(position: float, inv_freq: ArrayLike) -> Array:
    """The block-diagonal matrix R_m: plane j, coordinates (2j, 2j+1), turned by m theta_j.

    Returns float64 `[d, d]`. Raises as `angles` does, and ValueError for several positions.
    RoFormer (arXiv 2104.09864), equation 15.

    >>> rotation_matrix(1, [np.pi / 2]).round(12) + 0.0
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    if np.ndim(position) != 0:
        raise ValueError(
            f"position has shape {list(np.shape(position))}; it must be one number: call once each"
        )
    (angle,) = angles(position, inv_freq)
    even = np.arange(0, 2 * angle.size, 2)
    matrix = np.zeros((2 * angle.size, 2 * angle.size))
    matrix[even, even] = matrix[even + 1, even + 1] = np.cos(angle)
    matrix[even, even + 1] = -np.sin(angle)
    matrix[even + 1, even] = np.sin(angle)
    return matrix


def rotate_matrix(
    x: ArrayLike, positions: ArrayLike, inv_freq: ArrayLike, *, interleaved: bool = True
) -> Array:
    """R_m x_m for each row of x, by the d x d matrix: the definition.

    x: `[..., S, d]` real; positions: `[S]`; inv_freq: `[d/2]`. Returns float64, shaped as x.
    `interleaved=False` keeps plane j in coordinates (j, j + d/2) instead of (2j, 2j+1).
    Raises TypeError for values that are not real, ValueError for shapes that do not agree.

    >>> rotate_matrix([[1.0, 0.0]], [1], [np.pi / 2]).round(12) + 0.0
    array([[0., 1.]])
    """
    rows, _ = _aligned(x, positions, inv_freq, interleaved)
    matrices = [rotation_matrix(m, inv_freq) for m in np.atleast_1d(positions)]
    turned = [matrix @ rows[..., s, :, None] for s, matrix in enumerate(matrices)]
    stacked = np.stack(turned, axis=-3)[..., 0] if turned else rows
    return _from_interleaved(stacked, interleaved)


def rotate_complex(
    x: ArrayLike, positions: ArrayLike, inv_freq: ArrayLike, *, interleaved: bool = True
) -> Array:
    """The same map as multiplication: (x_2j + i x_2j+1) times e^{i m theta_j}.

    Shapes, dtypes and errors are those of `rotate_matrix`. RoFormer, equation 12.

    >>> rotate_complex([[1.0, 0.0]], [1], [np.pi / 2]).round(12) + 0.0
    array([[0., 1.]])
    """
    rows, angle = _aligned(x, positions, inv_freq, interleaved)
    turned = (rows[..., 0::2] + 1j * rows[..., 1::2]) * np.exp(1j * angle)
    return _from_interleaved(_interleave(turned.real, turned.imag), interleaved)


def rotate_elementwise(
    x: ArrayLike, positions: ArrayLike, inv_freq: ArrayLike, *, interleaved: bool = True
) -> Array:
    """The same map without matrices: x * cos plus the quarter-turned x * sin.

    Shapes, dtypes and errors are those of `rotate_matrix`. RoFormer, equation 34.

    >>> rotate_elementwise([[1.0, 0.0]], [1], [np.pi / 2]).round(12) + 0.0
    array([[0., 1.]])
    """
    rows, angle = _aligned(x, positions, inv_freq, interleaved)
    quarter_turned = _interleave(-rows[..., 1::2], rows[..., 0::2])
    cos, sin = (np.repeat(table(angle), 2, axis=-1) for table in (np.cos, np.sin))
    return _from_interleaved(rows * cos + quarter_turned * sin, interleaved)


def score(q: ArrayLike, k: ArrayLike, m: float, n: float, inv_freq: ArrayLike) -> float:
    """The attention score before scaling: (R_m q)^T (R_n k), which depends on n - m alone.

    q, k: `[d]` real. Raises as `rotate_matrix` does.

    >>> theta = inverse_frequencies(4)
    >>> q, k = [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]
    >>> bool(np.isclose(score(q, k, 7, 4, theta), score(q, k, 103, 100, theta)))
    True
    """
    for name, value in (("q", q), ("k", k)):
        if np.ndim(value) != 1:
            raise ValueError(
                f"{name} has shape {list(np.shape(value))}; it must be one vector [d]: pass a row"
            )
    (query,) = rotate_matrix(np.asarray(q)[None], [m], inv_freq)
    (key,) = rotate_matrix(np.asarray(k)[None], [n], inv_freq)
    return float(query @ key)


def _aligned(
    x: ArrayLike, positions: ArrayLike, inv_freq: ArrayLike, interleaved: bool
) -> tuple[Array, Array]:
    """x in the interleaved layout and the angles of its rows, once their shapes agree."""
    check_flag("interleaved", interleaved)
    rows, angle = _real("x", x), angles(positions, inv_freq)
    expected = (angle.shape[0], 2 * angle.shape[1])
    if rows.ndim < 2 or rows.shape[-2:] != expected:
        raise ValueError(
            f"x has shape {list(rows.shape)}; its last two axes must be {list(expected)}, one row "
            "a position and two coordinates a frequency: reshape x or give other positions"
        )
    if not interleaved:
        rows = _interleave(*np.split(rows, 2, axis=-1))
    return rows, angle


def _interleave(first: Array, second: Array) -> Array:
    """Plane j's two coordinates side by side: `[..., d/2]` twice gives `[..., d]`."""
    return np.stack([first, second], axis=-1).reshape(*first.shape[:-1], 2 * first.shape[-1])


def _from_interleaved(x: Array, interleaved: bool) -> Array:
    """x as it is, or with plane j moved to (j, j + d/2)."""
    return x if interleaved else np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def _real(name: str, values: ArrayLike) -> Array:
    """The values in float64, refused if they are not real and finite numbers."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iuf":
        raise TypeError(f"{name} is {array.dtype}; it must hold real numbers: pass its real part")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds a value that is not finite; replace it by a finite number")
    return array
