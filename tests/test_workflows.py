"""The workflows: what they may do, what they run, and the program that reports on every chapter."""

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml

from rope.book.tools import everywhere
from rope.book.tools.repository import first_cell_source

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in FOLDER.glob("*.yml")}
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
# The jobs that write, and what: the pages, and the branch of the notebooks.
MAY_WRITE = {
    ("pages", "publish"): {"pages": "write", "id-token": "write"},
    ("pages", "notebooks"): {"contents": "write"},
}


def commands(name):
    """Each command of the `run:` steps, as its words; what follows a pipe is one of its own."""
    for job in WORKFLOWS[name]["jobs"].values():
        for step in job["steps"]:
            lines = re.split(r"\n|&&|\|", step.get("run", ""))
            yield from (shlex.split(line) for line in lines if line.strip())


def test_zizmor_has_nothing_to_say():
    """Of permissions, triggers, credentials, actions that are not pinned, and the like."""
    zizmor = Path(sys.executable).with_name("zizmor")
    done = subprocess.run([zizmor, "--offline", FOLDER], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_keeps_no_token_and_writes_nothing_but_what_it_publishes(name):
    text = (FOLDER / f"{name}.yml").read_text(encoding="utf-8")
    assert not re.search(r"secrets\.|GITHUB_TOKEN", text)
    assert text.count("github.token") == (name == "pages")
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    for job, settings in WORKFLOWS[name]["jobs"].items():
        assert settings.get("permissions", {}) == MAY_WRITE.get((name, job), {})


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_runs_what_there_is(name):
    for program, *rest in commands(name):
        if program == "make":
            assert {word for word in rest if re.fullmatch(r"\w+", word)} <= TARGETS
        elif program.endswith("python"):  # with its own words for what is wrong
            module = rest[rest.index("-m") + 1]
            assert importlib.util.find_spec(module), module
            options = [word for word in rest[2:] if module.startswith("rope") and word[0] == "-"]
            asked = [sys.executable, "-m", module, "--help"]
            told = subprocess.run(asked, capture_output=True, text=True).stdout if options else ""
            assert all(option in told for option in options), options
        elif program.startswith("."):
            assert (ROOT / program).is_file()


def test_colab_runs_every_chapter_and_installs_nothing_before():
    """So `rope` is what the first cells install, from the tag that they name."""
    (run,) = (words for words in commands("colab") if "rope.book.tools.everywhere" in words)
    assert not any(word.endswith(".ipynb") for word in run), "it runs some chapters only"
    assert not any("install" in words for words in commands("colab"))


def test_the_nightly_run_takes_what_the_ranges_allow():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ranges = [*project["dependencies"], *project["optional-dependencies"]["notebooks"]]
    assert not any("==" in one.partition(";")[0] for one in ranges)
    upgrade = ["--upgrade", "--upgrade-strategy", "eager", "--editable", ".[notebooks]"]
    installs = [words for words in commands("nightly") if "install" in words]
    assert installs[-1][-5:] == upgrade, "an upgrade that is not eager leaves what is there"


# The program that runs every chapter


def chapter(folder, name, *sources):
    path = folder / f"{name}.ipynb"
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_each_chapter_runs_and_the_report_says_which_stopped_where(tmp_path, capsys):
    first = "import os, sys; print('a warning', file=sys.stderr); assert os.listdir() == []"
    good = chapter(tmp_path, "good", first)
    bad = chapter(tmp_path, "bad", "a = 1", "assert a == 2, 'a | b'", "never = 'run'")
    before = good.read_bytes(), bad.read_bytes()
    assert everywhere.main([str(good), str(bad), str(tmp_path / "missing.ipynb")]) == 1
    report = capsys.readouterr().out
    assert re.search(r"^- good: ran, \d+ s\n- bad: stopped, \d+ s\n\n````\nbad.ipynb: ", report)
    assert "code cell 2 (id " in report and "AssertionError: a | b\n````" in report
    assert "- missing: stopped, 0 s" in report and "No such file" in report
    assert "never" not in report and "\x1b" not in report
    assert report.endswith("\n1 of 3 chapters ran to the end.\n")
    assert (good.read_bytes(), bad.read_bytes()) == before
    assert everywhere.main([str(good)]) == 0


def test_the_first_cell_is_given_the_address(tmp_path):
    show = "import subprocess; raise SystemExit(f'{REPOSITORY} {TAG}')"
    path = chapter(tmp_path, "addressed", first_cell_source("", "v9"), show)
    assert "https://example.org/rope v9" in everywhere.run(path, "https://example.org/rope")
    path = chapter(tmp_path, "without", "a = 1")
    assert "names the address in 0 places" in everywhere.run(path, "https://example.org/a")
