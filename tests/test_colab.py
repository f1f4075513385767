"""Each notebook, alone in an empty folder, where torch is there and `rope` is not: as on Colab.

The environment is new, but for links to the packages of this one: all but the book's own.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import nbformat
import pytest
import torch

import rope
from rope.book.execute import execute
from rope.book.repository import set_in_notebook

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
ASK = """import json, rope, torch
print(json.dumps([rope.__file__, torch.__version__, torch.__file__]))"""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A git repository of this book, with the tag that the first cells install."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("rope", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    who = (
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@example.org",
        "-c",
        "commit.gpgsign=false",
    )
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "."]):
        subprocess.run(["git", *who, *command], cwd=folder, check=True)
    tag = f"v{rope.__version__}"
    subprocess.run(["git", *who, "tag", tag], cwd=folder, check=True)
    return folder.as_uri()


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of a new environment that has everything but the book."""
    folder = tmp_path_factory.mktemp("environment")
    packages = folder / "packages"
    packages.mkdir()
    for place in sys.path:
        if Path(place).name not in ("site-packages", "dist-packages"):
            continue
        for entry in Path(place).iterdir():
            own = entry.name.startswith(("rope_book", "__editable__")) or entry.name == "rope"
            if not own and entry.suffix != ".pth" and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    venv.create(folder / "new", symlinks=True, with_pip=False)
    (site,) = (folder / "new").glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n")
    return str(folder / "new" / "bin" / "python")


def outside(python, code):
    """What a program prints in the new environment, the working directory being empty of `rope`."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [python, "-c", code],
        cwd=Path(python).parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_environment_has_torch_and_no_rope(python):
    assert outside(python, "import torch").returncode == 0
    assert "No module named 'rope'" in outside(python, "import rope").stderr


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_notebook_runs_alone(path, python, address, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    notebook = nbformat.reads(
        set_in_notebook(path.read_text(encoding="utf-8"), address), as_version=4
    )
    execute(notebook, tmp_path, path.name, python)

    rope_file, torch_version, torch_file = json.loads(outside(python, ASK).stdout)
    new = Path(python).parents[1]
    assert Path(rope_file).is_relative_to(new), "rope is not the one that the cell installed"
    assert torch_version == torch.__version__
    assert not Path(torch_file).is_relative_to(new), "the cell installed a torch of its own"
