"""The workflows: what they may do, and that what they run is there."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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
        elif program.endswith("python"):
            module = rest[rest.index("-m") + 1]
            assert importlib.util.find_spec(module), module
        elif program.startswith("."):
            assert (ROOT / program).is_file()


def test_colab_runs_every_chapter_and_installs_nothing_before():
    """So `rope` is what the first cells install, from the tag that they name."""
    assert ["ls", "chapters/*.ipynb"] in commands("colab")
    assert not any("install" in words for words in commands("colab"))
