"""Test the book's tools: the commands, the files that they write, and their error messages."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from IPython.core.inputtransformer2 import TransformerManager
from nbclient.exceptions import CellExecutionError, CellTimeoutError

import rope
from rope.axes.module import AxisRotation
from rope.book.tools import execute
from rope.book.tools.sphinx_extension import list_arguments
from rope.parallel import head_tail

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
ADDRESS = "https://example.org/books/rope"
TAG = f"v{rope.__version__}"


def run(*command, **settings):
    settings = {"cwd": ROOT, "capture_output": True, "text": True, "check": False} | settings
    return subprocess.run(command, **settings)


# The commands


def test_make_alone_lists_the_commands():
    listed = re.findall(r"^  make (\w+)  ", run("make", env={**os.environ}).stdout, re.M)
    assert {"help", "book", "test", "mutation", "execute", "check"} <= {*listed}


def test_workflows_pass_zizmor():
    """Run zizmor, which checks permissions, triggers, credentials and unpinned actions."""
    done = run(Path(sys.executable).with_name("zizmor"), "--offline", ".github/workflows")
    assert done.returncode == 0, done.stdout + done.stderr


def test_set_up_says_what_is_missing(tmp_path):
    (tmp_path / "sh").symlink_to(shutil.which("sh"))
    done = run("sh", ROOT / ".ci" / "setup", cwd=tmp_path, env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "3.11" in done.stderr and "python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()


# Executing notebooks


def write_notebook(path, *sources):
    """Write a notebook in an older format, whose cells have no ids."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = json.loads(nbformat.writes(nbformat.v4.new_notebook(cells=cells)))
    for cell in notebook["cells"]:
        del cell["id"]
    path.write_text(json.dumps({**notebook, "nbformat_minor": 4}))
    return path


def test_execute_stores_the_same_bytes_again(tmp_path):
    printing = "print('a bar', end='\\r', flush=True)\nprint(1, flush=True)\nprint(2)"
    sources = (printing, "2 + 2", "import os, sys; os.getcwd() == sys.path[0]")
    path = write_notebook(tmp_path / "a.ipynb", *sources)
    execute.main([str(path)])
    first = path.read_bytes()
    execute.main([str(path)])
    assert path.read_bytes() == first

    notebook = json.loads(first)
    cells = notebook["cells"]
    assert [cell["execution_count"] for cell in cells] == [1, 2, 3]
    assert [cell["outputs"][0].get("execution_count") for cell in cells] == [None, 2, 3]
    assert len({cell["id"] for cell in cells}) == 3
    assert cells[0]["outputs"] == [
        {"name": "stdout", "output_type": "stream", "text": ["1\n", "2\n"]}
    ]
    assert all("execution" not in cell["metadata"] for cell in cells)
    assert notebook["metadata"] == execute.METADATA
    assert first.endswith(b"}\n")
    assert [p.name for p in tmp_path.iterdir()] == ["a.ipynb"]


def test_a_failing_cell_is_shown_and_nothing_is_stored(tmp_path):
    path = write_notebook(tmp_path / "bad.ipynb", "fine = 1", "x = [1, 2]\nx[2]")
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match=r"(?s)x = \[1, 2\].*IndexError"):
        execute.main([str(path)])
    assert path.read_bytes() == before


def test_a_cell_that_never_ends_is_ended_and_shown(tmp_path, monkeypatch):
    """Use one cell only, so that the time limit can only stop that cell on a slow machine."""
    monkeypatch.setattr(execute, "SECONDS_PER_CELL", 1)
    path = write_notebook(tmp_path / "bad.ipynb", "while True: pass")
    with pytest.raises(CellTimeoutError, match="while True: pass"):
        execute.main([str(path)])


# The address, and the first cell


def first_cell(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "".join(next(cell["source"] for cell in cells if cell["cell_type"] == "code"))


def test_first_cells_have_the_address_of_the_config_and_the_tag_of_the_version():
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    line = f'\nREPOSITORY, TAG = "{config["repository"]["url"]}", "{TAG}"\n'
    for path in CHAPTERS:
        assert line in first_cell(path), path.name


def test_version_stands_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: *(\S+)$", citation, re.MULTILINE)[1] == rope.__version__
    assert project["version"] == rope.__version__
    changes = (ROOT / "chapters" / "changelog.md").read_text(encoding="utf-8")
    assert re.search(r"^## Version (\S+)$", changes, re.M)[1] == rope.__version__


@pytest.mark.parametrize(
    ("options", "package", "said"),
    [
        ((), None, None),
        (("-I", "-S"), None, "pip install -e '.[notebooks]'"),
        ((), "VERSION = '1.13'\n", "%pip uninstall"),
    ],
    ids=["rope is installed", "no rope and no address", "another rope"],
)
def test_first_cell_prints_nothing_or_says_what_to_do(tmp_path, options, package, said):
    if package:
        (tmp_path / "rope").mkdir()
        (tmp_path / "rope" / "__init__.py").write_text(package)
    code = TransformerManager().transform_cell(first_cell(CHAPTERS[0]))
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"
    done = run(sys.executable, *options, "-c", code)
    if said is None:
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    else:
        assert done.returncode == 1
        assert said in done.stderr.splitlines()[-1]


def test_address_and_tag_are_set_everywhere_and_removed_again(tmp_path):
    (tmp_path / "chapters").mkdir()
    files = [ROOT / "_config.yml", *CHAPTERS[:2]]
    for path in (ROOT / "Makefile", ROOT / "pyproject.toml", *files):
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    config, *notebooks = (tmp_path / path.relative_to(ROOT) for path in files)
    make = ["make", "-C", tmp_path, "repository"]
    subprocess.run([*make, f"URL={ADDRESS}", "TAG=0f3a"], check=True)
    assert yaml.safe_load(config.read_text())["repository"]["url"] == ADDRESS
    assert all(f'\nREPOSITORY, TAG = "{ADDRESS}", "0f3a"\n' in first_cell(p) for p in notebooks)
    subprocess.run([*make, "URL="], check=True)
    for path in files:
        assert (tmp_path / path.relative_to(ROOT)).read_bytes() == path.read_bytes()


def test_other_books_are_built_as_if_this_one_were_not_installed(tmp_path):
    """Build another book's page with an SVG picture and a Vega-Lite chart, as in our pages."""
    svg = '<svg role="img" xmlns="http://www.w3.org/2000/svg"><rect width="9" height="9"/></svg>'
    chart = {"mark": "point", "data": {"values": []}}
    outputs = [
        nbformat.v4.new_output("display_data", {kind: content})
        for kind, content in (("image/svg+xml", svg), ("application/vnd.vegalite.v5+json", chart))
    ]
    cell = nbformat.v4.new_code_cell("1", outputs=outputs)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "index.ipynb")
    (tmp_path / "conf.py").write_text("extensions = ['myst_nb']\nnb_execution_mode = 'off'\n")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", ".", "built"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "built" / "index.html").read_text(encoding="utf-8")
    assert "charts.js" not in page and "rope" not in page


# The reference


@pytest.mark.parametrize(
    ("described", "listed"),
    {
        head_tail: ["Raises ValueError unless seq_len is a multiple of 2P."],
        AxisRotation: ["dim, axes", "attention_scaling"],
    }.items(),
)
def test_arguments_are_listed_and_no_errors_of_examples(described, listed):
    lines = inspect.getdoc(described).splitlines()
    list_arguments(None, "", "", described, None, lines)
    assert [line[2:].partition(": ")[0] for line in lines if line.startswith("- ")] == listed
