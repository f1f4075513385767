"""Compare an answer's results with the correct results and with the results of known mistakes."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from itertools import product, takewhile
from random import Random
from typing import Any, cast

from rope.book.judge import patches
from rope.book.judge.patches import CHAPTER, Function, Patch

Arguments = tuple[Any, ...]
Trial = tuple[Arguments, Any, list[float]]  # arguments, result, the result's numbers after the call
WRITES = "it writes into {}: leave the arguments as they are"
KEPT = "a later call changes an earlier result: return a new tensor from each call"
UNKNOWN = "{} is wrong, but the judge doesn't know this mistake: work out the call below by hand"
EPS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # for all other dtypes, float32's 2**-24


class Unusable(Exception):
    """Raised for an answer whose results can't be compared. The message names the cause."""


@dataclass(frozen=True)
class Fault:
    """Hold a fault's cause, a call that shows the fault, and the chapter that explains it."""

    cause: str
    example: str = ""
    chapter: str = ""


@dataclass(frozen=True)
class Part:
    """Describe one function that a step asks for, and how to test it.

    inputs: returns argument tuples, the simplest first.
    ways: the steps whose alternative solutions are also accepted.
    earlier: the earlier steps whose mistakes are also tried.
    call: calls an answer and checks the shape and dtype of the result.
    view: returns the part of a result that is compared.
    roundings: the tolerance, in roundings of the result's dtype.
    near: how many of the first inputs a mistake must match to be named. None means all.
    far: the cause to report if the results are wrong only after the first `near` inputs.
    check: called with a right answer and the correct function; returns a hidden fault or "".
    """

    step: int
    name: str
    chapter: str
    inputs: Callable[[Random], list[Arguments]]
    ways: tuple[int, ...] = ()
    earlier: tuple[int, ...] = ()
    call: Callable[..., Any] = lambda answer, *arguments: answer(*arguments)
    view: Function = lambda result: result
    roundings: int = 8
    near: int | None = None
    far: str = ""
    check: Callable[[Function, Function], str] = lambda answer, right: ""

    def right(self, way: Patch = CHAPTER) -> Function:
        """Return a new copy of the correct function, with the edits that `way` makes to it."""
        return cast(Function, patches.function(self.name, way))

    def right_ways(self) -> list[Patch]:
        """Return the chapter's solution and all accepted alternatives, as patches."""
        return [CHAPTER, *patches.select("right", *self.ways)]

    def mistakes(self) -> Iterator[tuple[str, Function]]:
        """Yield pairs: a known mistake's sentence, and an accepted solution with this mistake."""
        texts = [CHAPTER, *patches.select("same", self.step)]
        for step in (self.step, *self.earlier):
            before = "in the tables, " if step == 4 else "in the rotation, "
            for mistake, way in product(patches.select("mistake", step), self.right_ways()):
                functions = (patches.function(self.name, way, text, mistake) for text in texts)
                if function := next(filter(None, functions), None):
                    yield (step != self.step) * before + mistake.sentence, function


def numbers(value: Any) -> list[float]:
    """Return all numbers in lists, arrays, or tensors as floats, two per complex number.

    Raises Unusable if the value holds anything else.

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
    """Return a result's shape. For nested lists, follow the first item at each level."""
    if hasattr(value, "shape"):
        return list(value.shape)
    if isinstance(value, (list, tuple)):
        return [len(value), *(shape(value[0]) if value else ())]
    return []


