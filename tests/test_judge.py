"""The judge of "Build it yourself": answers that people wrote, and right ones in several styles.

A file of tests/answers is a step. Its functions `wrong_...` are mistakes: the docstring has a line
`Source:`, where it was made, and a last line `Cause:`, how the judge must begin. Its functions
`right_...` must be accepted. Where a step asks for two functions, the line `Part:` says which one
this is; the other is then the truth.
"""

import importlib.util
import inspect
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import nbformat
import pytest

from rope.book import judge as package
from rope.book.judge import verdict

ROOT = Path(__file__).parents[1]
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


def blocks():
    """The code of the page's fenced blocks by language, and its solutions."""
    notebook = nbformat.read(ROOT / "chapters" / "build_your_own.ipynb", as_version=4)
    text = "\n".join(cell["source"] for cell in notebook["cells"])
    fenced = dict(re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL))
    inside, solutions = False, []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and inside:
            solutions.append(cell["source"])
        elif "{solution-" in cell["source"]:
            inside = "{solution-start}" in cell["source"]
    return fenced, "\n".join(solutions)


IMPORTS = """
from math import cos, sin
import torch
from torch.nn.functional import linear, scaled_dot_product_attention
from rope.book.judge import verdict
"""


@pytest.mark.parametrize(
    "change", [None, ("x * c - y * s, x * s + y * c", "x * c + y * s, y * c - x * s")]
)
def test_a_file_of_answers_is_graded_as_the_page_says(tmp_path, change):
    fenced, solutions = blocks()
    answers = IMPORTS + re.sub(r"(?m)^assert .*$", "", solutions)
    if change:
        assert change[0] in answers
        answers = answers.replace(*change, 1)
    (tmp_path / "mine.py").write_text(answers)
    (tmp_path / "test_steps.py").write_text(fenced["python"])
    run = lambda *command: subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    done = run("pytest", "-q", "-p", "no:cacheprovider", "test_steps.py")
    assert done.returncode == (1 if change else 0), done.stdout
    if change:
        assert "2 failed, 7 passed" in done.stdout  # the score of step 2 calls step 1
        assert "✗ Step 1: the pair turns clockwise" in done.stdout
    command = fenced["sh"].split()
    assert command[:3] == ["python", "-m", "rope.diagnose"]
    assert run(*command[2:]).returncode == 0


def test_the_command_fails_for_a_wrong_rotation(tmp_path):
    fenced, _ = blocks()
    (tmp_path / "mine.py").write_text("def rotate_batch(q, k, position_ids):\n    return q, k\n")
    done = subprocess.run(
        [sys.executable, *fenced["sh"].split()[1:]], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and "positions-ignored" in done.stdout


@pytest.mark.parametrize("step", range(1, 10))
def test_nothing_is_answered_by_a_traceback(step):
    """Nor by a right mark: nothing, a word, NaN, too many arguments, an exception, an ellipsis."""
    for answer in (
        lambda *given: None, lambda *given: "word", lambda *given: float("nan"),
        lambda: 0, lambda *given: {}[0], lambda *given: ..., lambda *given: [[1.0], 2.0],
        lambda *given: given,
    ):  # fmt: skip
        said = verdict(step, *[answer] * len(package.asked(step)))
        assert not said.right and said.text.startswith(f"✗ Step {step}: ") and said.cause


def test_a_memorised_output_is_not_enough():
    known = {(1.0, 0.0): (0.0, 1.0), (0.0, 1.0): (-1.0, 0.0)}
    assert not verdict(1, lambda x, y, angle: known.get((x, y), (0.0, 0.0))).right


@pytest.mark.parametrize(
    ("step", "answers"), [(0, []), (10, []), (1, []), (8, [len]), ("1", [len])]
)
def test_a_call_that_makes_no_sense_is_refused(step, answers):
    with pytest.raises(ValueError, match=r"step (is|\d got)"):
        verdict(step, *answers)


def test_marks_are_kept(capsys):
    package.passed.clear()
    package.judge(3, lambda m, d, b: [m * b ** (-2 * j / d) for j in range(d // 2)])
    assert capsys.readouterr().out.endswith("1 ·  2 ·  3 ✓  4 ·  5 ·  6 ·  7 ·  8 ·  9 ·\n")
    package.judge(3, lambda m, d, b: [])
    assert "✓" not in capsys.readouterr().out


def test_chapters_are_named_as_they_are():
    titles = {
        nbformat.read(path, as_version=4)["cells"][0]["source"].split("\n")[0].lstrip("# ")
        for path in (ROOT / "chapters").glob("*.ipynb")
    }
    for step in package.STEPS:
        for part in package.asked(step):
            assert any(title.startswith(part.chapter.split(": ")[0]) for title in titles)


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
