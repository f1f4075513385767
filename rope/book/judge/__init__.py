"""Judge a reader's answers to "Build it yourself" and explain what is wrong with an answer.

`judge(1, rotate)` calls the reader's `rotate` on simple inputs, then on random inputs with a fixed
seed. If a result differs from the correct function's result (`right.py`), the judge compares the
answer with every known mistake (`mistakes/`) and names the mistake that yields the same results.
Steps 1 to 3 need only Python's standard library and run in the built page.
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
MODULES = 3 * ["in_python"] + 6 * ["in_torch"]
passed: set[int] = set()


@dataclass(frozen=True)
class Verdict:
    """Hold a verdict: whether an answer is right, the text to print, and the cause of a fault."""

    right: bool
    text: str
    cause: str = ""


def judge(step: int, *answers: Function) -> None:
    """Print the verdict on the answers to a step, then a line with a mark for each step.

    >>> judge(1, lambda x, y, angle: (x, y))
    ✗ Step 1: the pair is not rotated at all: the angle must enter through its
      cosine and sine.
    rotate(1, 0, 1.5708) gives (1, 0); it must give (0, 1).
    See "Rotation in two dimensions".
    1 ·  2 ·  3 ·  4 ·  5 ·  6 ·  7 ·  8 ·  9 ·
    """
    result = verdict(step, *answers)
    (passed.add if result.right else passed.discard)(step)
    print(result.text)
    print("  ".join(f"{number} {'✓' if number in passed else '·'}" for number in STEPS))


def verdict(step: int, *answers: Function) -> Verdict:
    """Return the verdict on the answers to a step. Pass each function that the step asks for.

    Raises ValueError unless `step` is 1 to 9 and there is one answer for each function.
    """
    if step not in STEPS:
        raise ValueError(f"step is {step!r}; it must be from 1 to 9, as in judge(1, rotate)")
    parts = asked(step)
    if len(answers) != len(parts):
        call = f"judge({step}, {', '.join(part.name for part in parts)})"
        raise ValueError(f"step {step} got {len(answers)} answers; call {call}")
    tried = []
    for part, answer in zip(parts, answers, strict=True):
        result = judged(part, answer, _fault_before(step))
        if isinstance(result, Fault):
            chapter = result.chapter or part.chapter
            lines = [f"✗ Step {step}: {result.cause}.", result.example, f'See "{chapter}".']
            text = "\n".join(fill(line, 80, subsequent_indent="  ") for line in lines if line)
            return Verdict(False, text, result.cause)
        tried.append(result)
    return Verdict(True, f"✓ Step {step}: right. Tried: {'; '.join(tried)}.")


def asked(step: int) -> tuple[Part, ...]:
    """Return the parts of a step, one for each function to write. Steps 4 to 9 import torch."""
    return import_module(f"rope.book.judge.{MODULES[step - 1]}").PARTS[step]


def _fault_before(step: int) -> Callable[[Function, BaseException | None], Fault | None]:
    """Return a function that finds faults in functions from earlier steps that an answer calls."""

    def fault(answer: Function, error: BaseException | None) -> Fault | None:
        called = getclosurevars(answer).globals if isfunction(answer) else {}
        for number, part in ((n, part) for n in range(1, step) for part in asked(n)):
            if isinstance(error, NameError) and error.name == part.name:
                return Fault(f"it calls {part.name}, which does not exist: write step {number}")
            own, right = called.get(part.name), part.right()
            # A function with the same name but other parameters doesn't belong to that step.
            if isfunction(own) and own.__code__.co_argcount == right.__code__.co_argcount:
                result = judged(part, own, _fault_before(number))
                if isinstance(result, Fault):
                    cause = f"it calls {part.name}, and step {number} is not right yet: "
                    chapter = result.chapter or part.chapter
                    return Fault(cause + result.cause, result.example, chapter)
        return None

    return fault
