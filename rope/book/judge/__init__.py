"""Judge the answers to "Build it yourself": right, or wrong and why.

`judge(1, rotate)` tries an answer on inputs from the simplest to some that are drawn with a fixed
seed. If it differs from the right function (`right.py`), it is compared with every known mistake
(`mistakes/`), and the mistake that gives the same results is the cause. Steps 1 to 3 need only
Python's standard library and run in the built page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import getclosurevars, isfunction
from textwrap import fill

from rope.book.judge.answers import Fault, Part, judged
from rope.book.judge.patches import Function

__all__ = ["Verdict", "asked", "judge", "verdict"]

STEPS = range(1, 10)
SLOW = range(4, 10)  # to compare with all mistakes takes up to some seconds
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
    result = verdict(step, *answers, announce=print if step in SLOW else str)
    (passed.add if result.right else passed.discard)(step)
    print(result.text)
    print("  ".join(f"{number} {'✓' if number in passed else '·'}" for number in STEPS))


def verdict(step: int, *answers: Function, announce: Function = lambda text: None) -> Verdict:
    """Return the verdict on the answers to a step, one function for each that it asks for.

    announce: prints a line before a wrong answer is compared with the known mistakes.
    Raises ValueError unless step is 1 to 9 and the number of answers is right.
    """
    if step not in STEPS:
        raise ValueError(f"step is {step!r}; it must be one of 1 to 9: judge(1, rotate)")
    parts = asked(step)
    if len(answers) != len(parts):
        call = f"judge({step}, {', '.join(part.name for part in parts)})"
        raise ValueError(f"step {step} got {len(answers)} answers; call {call}")
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
    return import_module(f"rope.book.judge.{MODULES[step - 1]}").PARTS[step]


def _fault_before(step: int) -> Callable[[Function, BaseException | None], Fault | None]:
    """Return what looks for a fault in the functions of earlier steps that an answer calls."""

    def fault(answer: Function, error: BaseException | None) -> Fault | None:
        called = getclosurevars(answer).globals if isfunction(answer) else {}
        for number, part in ((n, part) for n in range(1, step) for part in asked(n)):
            if isinstance(error, NameError) and error.name == part.name:
                return Fault(f"it calls {part.name}, which does not exist: write step {number}")
            own, right = called.get(part.name), part.right()
            # A function of the same name with other parameters is not meant for that step.
            if isfunction(own) and own.__code__.co_argcount == right.__code__.co_argcount:
                result = judged(part, own, _fault_before(number))
                if isinstance(result, Fault):
                    cause = f"it calls {part.name}, and step {number} is not right yet: "
                    chapter = result.chapter or part.chapter
                    return Fault(cause + result.cause, result.example, chapter)
        return None

    return fault
