"""The workflows: what they may do, what they run, and the program that reports on every chapter."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import nbformat
import pytest
import yaml

import rope
from rope.book.tools import everywhere
from rope.book.tools.repository import FIRST_CELL, IN_CELL, first_cell_source

ROOT = Path(__file__).parents[1]
WORKFLOWS = {path.name: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
COLAB = "us-docker.pkg.dev/colab-images/public/runtime:latest"
PUBLISHING = {"pages": "write", "id-token": "write"}
PROGRAMS = {"echo", "make", "npm", "python", "tail", "tee", ".ci/run"}


def text_of(name):
    return WORKFLOWS[name].read_text(encoding="utf-8")


def steps(text):
    return [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]


def commands(text):
    """Each command of the `run:` steps, as its words; what follows a pipe is one of its own."""
    for step in steps(text):
        for line in re.split(r"\n|&&|\|", step.get("run", "")):
            if line.strip():
                yield shlex.split(line)


@cache
def help_of(module):
    asked = [sys.executable, "-m", module, "--help"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True).stdout


def permission_faults(text):
    workflow = yaml.safe_load(text)
    if workflow.get("permissions") != {"contents": "read"}:
        yield "it may do more than read"
    for name, job in workflow["jobs"].items():
        if job.get("permissions", PUBLISHING) != PUBLISHING:
            yield f"the job {name} may do more than publish pages"
    if re.search(r"secrets\.|github\.token|GITHUB_TOKEN|pull_request_target", text):
        yield "it asks for a token"
    for step in steps(text):
        if "checkout" in step.get("uses", "") and step["with"]["persist-credentials"] is not False:
            yield "a checkout keeps its credentials"


def pin_faults(text):
    for line in re.findall(r"uses: (.*)", text):
        if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line):
            yield f"{line} is not pinned by a commit, with its version behind it"


def command_faults(text):
    for words in commands(text):
        program, *rest = words
        program = program.removeprefix(".venv/bin/")  # which `make` has set up
        if program not in PROGRAMS:
            yield f"{program} is not known here"
        if program == "make":
            targets = {word for word in rest if "=" not in word and not word.startswith("2>")}
            yield from (f"there is no make {target}" for target in targets - TARGETS)
        if program == "python" and (rest[0] != "-m" or not importlib.util.find_spec(rest[1])):
            yield f"there is no {shlex.join(words)}"
        if program == "python" and rest[1].startswith("rope."):
            for option in (word for word in rest[2:] if word.startswith("--")):
                if not re.search(rf"{option}\b", help_of(rest[1])):
                    yield f"{rest[1]} has no {option}"


def faults(text):
    return [*permission_faults(text), *pin_faults(text), *command_faults(text)]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_reads_pins_and_runs_what_there_is(name):
    assert faults(text_of(name)) == []


def test_one_version_of_an_action_serves_all():
    used = {line for name in WORKFLOWS for line in re.findall(r"uses: (.*)", text_of(name))}
    assert len(used) == len({line.partition("@")[0] for line in used})


@pytest.mark.parametrize(
    ("name", "there", "worse", "said"),
    [
        ("colab.yml", "contents: read", "contents: write", "more than read"),
        ("nightly.yml", "contents: read", "contents: read\n  issues: write", "more than read"),
        ("pages.yml", "      pages: write", "      contents: write", "more than publish"),
        ("colab.yml", "persist-credentials: false", "persist-credentials: true", "credentials"),
        ("nightly.yml", 'CI: ""', "TOKEN: ${{ secrets.X }}", "asks for a token"),
        ("colab.yml", "checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8", "checkout@v5", "pinned"),
        ("nightly.yml", "make code chapters", "make code chapter", "no make chapter"),
        ("nightly.yml", "make code", "curl code", "curl is not known"),
        ("colab.yml", "rope.book.tools.everywhere", "rope.book.nowhere", "there is no python"),
        ("colab.yml", "--address", "--repository", "has no --repository"),
    ],
)
def test_a_workflow_that_does_otherwise_is_a_fault(name, there, worse, said):
    text = text_of(name)
    assert there in text
    assert any(said in fault for fault in faults(text.replace(there, worse, 1)))


def test_colab_runs_every_chapter_in_its_image_at_the_tag_of_the_version():
    workflow = yaml.safe_load(text_of("colab.yml"))
    (job,) = workflow["jobs"].values()
    assert job["container"] == COLAB
    assert workflow[True]["push"] == {"tags": ["v*"]}  # YAML reads `on` as true
    # What a reader's Colab runs: the chapters as they stand, and `rope` from the tag that they
    # name (tests/test_book.py compares it with the version), which no step installs before them.
    assert all("ref" not in step.get("with", {}) for step in job["steps"])
    assert not any("install" in words for words in commands(text_of("colab.yml")))
    (run,) = (
        words for words in commands(text_of("colab.yml")) if "rope.book.tools.everywhere" in words
    )
    assert not any(word.endswith(".ipynb") for word in run), "it runs some chapters only"
    assert "@{{TAG}}" in FIRST_CELL
    stored = json.loads((ROOT / "chapters" / "intro.ipynb").read_text(encoding="utf-8"))["cells"]
    first = "".join(next(cell["source"] for cell in stored if cell["cell_type"] == "code"))
    assert IN_CELL.search(first)[2] == f"v{rope.__version__}"


def test_the_nightly_run_takes_what_the_ranges_allow():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ranges = [*project["dependencies"], *project["optional-dependencies"]["notebooks"]]
    assert {"torch", "transformers", "rotary-embedding-torch", "sympy", "altair"} <= {
        re.match(r"[\w-]+", one)[0] for one in ranges
    }
    assert not any("==" in one.partition(";")[0] for one in ranges)
    upgrade = ["--upgrade", "--upgrade-strategy", "eager", "--editable", ".[notebooks]"]
    installs = [words for words in commands(text_of("nightly.yml")) if "install" in words]
    assert installs[-1][-5:] == upgrade, "an upgrade that is not eager leaves what is there"


# The program that runs every chapter


def chapter(folder, name, *sources):
    path = folder / f"{name}.ipynb"
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


@pytest.fixture
def chapters(tmp_path):
    """One that warns and passes in an empty folder, and one that stops at its second cell."""
    first = "import os, sys; print('a warning', file=sys.stderr); assert os.listdir() == []"
    return [
        chapter(tmp_path, "good", first),
        chapter(tmp_path, "bad", "a = 1", "assert a == 2, 'a | b'", "never = 'run'"),
    ]


def test_each_chapter_runs_and_the_report_says_which_stopped_where(chapters, tmp_path, capsys):
    before = [path.read_bytes() for path in chapters]
    written = tmp_path / "report.md"
    written.write_text("before\n")
    paths = [*map(str, chapters), str(tmp_path / "missing.ipynb")]
    assert everywhere.main([*paths, "--report", str(written)]) == 1
    said = written.read_text()
    assert said.startswith("before\n1 of 3 chapters ran to the end.\n")
    assert said.removeprefix("before\n") in capsys.readouterr().out
    good, bad, missing = re.findall(r"^\| (\w+) \| \d+ \| (.*)\|$", said, re.M)[:3]
    assert good == ("good", "")
    assert bad[1].startswith("bad.ipynb: code cell 2 (id ") and "a == 2" in bad[1]
    assert bad[1].rstrip().endswith("AssertionError: a \\| b") and "\x1b" not in said
    assert "missing" in missing and "No such file" in missing[1]
    assert "## bad\n\n````\nbad.ipynb: code cell 2" in said and "never" not in said
    assert [path.read_bytes() for path in chapters] == before
    assert everywhere.main([str(chapters[0])]) == 0


def test_the_first_cell_is_given_the_address(tmp_path):
    show = "import subprocess; raise SystemExit(f'{REPOSITORY} {TAG}')"
    path = chapter(tmp_path, "addressed", first_cell_source("", "v9"), show)
    assert "https://example.org/rope v9" in everywhere.run(path, "https://example.org/rope").error
    path = chapter(tmp_path, "without", "a = 1")
    assert "names the address in 0 places" in everywhere.run(path, "https://example.org/a").error


def test_an_interrupted_run_reports_what_it_has_and_does_not_pass(chapters, monkeypatch, capsys):
    done = everywhere.run(chapters[0])

    def run(path, address):
        if path.stem == "bad":
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(everywhere, "run", run)
    assert everywhere.main([*map(str, chapters)]) == 1
    assert "1 of 1 chapters ran" in capsys.readouterr().out
