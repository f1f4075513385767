"""How an answer is judged: against each right way, then against each wrong one that is known."""

from __future__ import annotations

import copy
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

Function = Callable[..., Any]
EPS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # of all other dtypes float32's, 2**-24


class Unusable(Exception):
    """An answer that cannot be compared; its message is the cause."""


@dataclass(frozen=True)
class Fault:
    """What is wrong: its cause, the smallest input that shows it, the chapter that explains it."""

    cause: str
    example: str = ""
    chapter: str = ""


@dataclass(frozen=True)
class Part:
    """One function that a step asks for.

    inputs: tuples of arguments, from the simplest on; right: every right way, by what is said of
    it; wrong: formulas, by the cause, which must meet the first `near` inputs, or all; view: what
    of a result is compared; diagnose: of an answer that is a whole rotation, what is wrong with it;
    calls: makes of an answer what the inputs are given to; roundings: of the answer's dtype, which
    are forgiven.
    """

    name: str
    chapter: str
    inputs: Callable[[Random], list[tuple[Any, ...]]]
    right: dict[str, Function]
    wrong: Mapping[str, Function | tuple[Function, ...]]
    view: Function = lambda result: result
    diagnose: Callable[[Function], Fault | None] = lambda answer: None
    calls: Callable[[Function], Function] = lambda answer: answer
    roundings: int = 8
    near: int | None = None
    far: Fault | None = None
    sizes: dict[int, str] = field(default_factory=dict)


def judged(part: Part, answer: Function, draw: Random) -> Fault | str:
    """The fault of an answer, or what was tried where it has none."""
    if not callable(answer):
        return Fault(f"{part.name} must be a function; this is of type {type(answer).__name__}")
    tried: list[tuple[tuple[Any, ...], Any]] = []
    raised = None
    for given in part.inputs(draw):
        try:
            result = _run(part, answer, given)
            numbers(part.view(result))
        except (Exception, SystemExit) as error:
            call = f"The call was {_call(part, given)}."
            said = _raised(error, answer)
            for axis, advice in part.sizes.items():
                said += f"; {advice}" if f"non-singleton dimension {axis}" in said else ""
            raised = Fault(said, call, part.chapter)
            found = None if isinstance(error, Unusable) else part.diagnose(answer)
            if found and found.chapter:
                raised = Fault(found.cause, f"{call[:-1]}: {said}.", found.chapter)
            if len(tried) < 3:  # else what is wrong before it is told first
                return raised
            break
        tried.append((given, result))

    def agrees(formula: Function) -> int:
        """How many inputs it takes until a formula gives something else, or nothing."""
        for number, (given, result) in enumerate(tried):
            try:
                if _differs(part, _run(part, formula, given), result):
                    return number
            except (ArithmeticError, Unusable):
                return number
        return len(tried)

    def near(formula: Function) -> tuple[int, int]:
        """How near a formula comes: the inputs until it differs, and all numbers that agree."""
        same = (_same(part, _run(part, formula, given), result) for given, result in tried)
        return agrees(formula), sum(map(sum, same))

    how, formula = max(part.right.items(), key=lambda way: near(way[1]))
    if (number := agrees(formula)) == len(tried):
        return raised or part.diagnose(answer) or f"{part.name} on {number} inputs{how}"
    given, result = tried[number]
    example = _example(part, given, result, _run(part, formula, given))
    ways = ((cause, way if isinstance(way, tuple) else (way,)) for cause, way in part.wrong.items())
    longest = {cause: max(map(agrees, way)) for cause, way in ways}
    cause = max(longest, key=lambda one: longest[one])
    if longest[cause] >= max(number + 1, len(tried[: part.near])):
        return Fault(cause, example, part.chapter)
    if raised:
        return raised
    far = part.far if number >= (part.near or 0) else None
    if found := part.diagnose(answer) or far:
        return Fault(found.cause, example, found.chapter)
    if not all(map(math.isfinite, numbers(result))):
        return Fault(f"{part.name} gives NaN or infinity", example, part.chapter)
    if not _fits(part.view(result), part.view(_run(part, formula, given))):
        return Fault(f"{part.name} gives another shape", example, part.chapter)
    return Fault(f"{part.name} is wrong in a way unknown to the judge", example, part.chapter)


def _run(part: Part, formula: Function, given: tuple[Any, ...]) -> Any:
    return part.calls(formula)(*copy.deepcopy(given))


def numbers(value: Any) -> list[float]:
    """All numbers of a result, in order: of lists, arrays, tensors; a complex one is two.

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
    """The lengths of a result's axes, as far as the first part of each shows them."""
    if hasattr(value, "shape"):
        return list(value.shape)
    if isinstance(value, (list, tuple)):
        return [len(value), *(shape(value[0]) if value else ())]
    return []


def shown(value: Any) -> str:
    """A value in a sentence: its numbers where they are few, its shape where they are many.

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


def _fits(a: Any, b: Any) -> bool:
    """Whether a result has the truth's shape; of numbers and lists their number alone counts."""
    return len(numbers(a)) == len(numbers(b)) and (len(shape(b)) < 2 or shape(a) == shape(b))


def _differs(part: Part, truth: Any, result: Any) -> bool:
    """Whether a result is not the truth."""
    return not _fits(part.view(result), part.view(truth)) or not all(_same(part, truth, result))


def _same(part: Part, truth: Any, result: Any) -> list[bool]:
    """Which numbers are the truth's, but for the rounding of the result's own dtype."""
    a, b = part.view(result), part.view(truth)
    eps = max(map(_eps, result if isinstance(result, (tuple, list)) else (result,)), default=0)
    within = min(
        part.roundings
        * eps
        * (1 + max(filter(math.isfinite, map(abs, numbers(truth))), default=0)),
        0.05,
    )
    pairs = zip(numbers(a), numbers(b), strict=False)  # as far as there are both
    return [abs(x - y) <= within or (x != x and y != y) for x, y in pairs]


def _place(value: Any, at: int) -> list[int]:
    """Where number `at` of a result stands: of which part, at which index.

    >>> _place(([1, 2], [[3], [4]]), 3)
    [1, 1, 0]
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    for place, part in enumerate(value if isinstance(value, (list, tuple)) else ()):
        if at < (count := len(numbers(part))):
            return [place, *_place(part, at)]
        at -= count
    return []


def _eps(value: Any) -> float:
    return EPS.get(str(getattr(value, "dtype", "")).removeprefix("torch."), 2.0**-24)


def _call(part: Part, given: tuple[Any, ...]) -> str:
    return f"{part.name}({', '.join(map(shown, given))})"


def _example(part: Part, given: tuple[Any, ...], result: Any, truth: Any) -> str:
    """A call, what it gives and must give: all of it, or of many numbers the one farthest off."""
    a, b, of = shown(result), shown(truth), ""
    x, y = numbers(result), numbers(truth)
    if len(y) > 8 and len(x) == len(y):
        at = max(range(len(y)), key=lambda n: math.inf if x[n] != x[n] else abs(x[n] - y[n]))
        a, b, of = shown(x[at]), shown(y[at]), f" at {_place(truth, at)}"
    return f"{_call(part, given)} gives {a}{of}; it must give {b}."


def _raised(error: BaseException, answer: Function) -> str:
    """An exception of the reader's code as a sentence, with the reader's own line."""
    if isinstance(error, Unusable):
        return str(error)
    code = getattr(answer, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if code and frame.filename == code.co_filename]
    message = " ".join(str(error).split())[:200].rstrip(".")
    where = f", in line {lines[-1]}" if lines else ""
    return f"it raises {type(error).__name__}{message and ': '}{message}{where}"
