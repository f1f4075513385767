"""Judge the answers to "Build it yourself": right, or wrong and why.

`judge(1, rotate)` tries an answer on inputs from the simplest to some that are drawn with a fixed
seed. If it differs from the right function (`right.py`), it is compared with every known mistake
(`mistakes/`), and the mistake that gives the same results is the cause. Steps 1 to 3 need only
Python's standard library and run in the built page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from textwrap import fill
from types import CodeType
from typing import Any

from rope.book.judge.answers import Fault, Part, judged
from rope.book.judge.patches import Function

__all__ = ["Verdict", "asked", "judge", "verdict"]

STEPS = range(1, 10)
MODULES = 3 * ["in_python"] + 6 * ["in_torch"]
passed: set[int] = set()


@dataclass(frozen=True)
class Verdict:
    """What the judge prints for an answer: `text`; `cause` if it isn't right."""

    right: bool
    text: str
    cause: str = ""


def judge(step: int, *answers: Function) -> None:
    """Print the verdict on a step's answers, and a mark for each step.

    >>> judge(1, lambda x, y, angle: (x, y))
    ✗ Step 1: the pair is not rotated at all.
    rotate(1, 0, 1.5708) gives (1, 0); it must give (0, 1).
    See "Rotation in two dimensions".
    1 ·  2 ·  3 ·  4 ·  5 ·  6 ·  7 ·  8 ·  9 ·
    """

    def announce() -> None:
        if MODULES[step - 1] != "in_python":  # there it takes no time
            print(f"Step {step} is not right; comparing it with known mistakes …", flush=True)

    result = verdict(step, *answers, announce=announce)
    (passed.add if result.right else passed.discard)(step)
    print(result.text)
    print("  ".join(f"{number} {'✓' if number in passed else '·'}" for number in STEPS))


def verdict(step: int, *answers: Function, announce: Callable[[], None] = lambda: None) -> Verdict:
    """Return the verdict on the answers to a step, one function for each that it asks for.

    announce is called before a wrong answer is compared with the known mistakes.
    Raises ValueError unless step is 1 to 9 and the number of answers is right.
    """
    if step not in STEPS:
        raise ValueError(f"step is {step!r}; it must be one of 1 to 9: judge(1, rotate)")
    parts = asked(step)
    if len(answers) != len(parts):
        call = f"judge({step}, {', '.join(part.name for part in parts)})"
        raise ValueError(
            f"step {step} got {len(answers)} answers; it must get {len(parts)}: {call}"
        )
    tried = []
    for part, answer in zip(parts, answers, strict=True):
        result = judged(part, answer, _fault_before(step), announce)
        if isinstance(result, Fault):
            chapter = result.chapter or part.chapter
            lines = [f"✗ Step {step}: {result.cause}.", result.example, f'See "{chapter}".']
            text = "\n".join(fill(line, 80, subsequent_indent="  ") for line in lines if line)
            return Verdict(False, text, result.cause)
        tried.append(result)
    return Verdict(True, f"✓ Step {step}: right. Tried: {'; '.join(tried)}.")


def asked(step: int) -> tuple[Part, ...]:
    """Return the functions that a step asks for; from step 4 on, this imports torch."""
    module = import_module(f"rope.book.judge.{MODULES[step - 1]}")
    parts: dict[int, tuple[Part, ...]] = module.PARTS
    return parts[step]


def _fault_before(step: int) -> Callable[[Function, BaseException | None], Fault | None]:
    """Return what looks for a fault in the functions of earlier steps that an answer calls."""

    def fault(answer: Function, error: BaseException | None) -> Fault | None:
        names = set(_names(getattr(answer, "__code__", None)))
        for number in range(1, step):
            for part in asked(number):
                called: Any = getattr(answer, "__globals__", {}).get(part.name)
                if isinstance(error, NameError) and error.name == part.name and not called:
                    return Fault(f"it calls {part.name}, which does not exist: write step {number}")
                if part.name not in names or _parameters(called) != _parameters(part.right()):
                    continue  # not called, or a function of the same name for something else
                result = judged(part, called, _fault_before(number))
                if isinstance(result, Fault):
                    cause = f"it calls {part.name}, and step {number} is not right yet"
                    chapter = result.chapter or part.chapter
                    return Fault(f"{cause}: {result.cause}", result.example, chapter)
        return None

    return fault


def _names(code: Any) -> Iterator[str]:
    """Yield the global names that code reads, inner functions included."""
    if isinstance(code, CodeType):
        yield from code.co_names
        for constant in code.co_consts:
            yield from _names(constant)


def _parameters(function: Any) -> int:
    return getattr(getattr(function, "__code__", None), "co_argcount", -1)
