"""Compare results of any kind as lists of numbers, and show them in a sentence."""

from __future__ import annotations

import math
from typing import Any

EPS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # every other dtype gets float32's, 2**-24
LARGEST_TOLERANCE = 0.05


class Unusable(Exception):
    """An answer that can't be compared; its message is the cause."""


def numbers(value: Any) -> list[float]:
    """Return all numbers of lists, arrays and tensors in order; a complex number gives two.

    Raises Unusable for anything else.

    >>> numbers([1, (2.5, 3j)])
    [1.0, 2.5, 0.0, 3.0]
    """
    if value is None or value is ...:
        raise Unusable("nothing is returned yet")
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)):
        return [number for part in value for number in numbers(part)]
    if isinstance(value, complex):
        return [value.real, value.imag]
    if not hasattr(value, "__float__"):
        raise Unusable(f"it must return numbers, not {type(value).__name__}")
    return [float(value)]


def shape(value: Any) -> list[int]:
    """Return the lengths of a result's axes, which of nested lists the first items show."""
    if hasattr(value, "shape"):
        return list(value.shape)
    if isinstance(value, (list, tuple)):
        return [len(value), *(shape(value[0]) if value else ())]
    return []


def shown(value: Any) -> str:
    """Return a value for a sentence: its numbers if they are few, its shape if they are many.

    >>> shown((1.0, [0.123456789, 2j])), shown([0.0] * 9)
    ('(1, [0.12346, 0 + 2i])', 'shape [9]')
    """
    if shape(value) and len(numbers(value)) > 8:
        return f"shape {shape(value)}"
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)):
        left, right = "[]" if isinstance(value, list) else "()"
        return f"{left}{', '.join(map(shown, value))}{right}"
    if isinstance(value, complex):
        return f"{shown(value.real)} {'+-'[value.imag < 0]} {shown(abs(value.imag))}i"
    if isinstance(value, float):
        return f"{round(value, 9) + 0.0:.5g}"  # no −0, no 6e-17
    return repr(value)


def dtypes(result: Any) -> list[str]:
    """Return the dtypes of a result and its parts, as far as they have one."""
    parts = [result, *result] if isinstance(result, (list, tuple)) else [result]
    return [str(part.dtype).removeprefix("torch.") for part in parts if hasattr(part, "dtype")]


def tolerance(result: Any, truth: list[float], roundings: int) -> float:
    """Return the difference that some roundings of the result's own dtype may make."""
    eps = max((EPS.get(dtype, 2.0**-24) for dtype in dtypes(result)), default=2.0**-24)
    largest = max(filter(math.isfinite, map(abs, truth)), default=0)
    return min(roundings * eps * (1 + largest), LARGEST_TOLERANCE)


def agreeing(result: list[float], truth: list[float], within: float) -> list[bool]:
    """Return for each pair of numbers whether they agree; NaN agrees with NaN."""
    pairs = zip(result, truth, strict=False)  # as far as both go
    return [abs(x - y) <= within or (x != x and y != y) for x, y in pairs]
