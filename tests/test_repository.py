"""The book's address: the first cells agree with the config, and say plainly what is missing."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from IPython.core.inputtransformer2 import TransformerManager

import rope
from rope.book import repository
from rope.book.repository import address_in_cell, address_in_config, first_cell_source

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
CONFIG = (ROOT / "_config.yml").read_text(encoding="utf-8")
ADDRESS = "https://example.org/books/rope"
TAG = f"v{rope.__version__}"


def first_cell(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "".join(next(cell["source"] for cell in cells if cell["cell_type"] == "code"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_first_cell_has_the_address_of_the_config_and_the_tag_of_the_version(path):
    assert first_cell(path) == first_cell_source(address_in_config(CONFIG), TAG)


def test_version_stands_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == rope.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: *(\S+)$", citation, re.MULTILINE)[1] == rope.__version__


def test_first_cell_is_short_and_says_what_it_installs():
    source = first_cell_source(ADDRESS, TAG)
    assert len(source.splitlines()) <= 12
    assert address_in_cell(source) == (ADDRESS, TAG)


def run_first_cell(*options, path=""):
    code = TransformerManager().transform_cell(first_cell_source("", TAG))
    return subprocess.run(
        [sys.executable, *options, "-c", f"import sys; sys.path.insert(0, {path!r})\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )


def test_first_cell_prints_nothing_where_rope_is_there():
    done = run_first_cell()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_first_cell_without_rope_and_address_says_what_to_do(tmp_path):
    done = run_first_cell("-I", "-S", path=str(tmp_path))
    assert done.returncode == 1
    assert "pip install -e '.[notebooks]'" in done.stderr.splitlines()[-1]


def test_first_cell_tells_another_package_called_rope(tmp_path):
    (tmp_path / "rope").mkdir()
    (tmp_path / "rope" / "__init__.py").write_text("VERSION = '1.13'\n")
    done = run_first_cell(path=str(tmp_path))
    assert done.returncode == 1
    assert "%pip uninstall" in done.stderr.splitlines()[-1]


@pytest.fixture
def book(tmp_path):
    """A book of two notebooks and a config with comments; no address."""
    (tmp_path / "chapters").mkdir()
    (tmp_path / "_config.yml").write_text(
        'title: A book  # ours\n\n# Its address.\nrepository:\n  # Set by make.\n  url: ""\n'
        "  branch: main\n\nlaunch_buttons:\n  colab_url: https://colab.research.google.com\n"
    )
    for name in ("one", "two"):
        cell = {"cell_type": "code", "execution_count": 1, "id": "a", "metadata": {}, "outputs": []}
        cells = [{**cell, "source": first_cell_source("", TAG).splitlines(keepends=True)}]
        notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        text = json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
        (tmp_path / "chapters" / f"{name}.ipynb").write_text(text)
    return tmp_path


def texts(book):
    return {path: path.read_text() for path in [book / "_config.yml", *book.glob("chapters/*")]}


def test_address_is_set_everywhere_and_taken_away_again(book):
    before = texts(book)
    assert len(repository.set_repository(book, ADDRESS)) == 3
    config = (book / "_config.yml").read_text()
    assert config == before[book / "_config.yml"].replace('url: ""', f'url: "{ADDRESS}"')
    assert address_in_config(config) == ADDRESS
    for name in ("one", "two"):
        assert first_cell(book / "chapters" / f"{name}.ipynb") == first_cell_source(ADDRESS, TAG)
    repository.set_repository(book, "")
    assert texts(book) == before


@pytest.mark.parametrize(
    "address",
    ["github.com/a/b", "http://x.org/b", "https://x.org/", 'https://x.org/"b', "https://a b"],
)
def test_what_is_no_address_changes_nothing(book, address):
    before = texts(book)
    with pytest.raises(ValueError, match="is no address"):
        repository.set_repository(book, address)
    assert texts(book) == before


def test_one_altered_notebook_stops_all(book, monkeypatch, capsys):
    path = book / "chapters" / "two.ipynb"
    path.write_text(path.read_text().replace("REPOSITORY, TAG", "SOMETHING"))
    before = texts(book)
    monkeypatch.chdir(book)
    assert repository.main([ADDRESS]) == 1
    assert "two.ipynb" in capsys.readouterr().err
    assert texts(book) == before


def test_command_says_where_it_set_the_address(book, monkeypatch, capsys):
    monkeypatch.chdir(book)
    assert repository.main([ADDRESS]) == 0
    assert "_config.yml, one.ipynb, two.ipynb" in capsys.readouterr().out


def test_config_of_the_book_can_be_set():
    changed = repository.set_in_config(CONFIG, ADDRESS)
    assert address_in_config(changed) == ADDRESS
    assert len(changed.splitlines()) == len(CONFIG.splitlines())
