"""Test cells that run in the page: which can run, what they need, and what they print."""

import ast
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest

from rope.book.live import bundle, pages
from rope.book.live.__main__ import UNAVAILABLE
from rope.book.live.pages import page_cells
from rope.book.live.running import run
from rope.book.tools.slicing import needed

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))


@pytest.fixture(scope="module")
def cells():
    return {path.stem: page_cells(nbformat.read(path, as_version=4)) for path in CHAPTERS}


def needed_lines(above, source):
    return [line for one in needed(above, source)[0] for line in ast.unparse(one.node).splitlines()]


def test_the_pages_of_proofs_have_cells_that_run(cells):
    """Check that no cell has stopped being runnable, for example because of a new import."""
    for name in ("eulers_formula", "rotation_in_two_dimensions", "why_rotation", "build_your_own"):
        assert sum("stored" in cell for cell in cells[name]) >= 7, name


def test_every_cell_agrees_without_torch_and_numpy(cells):
    """Run as in the browser: in fresh namespaces, without the libraries that the browser lacks."""
    code = (
        "import json, sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'numpy', 'scipy', 'matplotlib')))\n"
        "from rope.book.live.running import run\n"
        "for name, page in json.load(sys.stdin).items():\n"
        "    for number, cell in enumerate(page):\n"
        "        if 'stored' in cell:\n"
        "            above = [one['source'] for one in page[:number]]\n"
        "            result = run(above, cell['source'], cell['stored'])\n"
        "            print(json.dumps([name, number, result]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(cells), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == sum("stored" in cell for page in cells.values() for cell in page) > 50
    assert [result for result in results if not result[2]["same"]] == []


# Each case: its name, the cells above, the cell, and the lines that the cell needs.
NEEDS = [
    ("a name bound twice", ["x = 1", "x = 2"], "x", ["x = 2"]),
    ("what is changed by a call", ["x = []", "x.append(1)"], "x", ["x = []", "x.append(1)"]),
    ("what is changed by an item", ["x = {}", "x[0] = y"], "x", ["x = {}", "x[0] = y"]),
    ("a loop that may not run", ["x = 0", "for x in z: 1"], "x", ["x = 0", "for x in z:", "    1"]),
    ("a line of many", ["import torch\nimport sympy as sp\nt = 1"], "sp", ["import sympy as sp"]),
    (
        "a function's names, made before it is called",
        ["def f(): return g()", "def g(): return h", "h = 1"],
        "f()",
        ["def f():", "    return g()", "def g():", "    return h", "h = 1"],
    ),
    ("a comprehension's own name", ["x = 1"], "[x for x in 'ab']", []),
    ("a loop's own name", ["x = 1"], "for x in 'ab': print(x)", []),
    ("what a loop binds first", ["x, y = 1, 2"], "for _ in y: x = 1; print(x)", ["x, y = (1, 2)"]),
    ("what one branch binds", ["x = 1", "y = 2"], "if y: x = 2\nprint(x)", ["x = 1", "y = 2"]),
    ("a name after with", ["x = 1"], "with open('') as x: x", []),
    ("an argument", ["x = 1"], "f = lambda x: x", []),
    ("what it binds before it reads", ["x = 1"], "x = 2; print(x)", []),
    ("what it reads before it binds", ["x = 1"], "x = x + 1", ["x = 1"]),
    ("what is only looked at", ["x = 1", "print(x)", "assert x.real"], "x", ["x = 1"]),
]


@pytest.mark.parametrize(
    ("above", "source", "lines"), [case[1:] for case in NEEDS], ids=[case[0] for case in NEEDS]
)
def test_what_a_cell_needs(above, source, lines):
    assert needed_lines(above, source) == lines


def test_names_without_a_definition_are_unknown():
    assert needed(["%pip install rope", "y = z"], "print(x, y, __name__)")[1] == {"x", "z"}


@pytest.mark.parametrize(
    ("needs", "may"),
    [
        ("import math, cmath, sympy", True),
        ("from rope import symbolic", True),
        ("import rope.symbolic", True),
        ("import torch", False),
        ("import numpy", False),
        ("from rope import reference", False),
        ("import rope.symbolic; rope.reference", False),
        ("from rope.book.figures.style import ink", False),
        ("import subprocess", False),
        ("def f():\n    import torch", False),
        ("unknown", False),
    ],
)
def test_what_the_browser_has(needs, may):
    output = [{"output_type": "stream", "text": "1\n"}]
    cells = [cell("print(1)", output), cell(f"{needs}\nprint(1)", output)]
    assert ["stored" in one for one in page_cells({"cells": cells})] == [True, may]


def cell(source, outputs=(), **metadata):
    return dict(cell_type="code", source=source, outputs=list(outputs), metadata=metadata)


def test_only_cells_that_show_or_check_something_have_a_button():
    uncompared = cell("assert 1", tags=["nbval-ignore-output"])
    set_up = cell("assert 1", tags=["hide-input"])
    cells = [cell("x = 1"), uncompared, set_up, cell("assert 1 == 1"), cell("sp.I")]
    assert ["stored" in one for one in page_cells({"cells": cells})] == [0, 0, 0, 1, 0]


def test_a_planted_error_is_reported():
    above = ["from rope.symbolic import prove_equal, real_symbols\nx, y = real_symbols('x y')"]
    sign = run(above, "print(1)\nprove_equal((x + y)**2, x**2 - 2*x*y + y**2)", "1")
    assert (sign["same"], sign["text"]) == (False, "1")
    assert sign["error"].endswith("what remains is 4*x*y (line 2)")

    stored = run(above, "print(1)\n2", "1\n3")
    assert not stored["same"] and stored["difference"] == ["  1", "- 3", "+ 2"]
    assert not run([], "pass", "1")["same"]


ELSEWHERE = "no nothing here: the page has only Python .*PyTorch"


@pytest.mark.parametrize(
    ("above", "source", "error"),
    [
        ("def f(): raise KeyError('k')", "\nf()", r"KeyError: 'k' \(line 2\)"),
        ("x = 1 / 0", "x", r"ZeroDivisionError: division by zero \(in a cell above\)"),
        ("x = 2 +", "pass", r"ValueError: code cell 1 of the page isn't Python: .*"),
        ("", "x = 1\ny = )", r"SyntaxError: .* \(line 2\)"),
        ("", "raise SystemExit", r"SystemExit \(line 1\)"),
        ("", "e = ValueError('a')\ne.add_note('b')\nraise e", r"ValueError: a \(line 3\)"),
        ("", "x = 1\nassert x == 2", r"AssertionError: `assert x == 2` \(line 2\)"),
        ("", "assert 0, 'so'", r"AssertionError: so \(line 1\)"),
        ("", "x = 1\nimport nothing.part", rf"ModuleNotFoundError: {ELSEWHERE}.*\(line 2\)"),
        ("import nothing", "nothing", rf"ModuleNotFoundError: {ELSEWHERE}.*\(in a cell above\)"),
        ("", "while True: print('x' * 1000)", r"ValueError: .* 100,000 .* \(line 1\)"),
    ],
)
def test_an_exception_is_one_line(above, source, error):
    assert re.fullmatch(error, run([above], source, "")["error"])


def test_each_run_starts_in_a_fresh_namespace():
    """Check that the order of clicks doesn't matter, but an edit in a cell above does."""
    assert run(["%pip install x\nimport torch", "x = 1"], "x += 1\nx", "2")["same"]
    assert run(["x = 1"], "x += 1\nx", "2")["same"]
    assert run(["x = 5"], "x += 1\nx", "2")["text"] == "6"
    assert run(["print('above'); x = 1"], "print(x)", "1")["same"]
    assert run([], "def f(x: int): pass\nf.__annotations__['x'] is int", "True")["same"]


# --- The bundle ---


def test_without_npm_the_pages_stay_as_they_are(tmp_path):
    page = tmp_path / "_build" / "html" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("<head></head>")
    environment = {**os.environ, "PATH": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "rope.book.live"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == UNAVAILABLE and "npm" in done.stderr
    assert page.read_text() == "<head></head>" and not (page.parent / "_static").exists()
    assert list((tmp_path / "_build" / "live").iterdir()) == [], "no partial bundle must be left"


def test_the_bundle_holds_our_files_and_names_the_licences(tmp_path, monkeypatch):
    work = tmp_path / "work"
    monkeypatch.setattr(bundle, "python_and_sympy", lambda _: work)
    work.mkdir()
    (work / "pyodide.mjs.js").write_text("1234567")
    sizes = bundle.write_bundle(work, tmp_path / "live")
    assert sizes["pyodide.mjs.js"] == 7
    assert {*sizes} == {"pyodide.mjs.js", "rope.zip.js", "worker.js.js"}
    licences = (tmp_path / "live" / "LICENCES.txt").read_text()
    for name in ("Pyodide", "Mozilla Public", "PSF", f"SymPy {version('sympy')}", "BSD", "mpmath"):
        assert name in licences
    assert licences.count("Redistributions in binary form must reproduce") >= len(bundle.PACKAGES)
    code = "import rope.symbolic, rope.book.live.running; print(rope.__file__)"
    (tmp_path / "rope.zip").write_bytes(bundle.own_files())
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['torch'] = None; {code}"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "rope.zip")}, cwd=tmp_path,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith(str(tmp_path)), done.stderr


def test_buttons_are_added_once_and_can_be_removed(tmp_path):
    (tmp_path / "html" / "chapters").mkdir(parents=True)
    (tmp_path / "chapters").mkdir()
    page = tmp_path / "html" / "chapters" / "one.html"
    page.write_text(built := "<html><head><title>1</title></head><body></body></html>")
    source = "assert '</script>' > ''"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbformat.write(notebook, tmp_path / "chapters" / "one.ipynb")
    for _ in range(2):
        counts = pages.add_buttons(tmp_path / "html", tmp_path / "chapters", {"a.js": 1})
        assert counts == {"one": 1}
    assert page.read_text().count("live/buttons.js") == 1
    assert "</script>'" not in page.read_text()
    assert pages.without_buttons(page.read_text()) == built
