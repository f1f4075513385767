"""One rule of tolerances: so many roundings, each of u times the size of what is rounded.

u is the unit roundoff of the arithmetic, 2**-53 in float64; chapter "How exact must it be?". An
angle of m radians is itself rounded by m u, so for a rotation the size is the largest angle times
the largest entry.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from rope.checks import check_count, check_table_dtype
from rope.scalars import check_number


def allowed(roundings: int, size: float = 1.0, dtype: torch.dtype = torch.float64) -> float:
    """The most that so many roundings of numbers up to `size` add up to: roundings * u * size.

    dtype: of the arithmetic, one of float64, float32, bfloat16, float16.
    Raises TypeError and ValueError for other dtypes, fewer than one rounding, and sizes that are
    not positive.

    >>> allowed(8) == 2**-50, allowed(1, dtype=torch.bfloat16) == 2**-8
    (True, True)
    """
    check_count("roundings", roundings)
    check_number("size", size, above=0)
    check_table_dtype(dtype)
    return roundings * torch.finfo(dtype).eps / 2 * size


def within(
    left: ArrayLike | Tensor,
    right: ArrayLike | Tensor,
    roundings: int,
    size: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> bool:
    """Whether two results agree, entry by entry, but for so many roundings.

    left, right: real or complex numbers, arrays or tensors of one shape, or one of them a number.
    The rest is as in `allowed`. An infinity agrees with itself alone, a NaN with nothing.
    Raises ValueError for unlike shapes and for no entries.

    >>> within(0.1 + 0.2, 0.3, roundings=1), within(0.1 + 0.2, 0.3000001, roundings=1)
    (True, False)
    """
    one, other = _array(left), _array(right)
    if one.shape != other.shape and () not in (one.shape, other.shape):
        raise ValueError(
            f"the two results have shapes {list(one.shape)} and {list(other.shape)}; they must be "
            "alike, or one a number: compare what belongs together"
        )
    if one.size == 0 or other.size == 0:  # all of none agree: a check would pass on nothing
        raise ValueError(
            f"the two results have shapes {list(one.shape)} and {list(other.shape)}; they must "
            "have entries to compare: look at why one is empty"
        )
    with np.errstate(invalid="ignore"):  # inf - inf
        near = np.abs(one - other) <= allowed(roundings, size, dtype)
    return bool(np.all(near | (one == other)))


def _array(value: ArrayLike | Tensor) -> np.ndarray:
    """In double precision, so that the comparison itself rounds nothing that matters."""
    if isinstance(value, Tensor):
        wide = torch.complex128 if value.is_complex() else torch.float64
        return value.detach().to("cpu", wide).numpy()
    array = np.asarray(value)
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)
