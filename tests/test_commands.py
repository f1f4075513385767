"""The commands: what they store, and what they say when a step cannot be done."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from rope.book import commands, execute

ROOT = Path(__file__).parents[1]


def write_notebook(path, *sources, drop_ids=False):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = json.loads(nbformat.writes(nbformat.v4.new_notebook(cells=cells)))
    if drop_ids:
        for cell in notebook["cells"]:
            del cell["id"]
    path.write_text(json.dumps(notebook))
    return path


def test_execute_stores_the_same_bytes_again(tmp_path):
    sources = ("print(1)\nprint(2)", "2 + 2", "import os, sys; os.getcwd() == sys.path[0]")
    path = write_notebook(tmp_path / "a.ipynb", *sources, drop_ids=True)
    assert execute.main([str(path)]) == 0
    first = path.read_bytes()
    assert execute.main([str(path)]) == 0
    assert path.read_bytes() == first

    notebook = json.loads(first)
    cells = notebook["cells"]
    assert [cell["execution_count"] for cell in cells] == [1, 2, 3]
    assert len({cell["id"] for cell in cells}) == 3
    assert cells[0]["outputs"] == [
        {"name": "stdout", "output_type": "stream", "text": ["1\n", "2\n"]}
    ]
    assert all("execution" not in cell["metadata"] for cell in cells)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert "version" not in notebook["metadata"]["language_info"]
    assert first.endswith(b"}\n")
    assert [p.name for p in tmp_path.iterdir()] == ["a.ipynb"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = [1, 2]\nx[2]", "IndexError"),
        ("import warnings; warnings.warn('careful')", "careful"),
        ("import os; os._exit(1)", "kernel ended"),
    ],
)
def test_failing_cell_is_named_and_nothing_is_stored(tmp_path, capsys, source, said):
    path = write_notebook(tmp_path / "bad.ipynb", "fine = 1", source)
    before = path.read_bytes()
    assert execute.main([str(path)]) == 1
    error = capsys.readouterr().err
    assert f"bad.ipynb: code cell 2 (id {json.loads(before)['cells'][1]['id']}) failed" in error
    assert source.splitlines()[0] in error
    assert said in error
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"nbformat": 3}'])
def test_what_is_no_notebook_is_said(tmp_path, capsys, content):
    path = tmp_path / "no.ipynb"
    path.write_text(content)
    assert execute.main([str(path)]) == 1
    assert "no.ipynb: no" in capsys.readouterr().err


def test_missing_notebook_is_said(tmp_path, capsys):
    assert execute.main([str(tmp_path / "none.ipynb")]) == 1
    assert "there is no such file" in capsys.readouterr().err


def test_interrupted_store_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_notebook(tmp_path / "a.ipynb", "1")
    before = path.read_bytes()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        execute.store(execute.read(path), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.ipynb"]


def test_make_alone_lists_the_commands():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for command in ("book", "test", "execute", "lab", "check", "clean", "repository"):
        assert f"make {command}" in done.stdout


FAKE_PYTHON = """#!/bin/sh
case "$*" in
*version_info*) exit {old} ;;
*ensurepip*) exit {without_venv} ;;
"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
*"-m pip"*) echo "ERROR: no connection" >&2; exit 1 ;;
esac
"""


def set_up(folder, **python):
    """Run the set-up where the only Python is a script that answers as told."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("cp", "mkdir", "sh", "touch"):
        (programs / name).symlink_to(
            next(p for p in (Path("/bin") / name, Path("/usr/bin") / name) if p.exists())
        )
    if python:
        fake = programs / "python3"
        fake.write_text(FAKE_PYTHON.format(**python))
        fake.chmod(0o755)
    return subprocess.run(
        ["sh", ROOT / ".ci" / "setup"],
        cwd=folder,
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ({}, "needs Python 3.11 or later"),
        ({"old": 1, "without_venv": 0}, "needs Python 3.11 or later"),
        ({"old": 0, "without_venv": 1}, "apt-get install python3-venv"),
        ({"old": 0, "without_venv": 0}, "Without a network pip finds nothing"),
    ],
    ids=["no Python", "an old Python", "no venv", "no network"],
)
def test_set_up_says_what_is_missing(tmp_path, python, said):
    done = set_up(tmp_path, **python)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / ".venv" / ".ready").exists()


def test_missing_packages_are_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "requirements.txt").write_text("pytest==1\nno-such-package==1\n")
    monkeypatch.setattr(commands, "ROOT", tmp_path)
    assert commands.packages() == 1
    said = capsys.readouterr().err
    assert f"{sys.executable} lacks no-such-package." in said


@pytest.mark.parametrize(("ci", "failed", "skipped"), [("", 0, 1), ("true", 1, 0)])
def test_missing_chromium_is_skipped_or_in_ci_a_failure(monkeypatch, ci, failed, skipped):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("CHROMIUM", os.devnull)
    part = commands.browser_tests(commands.Part("browser tests"), built=True)
    assert (part.passed, part.failed, part.skipped) == (0, failed, skipped)
    assert "apt-get install chromium" in part.note


def test_results_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "ROOT", tmp_path)
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0\n"
        "@pytest.fixture\ndef broken(): 1 / 0\ndef test_c(broken): pass\n"
        "@pytest.mark.skip\ndef test_d(): pass\n"
    )
    part = commands.run_pytest(commands.Part("it"), "test_it.py")
    assert (part.passed, part.failed, part.skipped) == (1, 2, 1)
    part = commands.run_pytest(commands.Part("nothing there"), "none.py")
    assert (part.passed, part.failed, part.skipped) == (0, 1, 0)
