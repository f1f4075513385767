"""Test the judge in "Build it yourself" on answers that people wrote and on patched solutions.

Each file in tests/answers belongs to one step. Its functions `wrong_...` are mistakes: their
docstring has a line `Source:`, which says where the mistake was made, and a last line `Cause:` with
the beginning of the verdict. Its functions `right_...` must be accepted. If a step asks for two
functions, the line `Part:` names the function; a correct one is used for the other part.
"""

import ast
import contextlib
import importlib.util
import inspect
import math
import re
import sys
from pathlib import Path
from random import Random

import nbformat
import pytest

from rope.book import judge as package
from rope.book.judge import answers, patches, right, verdict
from rope.book.live.pages import page_cells
from rope.book.live.running import run
from rope.diagnose import __main__ as command

ROOT = Path(__file__).parents[1]
CHAPTER = ROOT / "chapters" / "build_your_own.ipynb"
ANSWERS = sorted((Path(__file__).parent / "answers").glob("step_*.py"))


def load(path):
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def field(function, name):
    """Return a field from a function's docstring, or "" if it is missing."""
    found = re.search(rf"^\s*{name}: ((?:.|\n(?!\s*\w+: ))*)", inspect.getdoc(function) or "", re.M)
    return " ".join(found[1].split()) if found else ""


def complete(step, function, name=""):
    """Return all answers to a step: this function, and correct functions for the other parts."""
    parts = package.asked(step)
    own = name or field(function, "Part") or parts[0].name
    return [function if part.name == own else part.right() for part in parts]


def functions(kind):
    for path in ANSWERS:
        step = int(path.stem.partition("_")[2])
        for name, function in vars(load(path)).items():
            if name.startswith(kind):
                yield pytest.param(step, function, id=f"{step}-{name}")


@pytest.mark.parametrize(("step", "wrong"), list(functions("wrong_")))
def test_a_mistake_is_named(step, wrong):
    result = verdict(step, *complete(step, wrong))
    assert not result.right
    assert result.cause.startswith(field(wrong, "Cause") or "no cause in the docstring")


@pytest.mark.parametrize(("step", "answer"), list(functions("right_")))
def test_a_right_answer_is_accepted(step, answer):
    result = verdict(step, *complete(step, answer))
    assert result.right and result.text.startswith(f"✓ Step {step}"), result.text


def page():
    """Return the page's fenced code blocks by language, and the code of its solutions."""
    notebook = nbformat.read(CHAPTER, as_version=4)
    text = "\n".join(cell["source"] for cell in notebook["cells"])
    inside, solutions = False, []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and inside:
            solutions.append(cell["source"])
        elif "{solution-" in cell["source"]:
            inside = "{solution-start}" in cell["source"]
    return dict(re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)), "\n".join(solutions)


IMPORTS = """
from math import cos, sin
import torch
from torch.nn.functional import linear, scaled_dot_product_attention
"""
BLOCKS, SOLUTIONS = page()
SOLVED = IMPORTS + re.sub(r"(?m)^assert .*$", "", SOLUTIONS)
CLOCKWISE = SOLVED.replace("x * c - y * s, x * s + y * c", "x * c + y * s, y * c - x * s", 1)
UNROTATED = re.sub(r"return rotate_head\(q.*", "return q, k", SOLVED)


def test_the_right_functions_are_the_solutions_of_the_chapter():
    both = []
    for source in (SOLUTIONS, patches.SOURCE):
        nodes = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
        both.append({node.name: ast.get_source_segment(source, node) for node in nodes})
    assert both[0] == both[1] and len(both[0]) == 12


def test_the_page_judges_with_the_readers_own_functions():
    cells = page_cells(nbformat.read(CHAPTER, as_version=4))
    number = next(n for n, cell in enumerate(cells) if cell.get("judged") == 2)
    above = [
        {"source": cell["source"], "whole": "stored" in cell}
        for cell in cells[:number]
        if "solution" not in cell
    ]
    source = inspect.getsource(right.score) + "\njudge(2, score)"
    assert "it calls rotate, and step 1 is not right yet" in run(above, source, "")["text"]
    above.append({"source": inspect.getsource(right.rotate), "whole": True})
    assert run(above, source, "")["text"].startswith("✓ Step 2")


@pytest.mark.parametrize("step", package.STEPS)
def test_each_mistake_can_be_applied_and_is_wrong(step):
    every, wrong = {mistake.sentence for mistake in patches.select("mistake", step)}, set()
    for part in package.asked(step):
        for sentence, function in part.mistakes():
            trials = []
            with contextlib.suppress(Exception):
                for one in part.inputs(Random(step)) if sentence in every - wrong else ():
                    trials.append(answers.tried(part, function, one))
            agreements = [
                answers.agreement(part, part.right(way), trials) for way in part.right_ways()
            ]
            if max(agreements) < len(trials):
                wrong.add(sentence)
    assert every == wrong


