"""The judge of "Build it yourself": right, or wrong and why.

`judge(1, rotate)` tries an answer on inputs from the simplest to some that are drawn, seeded by the
step. Where it differs from the truth it is compared with every wrong formula that the step knows,
and the one that gives the same is the cause; whole rotations are given to `rope.diagnose`. Steps 1
to 3 need Python alone, and run in the built page.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from random import Random
from textwrap import fill

from rope.book.judge.answers import Fault, Function, Part, judged

__all__ = ["Verdict", "asked", "judge", "verdict"]

STEPS = range(1, 10)
MODULES = 3 * ["in_python"] + 3 * ["rotations"] + 2 * ["attention"] + ["checkpoint"]
passed: set[int] = set()


@dataclass(frozen=True)
class Verdict:
    """What is said of an answer: `text`; its cause, where it is not right."""

    right: bool
    text: str
    cause: str = ""


def judge(step: int, *answers: Function) -> None:
    """Print the verdict on a step's answers, and the marks of all steps.

    >>> judge(1, lambda x, y, angle: (x, y))
    ✗ Step 1: the pair is not turned at all.
    rotate(1, 0, 1.5708) gives (1, 0); it must give (0, 1).
    See "Rotation in two dimensions".
    1 ·  2 ·  3 ·  4 ·  5 ·  6 ·  7 ·  8 ·  9 ·
    """
    said = verdict(step, *answers)
    (passed.add if said.right else passed.discard)(step)
    print(said.text)
    print("  ".join(f"{number} {'✓' if number in passed else '·'}" for number in STEPS))


def verdict(step: int, *answers: Function) -> Verdict:
    """The verdict on the answers to a step: one function for each that it asks for.

    Raises ValueError for a step that there is not, or another number of answers.
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
        said = judged(part, answer, Random(step))
        if isinstance(said, Fault):
            chapter = said.chapter or part.chapter
            lines = [f"✗ Step {step}: {said.cause}.", said.example, f'See "{chapter}".']
            text = "\n".join(fill(line, 80, subsequent_indent="  ") for line in lines if line)
            return Verdict(False, text, said.cause)
        tried.append(said)
    return Verdict(True, f"✓ Step {step}: right. Tried: {'; '.join(tried)}.")


def asked(step: int) -> tuple[Part, ...]:
    """What a step asks for, from its module: those from step 4 on import torch."""
    module = import_module(f"rope.book.judge.{MODULES[step - 1]}")
    parts: dict[int, tuple[Part, ...]] = module.PARTS
    return parts[step]
