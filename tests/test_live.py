"""Test cells that run in the page: which can run, what they need, and what they print."""

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

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))


@pytest.fixture(scope="module")
def cells():
    return {path.stem: page_cells(nbformat.read(path, as_version=4)) for path in CHAPTERS}


def test_the_pages_of_proofs_have_cells_that_run(cells):
    """Check that no cell has stopped being runnable, for example because of a new import."""
    for name in ("eulers_formula", "rotation_in_two_dimensions", "why_rotation", "build_your_own"):
        assert sum("stored" in cell for cell in cells[name]) >= 7, name


def test_every_cell_agrees_after_the_cells_above_it(cells):
    """Run a few cells as in the page, where each click starts in a new namespace."""
    assert sum("stored" in cell for page in cells.values() for cell in page) > 50
    for name in ("one_sitting", "rotations_that_commute"):
        above = []
        for cell in cells[name]:
            whole = "stored" in cell
            result = run(above, cell["source"], cell["stored"]) if whole else {"same": True}
            assert result["same"], (name, cell["source"], result)
            above.append({"source": cell["source"], "whole": whole})


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


def whole(*sources):
    return [{"source": source, "whole": True} for source in sources]


def test_a_planted_error_is_reported():
    above = whole(
        "from rope.symbolic import prove_equal, real_symbols", "x, y = real_symbols('x y')"
    )
    sign = run(above, "print(1)\nprove_equal((x + y)**2, x**2 - 2*x*y + y**2)", "1")
    assert (sign["same"], sign["text"]) == (False, "1")
    assert "line 2" in sign["error"] and sign["error"].endswith("what remains is 4*x*y")
    assert not run(whole("print(1)"), "2", "1\n2")["same"]
    assert not run([], "pass", "1")["same"]


@pytest.mark.parametrize(
    ("above", "source", "error"),
    [
        ("def f(): raise KeyError('k')", "\nf()", r'File "<cell>", line 2.*KeyError: \'k\''),
        ("x = 1 / 0", "x", r'File "<cells above>", line 1.*ZeroDivisionError: division by zero'),
        ("x = 2 +", "pass", r'File "<cells above>", line 1.*SyntaxError: invalid syntax'),
        ("", "x = 1\ny = )", r'File "<cell>", line 2.*SyntaxError: .*'),
        ("", "raise SystemExit", r'File "<cell>", line 1.*SystemExit'),
        ("", "x = 1\nassert x == 2", r'File "<cell>", line 2.*assert x == 2.*AssertionError'),
    ],
)
def test_an_exception_is_shown_without_our_frames(above, source, error):
    shown = run(whole(above), source, "")["error"]
    assert re.fullmatch(rf"(Traceback.*?)?\s*{error}", shown, re.DOTALL), shown
    assert "running.py" not in shown


def test_each_run_starts_in_a_new_namespace():
    """Check that the order of clicks doesn't matter, but an edit in a cell above does."""
    torch = {"source": "import nothing\nx = 1\ny = nothing.z", "whole": False}
    assert run([{"source": "%pip install x", "whole": False}, torch], "x += 1\nx", "2")["same"]
    assert run(whole("x = 1"), "x += 1\nx", "2")["same"]
    assert run(whole("x = 5"), "x += 1\nx", "2")["text"] == "6"
    assert run(whole("print('above'); x = 1"), "print(x)", "1")["same"]
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
    parts = bundle.write_bundle(work, tmp_path / "live")
    assert parts == ["pyodide.mjs.js", "rope.zip.js", "worker.js.js"]
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
        counts = pages.add_buttons(tmp_path / "html", tmp_path / "chapters", ["a.js"])
        assert counts == {"one": 1}
    assert page.read_text().count("live/buttons.js") == 1
    assert "</script>'" not in page.read_text()
    assert pages.without_buttons(page.read_text()) == built
