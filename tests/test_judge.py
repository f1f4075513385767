"""The judge of "Build it yourself": answers that people wrote, and right ones in several styles.

A file of tests/answers is a step. Its functions `wrong_...` are mistakes: the docstring has a line
`Source:`, where it was made, and a last line `Cause:`, how the judge must begin. Its functions
`right_...` must be accepted. Where a step asks for two functions, the line `Part:` says which one
this is; the other is then the truth.
"""

import importlib.util
import inspect
import math
import re
from pathlib import Path
from random import Random

import pytest

from rope.book import judge as package
from rope.book.judge import verdict

ANSWERS = sorted((Path(__file__).parent / "answers").glob("step_*.py"))


def load(path):
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def told(function, name):
    """What stands behind a name in a function's docstring."""
    found = re.search(rf"^\s*{name}: ((?:.|\n(?!\s*\w+: ))*)", inspect.getdoc(function) or "", re.M)
    return " ".join(found[1].split()) if found else ""


def given(step, function):
    """The answers to a step, of which this function is one."""
    asked = package.asked(step)
    own = told(function, "Part") or asked[0].name
    return [function if part.name == own else next(iter(part.right.values())) for part in asked]


def functions(kind):
    for path in ANSWERS:
        step = int(path.stem.partition("_")[2])
        for name, function in vars(load(path)).items():
            if name.startswith(kind):
                yield pytest.param(step, function, id=f"{step}-{name}")


@pytest.mark.parametrize(("step", "wrong"), list(functions("wrong_")))
def test_a_mistake_is_named(step, wrong):
    said = verdict(step, *given(step, wrong))
    assert told(wrong, "Source").startswith("https://")
    assert not said.right
    assert said.cause.startswith(told(wrong, "Cause")), said.text
    assert "unknown to the judge" not in said.cause


@pytest.mark.parametrize(("step", "right"), list(functions("right_")))
def test_a_right_answer_is_accepted(step, right):
    assert verdict(step, *given(step, right)).text.startswith("✓")


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
def test_each_step_has_eight_mistakes_of_different_causes_and_four_right_answers(path):
    names = vars(load(path)).items()
    causes = {told(function, "Cause") for name, function in names if name.startswith("wrong_")}
    assert len(causes - {""}) >= 8
    assert len([name for name, _ in names if name.startswith("right_")]) >= 4


def first_outputs(step):
    """A function that knows the three simplest inputs by heart, and gives 0 for all others."""
    part = package.asked(step)[0]
    truth = next(iter(part.right.values()))
    known = {repr(given): truth(*given) for given in part.inputs(Random(step))[:3]}
    return lambda *given: known.get(repr(given), 0)


NO_ANSWERS = {
    "a float": 1.0,
    "nothing": lambda *_: None,
    "a string": lambda *_: "1.0",
    "a dict": lambda *_: {"x": 1.0},
    "a generator": lambda *_: (number for number in (0.0, 1.0)),
    "NaN": lambda *_: math.nan,
    "infinity": lambda *_: math.inf,
    "an empty list": lambda *_: [],
    "a ragged list": lambda *_: [[1.0], 2.0, [3.0, 4.0]],
    "an exception": lambda *_: {}[0],
    "an exception without a message": lambda *_: next(iter(())),
    "too few parameters": lambda: 1.0,
}


@pytest.mark.parametrize("step", range(1, 7))
@pytest.mark.parametrize("case", [*NO_ANSWERS, "first outputs"])
def test_what_is_no_answer_gets_a_sentence(step, case):
    said = verdict(step, NO_ANSWERS.get(case) or first_outputs(step))
    assert not said.right
    assert said.cause
    assert not re.search(r': ,|: \.|""', said.text)


@pytest.mark.parametrize("step", [4, 5, 6])
def test_a_whole_rotation_is_not_learned_by_heart(step):
    """Not even with every input of the judge: a diagnosis has others."""
    part = package.asked(step)[0]
    truth = next(iter(part.right.values()))
    known = {repr(given): truth(*given) for given in part.inputs(Random(step))}
    for otherwise in (lambda *given: None, lambda *given: next(iter(known.values())), truth):
        answer = lambda *given, rest=otherwise: known.get(repr(given), rest(*given))
        assert verdict(step, answer).right == (otherwise is truth)
