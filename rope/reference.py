"""Define RoPE in NumPy with float64 arithmetic, as the reference for all other implementations.

See the chapters "Rotation in two dimensions" and "Many dimensions". R_m rotates each of the d/2
planes counterclockwise, plane j by the angle m theta_j, where theta_j = base**(-2j/d). The module
computes the rotation in two independent ways, by a matrix and by complex multiplication, so that
the tests can compare the two results.

Shapes: S sequence length, d head dimension, ... any leading axes. Angles are in radians.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def inverse_frequencies(dim: int, base: float = 10000.0) -> Array:
    """Return the dim/2 angular frequencies theta_j = base**(-2j/dim), in radians per position.

    Returns float64 `[dim/2]`, decreasing from theta_0 = 1 if base > 1.
    Raises ValueError if dim is odd or below 2, or if base is not positive and finite.
    See RoFormer (arXiv 2104.09864), section 3.2.2, which counts j from 1 instead of 0.

    >>> inverse_frequencies(4)
    array([1.  , 0.01])
    """
    if dim < 2 or dim % 2:
        raise ValueError(f"dim is {dim}; it must be even and at least 2, such as 64")
    if not 0 < base < np.inf:
        raise ValueError(f"base is {base}; it must be positive and finite, such as 10000.0")
    return float(base) ** (-2.0 * np.arange(dim // 2) / dim)


def angles(positions: ArrayLike, inv_freq: ArrayLike) -> Array:
    """Return the angles m theta_j in radians, one row per position m.

    positions: a real number, or an array `[S]` of real numbers. inv_freq: frequencies `[d/2]`.
    Returns float64 `[S, d/2]`, with S = 1 for a single position.
    Raises TypeError if positions or inv_freq are not real numbers.

    >>> angles(3, inverse_frequencies(4))
    array([[3.  , 0.03]])
    """
    return np.multiply.outer(np.ravel(positions), inv_freq, dtype=np.float64)


def rotation_matrix(position: float, inv_freq: ArrayLike) -> Array:
    """Return the block-diagonal matrix R_m, which rotates coordinates (2j, 2j+1) by m theta_j.

    position: a real number. inv_freq: frequencies `[d/2]`. Returns float64 `[d, d]`.
    Raises TypeError if an argument is not real. See RoFormer (arXiv 2104.09864), equation 15.

    >>> rotation_matrix(1, [np.pi / 2]).round(12) + 0.0
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
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
    """Return R_m x_m for each row x_m of x, computed with the d x d matrix R_m.

    x: `[..., S, d]` real; positions: `[S]`; inv_freq: `[d/2]`. Returns float64 with x's shape.
    interleaved: if True, plane j holds coordinates (2j, 2j+1); if False, (j, j + d/2).
    Raises TypeError if an argument has the wrong type, and ValueError if the shapes don't match.

    >>> rotate_matrix([[1.0, 0.0]], [1], [np.pi / 2]).round(12) + 0.0
    array([[0., 1.]])
    """
    rows, _ = _aligned(x, positions, inv_freq, interleaved)
    rotated = np.empty_like(rows)
    for s, position in enumerate(np.ravel(positions)):
        rotated[..., s, :] = rows[..., s, :] @ rotation_matrix(position, inv_freq).T
    return _from_interleaved(rotated, interleaved)


def rotate_complex(
    x: ArrayLike, positions: ArrayLike, inv_freq: ArrayLike, *, interleaved: bool = True
) -> Array:
    """Return R_m x_m for each row x_m of x, computed as (x_{2j} + i x_{2j+1}) e^{i m theta_j}.

    See RoFormer, equation 12. The arguments and errors are the same as in `rotate_matrix`.

    >>> rotate_complex([[1.0, 0.0]], [1], [np.pi / 2]).round(12) + 0.0
    array([[0., 1.]])
    """
    rows, angle = _aligned(x, positions, inv_freq, interleaved)
    rotated = (rows[..., 0::2] + 1j * rows[..., 1::2]) * np.exp(1j * angle)
    return _from_interleaved(_interleave(rotated.real, rotated.imag), interleaved)


def score(q: ArrayLike, k: ArrayLike, m: float, n: float, inv_freq: ArrayLike) -> float:
    """Return the unscaled attention score (R_m q)^T (R_n k).

    q, k: `[d]` real; m, n: their positions. The score depends on m and n only through n - m.

    >>> theta = inverse_frequencies(4)
    >>> q, k = [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]
    >>> bool(np.isclose(score(q, k, 7, 4, theta), score(q, k, 103, 100, theta)))
    True
    """
    (query,) = rotate_matrix(np.asarray(q)[None], [m], inv_freq)
    (key,) = rotate_matrix(np.asarray(k)[None], [n], inv_freq)
    return float(query @ key)


def _aligned(
    x: ArrayLike, positions: ArrayLike, inv_freq: ArrayLike, interleaved: bool
) -> tuple[Array, Array]:
    """Return x in the interleaved layout, and the angles `[S, d/2]`.

    Raises TypeError unless interleaved is a bool, and ValueError unless x has shape `[..., S, d]`.
    """
    if not isinstance(interleaved, bool):  # the string "half" would act as True
        raise TypeError(f"interleaved is {interleaved!r}; it must be True or False")
    rows = np.asarray(x).astype(np.float64, casting="same_kind")  # rejects complex numbers
    angle = angles(positions, inv_freq)
    expected = (angle.shape[0], 2 * angle.shape[1])
    if rows.shape[-2:] != expected:
        raise ValueError(
            f"x has shape {list(rows.shape)}; its last two axes must be {list(expected)}: the "
            "number of positions, and twice the number of frequencies"
        )
    if not interleaved:
        rows = _interleave(*np.split(rows, 2, axis=-1))
    return rows, angle


def _interleave(first: Array, second: Array) -> Array:
    """Interleave the planes' first and second coordinates, each `[..., d/2]`, into `[..., d]`."""
    return np.stack([first, second], axis=-1).reshape(*first.shape[:-1], 2 * first.shape[-1])


def _from_interleaved(x: Array, interleaved: bool) -> Array:
    """Return x in the interleaved layout, or in the half-split layout if interleaved is False."""
    return x if interleaved else np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)