def shown(value: Any) -> str:
    """Return a value as text: its numbers if there are at most eight, otherwise its shape.

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
        return f"{round(value, 9) + 0.0:.5g}"  # prints −0.0 and 6e-17 as 0
    return repr(value)


def places(value: Any, at: str = "") -> list[str]:
    """Return the index of each number in a nested result as text, such as "[1][0]"."""
    if not shape(value):
        return [at] * len(numbers(value))
    return [one for n, part in enumerate(value) for one in places(part, f"{at}[{n}]")]


def dtypes(result: Any) -> list[str]:
    """Return the dtype names of a result and of its parts. Skip parts that have no dtype."""
    parts = [result, *result] if isinstance(result, (list, tuple)) else [result]
    return [str(part.dtype).removeprefix("torch.") for part in parts if hasattr(part, "dtype")]


def agreeing(result: list[float], truth: list[float], within: float) -> list[bool]:
    """Return, for each pair of numbers, whether they differ by at most `within` or are both NaN."""
    pairs = zip(result, truth, strict=False)  # stop at the shorter list
    return [abs(x - y) <= within or (x != x and y != y) for x, y in pairs]


def judged(
    part: Part,
    answer: Function,
    earlier: Callable[[Function, BaseException | None], Fault | None] = lambda answer, error: None,
) -> Fault | str:
    """Return the fault in an answer or, if the answer is right, a text that says what was tried.

    earlier: looks for a fault in the functions from earlier steps that a wrong answer calls.
    """
    if not callable(answer):
        return Fault(f"{part.name} must be a function, but it has type {type(answer).__name__}")
    trials: list[Trial] = []
    error = raised = None
    for arguments in part.inputs(Random(part.step)):
        try:
            trials.append(tried(part, answer, arguments))
        except (Exception, SystemExit) as exception:
            error, raised = exception, _raised(part, answer, exception, arguments)
            break
    way = max(part.right_ways(), key=lambda way: [*_shares(part, part.right(way), trials)])
    number = agreement(part, part.right(way), trials)
    kept = all(all(agreeing(numbers(part.view(result)), held, 0)) for _, result, held in trials)
    if not raised and number == len(trials):
        if cause := part.check(answer, part.right(way)) if kept else KEPT:
            return Fault(cause)
        return f"{part.name} on {number} inputs{way.sentence.removeprefix('right')}"
    if fault := earlier(answer, error):
        return fault
    if raised and (number == len(trials) or len(trials) < 3):
        return raised
    example = _example(part, trials[number], part.right(way))
    if cause := _known_mistake(part, trials, number) or ("" if kept else KEPT):
        return Fault(cause, example)
    far = part.far if number >= (part.near or 0) else ""
    return Fault(far or UNKNOWN.format(part.name), example)


def tried(part: Part, answer: Function, arguments: Arguments) -> Trial:
    """Call an answer and return the trial. Raise Unusable if the call changes an argument."""
    own = deepcopy(arguments)
    result = part.call(answer, *own)
    values = numbers(part.view(result))
    names = signature(part.right()).parameters
    for name, before, after in zip(names, arguments, own, strict=False):
        if hasattr(before, "tolist") and before.tolist() != after.tolist():
            raise Unusable(WRITES.format(name))
    return arguments, result, values


def _shares(part: Part, function: Function, trials: list[Trial]) -> Iterator[float]:
    """Yield, for each trial, the share of the answer's numbers that a function reproduces.

    The share is 0 if the function raises an exception or the two results differ in shape. If the
    function's result has only one axis, only the number of values must match.
    """
    for arguments, result, held in trials:
        try:
            truth = part.call(function, *deepcopy(arguments))
            values, size = numbers(part.view(truth)), shape(part.view(truth))
        except Exception:
            values, size = [], []
        if len(values) != len(held) or (len(size) > 1 and size != shape(part.view(result))):
            yield 0.0
            continue
        eps = max(EPS.get(dtype, 2.0**-24) for dtype in ["", *dtypes(result), *dtypes(truth)])
        largest = max(filter(math.isfinite, map(abs, numbers(truth))), default=0)
        within = min(part.roundings * eps * (1 + largest), 0.05)
        yield sum(agreeing(held, values, within)) / len(values)


def agreement(part: Part, function: Function, trials: list[Trial]) -> int:
    """Return the number of trials before the first one that a function doesn't reproduce."""
    return sum(1 for _ in takewhile(lambda share: share == 1, _shares(part, function, trials)))


def _known_mistake(part: Part, trials: list[Trial], number: int) -> str:
    """Return the sentence for the mistake that best matches the answer, or "" if none matches.

    To match, a mistake must reproduce the results of the first `near` trials and of all trials up
    to and including the first wrong one.
    """
    best, longest = "", max(number, len(trials[: part.near]) - 1)
    for sentence, function in part.mistakes():
        if (agreeing_trials := agreement(part, function, trials)) > longest:
            best, longest = sentence, agreeing_trials
        if longest == len(trials):
            break
    return best


def _example(part: Part, trial: Trial, right: Function) -> str:
    """Return a sentence that shows a call, its result, and the correct result.

    If a result has more than eight numbers, show only the number with the largest error.
    """
    arguments, result, _ = trial
    truth = part.call(right, *deepcopy(arguments))
    a, b = shown(result), shown(truth)
    x, y = numbers(result), numbers(truth)
    if len(y) > 8 and len(x) == len(y):
        at = max(range(len(y)), key=lambda n: math.inf if x[n] != x[n] else abs(x[n] - y[n]))
        a, b = f"{shown(x[at])} at {places(result)[at]}", shown(y[at])
    return f"{part.name}({', '.join(map(shown, arguments))}) gives {a}; it must give {b}."


def _raised(part: Part, answer: Function, error: BaseException, arguments: Arguments) -> Fault:
    """Return the fault for an exception. Its cause names the line in the reader's code."""
    call = f"The call was {part.name}({', '.join(map(shown, arguments))})."
    if isinstance(error, Unusable):
        return Fault(str(error), call)
    code = getattr(answer, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if code and frame.filename == code.co_filename]
    message = " ".join(str(error).split())[:200].rstrip(".")
    where = f", in line {lines[-1]}" if lines else ""
    return Fault(f"it raises {type(error).__name__}{message and ': '}{message}{where}", call)