@pytest.mark.parametrize(
    ("source", "failures", "status"),
    [
        (SOLVED, {}, 0),
        (CLOCKWISE, {1: "the pair turns clockwise", 2: "step 1 is not right yet"}, 0),
        (UNROTATED, {6: "x is not rotated", 7: "step 6 is not right yet"}, 1),
    ],
    ids=["solved", "clockwise", "unrotated"],
)
def test_a_file_of_answers_is_graded_as_the_page_says(
    tmp_path, monkeypatch, source, failures, status
):
    (tmp_path / "mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "mine", None)  # so that the module is removed afterward
    del sys.modules["mine"]
    graded = {}
    exec(BLOCKS["python"], graded)
    for step in package.STEPS:
        if step in failures:
            with pytest.raises(AssertionError, match=rf"✗ Step {step}: (.|\n)*{failures[step]}"):
                graded["test_step"](step)
        else:
            graded["test_step"](step)
    python, flag, module, *words = BLOCKS["sh"].split()
    assert (python, flag, module) == ("python", "-m", "rope.diagnose")
    assert command.main(words) == status


NO_ANSWERS = {
    "a float": 1.0,
    "nothing": lambda *_: None,
    "an ellipsis": lambda *_: ...,
    "a string": lambda *_: "1.0",
    "a dict": lambda *_: {"x": 1.0},
    "a generator": lambda *_: (number for number in (0.0, 1.0)),
    "NaN": lambda *_: math.nan,
    "infinity": lambda *_: math.inf,
    "an empty list": lambda *_: [],
    "a ragged list": lambda *_: [[1.0], 2.0, [3.0, 4.0]],
    "its arguments": lambda *arguments: arguments,
    "an exception": lambda *_: {}[0],
    "an exception without a message": lambda *_: next(iter(())),
    "too few parameters": lambda: 1.0,
}


@pytest.mark.parametrize("step", package.STEPS)
def test_what_is_no_answer_is_wrong_and_gets_a_sentence(step):
    for answer in NO_ANSWERS.values():
        result = verdict(step, *[answer] * len(package.asked(step)))
        assert not result.right and result.cause and result.text.startswith(f"✗ Step {step}: ")
        assert not re.search(r': ,|: \.|""', result.text)


@pytest.mark.parametrize("step", range(1, 7))
def test_results_learned_by_heart_are_not_enough(step):
    part = package.asked(step)[0]
    truth = part.right()
    known = {repr(one): truth(*one) for one in part.inputs(Random(step))[:3]}
    for otherwise in (lambda *_: None, lambda *_: next(iter(known.values())), truth):
        answer = lambda *one, rest=otherwise: known.get(repr(one), rest(*one))
        assert verdict(step, answer).right == (otherwise is truth)


# Newcomers' mistakes: the step and its function, the beginning of the cause, and the edits.
NEWCOMER = patches.parse((ROOT / "tests" / "answers" / "newcomer.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("patch", NEWCOMER, ids=[patch.sentence for patch in NEWCOMER])
def test_what_a_newcomer_tried_is_found(patch):
    step, name, cause = re.match(r"(\d) (\w+): (.*)", patch.sentence).groups()
    answer = patches.function(name, patch)
    assert answer is not None, "the edits don't apply"
    result = verdict(int(step), *complete(int(step), answer, name))
    assert not result.right and result.cause.startswith(cause), result.text


@pytest.mark.parametrize(
    ("step", "functions", "words"),
    [(0, [], "step.* 0"), ("1", [len], "step.*'1'"), (1, [], "1 got 0"), (8, [len], "8 got 1")],
)
def test_a_call_that_makes_no_sense_raises(step, functions, words):
    with pytest.raises(ValueError, match=words):
        verdict(step, *functions)


def test_marks_are_kept(capsys):
    package.passed.clear()
    package.judge(3, lambda m, d, b: [m * b ** (-2 * j / d) for j in range(d // 2)])
    assert capsys.readouterr().out.endswith("1 ·  2 ·  3 ✓  4 ·  5 ·  6 ·  7 ·  8 ·  9 ·\n")
    package.judge(3, lambda m, d, b: [])
    assert "✓" not in capsys.readouterr().out
    assert answers.places([1.0, [2.0, 3j]]) == ["[0]", "[1][0]", "[1][1]", "[1][1]"]


def test_the_chapters_that_the_judge_cites_exist():
    titles = [
        nbformat.read(path, as_version=4)["cells"][0]["source"].split("\n")[0].lstrip("# ")
        for path in (ROOT / "chapters").glob("*.ipynb")
    ]
    for part in (part for step in package.STEPS for part in package.asked(step)):
        assert any(title.startswith(part.chapter.split(": ")[0]) for title in titles)
