"""Compare results by one rule: allow a given number of roundings, each of at most u times the size.

See the chapter "How exact must it be?". Here u is the unit roundoff of the arithmetic, 2**-53 in
float64, and the size is the largest number that is rounded. An angle of m radians is itself rounded
by up to m u, so the size for a rotation is the largest angle times the largest entry.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


def allowed(roundings: int, size: float = 1.0, dtype: torch.dtype = torch.float64) -> float:
    """Return the largest total error that `roundings` roundings of numbers up to `size` can cause.

    The bound is roundings * u * size. dtype: the dtype of the arithmetic.

    >>> allowed(8) == 2**-50, allowed(1, dtype=torch.bfloat16) == 2**-8
    (True, True)
    """
    return roundings * torch.finfo(dtype).eps / 2 * size


def within(
    left: ArrayLike | Tensor,
    right: ArrayLike | Tensor,
    roundings: int,
    size: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> bool:
    """Return True if two results agree in every entry to within `roundings` roundings.

    left, right: real or complex numbers, arrays, or tensors of the same shape. Either may also be a
    single number. roundings, size, dtype: as in `allowed`. An infinity agrees only with itself,
    and NaN agrees with nothing.
    Raises ValueError if the shapes differ or there are no entries.

    >>> within(0.1 + 0.2, 0.3, roundings=1), within(0.1 + 0.2, 0.3000001, roundings=1)
    (True, False)
    """
    one, other = _array(left), _array(right)
    shapes = f"the shapes are {list(one.shape)} and {list(other.shape)}"
    if one.shape != other.shape and () not in (one.shape, other.shape):
        raise ValueError(f"{shapes}; they must be equal unless one result is a single number")
    if one.size == 0 or other.size == 0:
        raise ValueError(f"{shapes}; each result must have at least one entry")
    with np.errstate(invalid="ignore"):  # inf - inf
        near = np.abs(one - other) <= allowed(roundings, size, dtype)
    return bool(np.all(near | (one == other)))


def _array(value: ArrayLike | Tensor) -> np.ndarray:
    """Return a float64 or complex128 array, so that the comparison adds no significant rounding."""
    if isinstance(value, Tensor):
        wide = torch.complex128 if value.is_complex() else torch.float64
        return value.detach().to("cpu", wide).numpy()
    array = np.asarray(value)
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)
