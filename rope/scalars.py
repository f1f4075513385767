"""The package's refusals: what is wrong, what is allowed, and the way out, in a sentence.

Those of plain numbers stand here and need no torch; those of tensors stand in `rope.checks`.
"""

import math
from numbers import Integral, Real

FARTHEST = 2**53  # past which float64 skips whole numbers


def check_whole(
    name: str,
    value: int,
    smallest: int = 1,
    largest: int | None = FARTHEST,
    kinds: tuple[type, ...] = (Integral,),
) -> None:
    """Refuse anything but an integer, of one of the `kinds`, from `smallest` to `largest`."""
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise TypeError(f"{name} is {value!r}; it must be an integer, so pass int({name})")
    if value < smallest:
        raise ValueError(f"{name} is {value}; it must be at least {smallest}, so pass a larger one")
    if largest is not None and value > largest:
        raise ValueError(
            f"{name} has {int(value).bit_length()} bits; it must be at most 2**53, past which "
            "float64 skips whole numbers: pass a smaller one"
        )


def check_dim(dim: int, name: str = "dim") -> None:
    """Refuse a width that does not split into planes of two coordinates."""
    check_whole(name, dim, smallest=2)
    if dim % 2:
        raise ValueError(
            f"{name} is {dim}; it must be even, since each plane takes two coordinates: "
            f"pass {dim - 1} and leave one coordinate unrotated"
        )


def check_base(base: float, name: str = "base") -> None:
    """Refuse a base that gives no positive, finite frequencies, or angles beyond float64."""
    value = _finite(name, base)
    # The last frequency is below 1/base; at 2^960 it leaves room for int64's positions.
    if value < 2.0**-960:
        raise ValueError(
            f"{name} is {value:g}; it must be positive and finite, and at least 1.03e-289, or "
            "angles leave float64: pass a usual one such as 10000.0"
        )


def check_number(
    name: str, value: float, *, at_least: float | None = None, above: float | None = None
) -> None:
    """Refuse what is no finite real number, or lies below `at_least`, or not `above`."""
    number = _finite(name, value)
    if at_least is not None and number < at_least:
        raise ValueError(f"{name} is {value}; it must be at least {at_least:g}: pass a larger one")
    if above is not None and number <= above:
        raise ValueError(f"{name} is {value}; it must be above {above:g}: pass a larger one")


def _finite(name: str, value: float) -> float:
    """The value as a float, refused if it is no number or beyond every float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r}; it must be a real number, so pass float({name})")
    try:
        number = float(value)
    except OverflowError:  # an integer that no float reaches
        number = math.inf
    if not -math.inf < number < math.inf:  # math.isfinite cannot be traced
        raise ValueError(f"{name} is {number:g}; it must be finite, so pass a finite number")
    return number


def check_flag(name: str, value: bool) -> None:
    """Refuse a truthy stand-in: the string "half" would otherwise mean interleaved."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; it must be True or False, so pass one of the two")
