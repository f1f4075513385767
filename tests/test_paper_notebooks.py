"""Test the flat notebooks made from the built pages: no MyST markup, all numbers, all links."""

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch

import rope
from rope.book.paper.notebooks import make_notebooks
from rope.book.paper.pages import publish_notebooks
from rope.book.tools import execute

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "chapters").glob("*.ipynb"))
CHAPTERS = [path.stem for path in SOURCES]
TAG = f"v{rope.__version__}"

pytestmark = [pytest.mark.slow, pytest.mark.browser]

# Markup that works only in MyST or on a built page.
RAW = (
    r"^\s*(:{3,}|`{3,}) *\{",
    r"^\s*:{3,}\s*$",
    r"\{[\w:-]+\}",
    r"^\([\w-]+\)=",
    r"^:[\w-]+:",
    r"\\\[|\\\(",
    r"\[\[cell\]\]",
    r"</?(?!(a|details|summary)\b)\w",
)
PLAIN = re.compile(r"^```.*?^```|`[^`\n]+`|\$\$.*?\$\$|\$[^$\n]+\$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(made):
    return made(make_notebooks, "notebooks")


@pytest.fixture(scope="module")
def notebooks(folder):
    return {path.stem: nbformat.read(path, as_version=4) for path in folder.glob("*.ipynb")}


def words(notebook):
    """Return a notebook's Markdown, one paragraph per cell."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def test_every_chapter_is_there_and_valid(notebooks):
    assert sorted(notebooks) == CHAPTERS
    for notebook in notebooks.values():
        nbformat.validate(notebook)


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_notebook_has_the_numbers_checks_and_code_of_its_chapter(book, notebooks, name):
    page = next(page for page in book.pages if page.name == name)
    article = page.article()
    text, cells = words(notebooks[name]), notebooks[name].cells
    plain = PLAIN.sub("", text)
    assert [pattern for pattern in RAW if re.search(pattern, plain, re.MULTILINE)] == []

    numbers = [f"**{node.get_text().strip()}" for node in article.select(".caption-number")]
    tags = [f"\\tag{{{node.get_text()[1:-2]}}}" for node in article.select(".eqno")]
    assert [number for number in numbers + tags if number not in text] == []
    captions = [cell for cell in cells if "**Fig. " in cell.source]
    assert len(captions) >= len(article.select("figcaption"))

    stored = nbformat.read(ROOT / "chapters" / f"{name}.ipynb", as_version=4)
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    assert [re.sub(r"\A#@title ", "# ", source) for source in sources] == [
        cell.source for cell in stored.cells if cell.cell_type == "code"
    ]
    for source, box in zip(sources, article.select("div.cell"), strict=True):
        if "tag_check" in box["class"]:
            claim = box.select_one(".rope-claim").get_text()
            assert source.startswith(f"#@title ✓ {claim}\n")


def test_every_figure_but_the_explorer_is_a_picture_that_needs_no_trust(notebooks):
    outputs = [
        output.data
        for notebook in notebooks.values()
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "data" in output
    ]
    assert not any("text/html" in data or "image/svg+xml" in data for data in outputs)
    captions = sum(path.read_text(encoding="utf-8").count('"caption": "') for path in SOURCES)
    assert sum("image/png" in data for data in outputs) == captions - 1 > 50


def test_download_buttons_lead_to_them(book, folder, tmp_path):
    (tmp_path / "_sources" / "chapters").mkdir(parents=True)
    publish_notebooks(SimpleNamespace(html=tmp_path), [*folder.glob("*.ipynb")])
    for name in CHAPTERS:
        page = next(page.file for page in book.pages if page.name == name)
        address = f"_sources/chapters/{name}.ipynb"
        assert f'href="../{address}"' in page.read_text(encoding="utf-8")
        assert (tmp_path / address).read_bytes() == (folder / f"{name}.ipynb").read_bytes()


def test_every_link_leads_to_a_file_and_a_place_in_it(folder, notebooks):
    files = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    files |= {f"{name}.ipynb": words(notebook) for name, notebook in notebooks.items()}
    links = 0
    for name, text in files.items():
        for href in re.findall(r"\]\(([^()\s]+)\)", text):
            if href.startswith("https:"):
                continue
            links += 1
            file, _, place = href.partition("#")
            assert (file or name) in files, f"{name}: {href}"
            assert f'<a id="{place}"></a>' in files[file or name] or not place, f"{name}: {href}"
    assert links > 700


def run(*command, **settings):
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


# Each notebook runs alone in an empty folder, with torch but without `rope`, as on Colab. The new
# environment links to all packages in the current environment except the book's own.


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Return a git repository of this book, with the tag that the first cells install."""
    folder = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "rope", folder / "rope")
    for path in [*ROOT.glob("*.py"), *ROOT.glob("*.toml"), ROOT / "README.md", ROOT / "LICENSE"]:
        shutil.copy(path, folder)
    who = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=no")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "."], ["tag", TAG]):
        assert run("git", *who, *command, cwd=folder).returncode == 0
    return folder.as_uri()


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Return the interpreter of a new environment that has everything but the book."""
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


@pytest.mark.parametrize("name", CHAPTERS)
def test_notebook_runs_alone(folder, name, python, address, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    new = Path(python).parents[1]
    if not list(new.glob("lib/*/site-packages/rope")):  # no chapter has installed it yet
        assert "No module named 'rope'" in run(python, "-c", "import torch, rope", cwd=new).stderr
    text = (folder / f"{name}.ipynb").read_text(encoding="utf-8")
    text = text.replace('REPOSITORY, TAG = \\"\\"', f'REPOSITORY, TAG = \\"{address}\\"', 1)
    execute.execute(nbformat.reads(text, as_version=4), tmp_path, python)

    ask = "import rope, torch; print(rope.__file__, torch.__version__, torch.__file__, sep='\\n')"
    rope_file, version, torch_file = run(python, "-c", ask, cwd=new).stdout.splitlines()
    assert Path(rope_file).is_relative_to(new), "rope must be the copy that the cell installed"
    assert version == torch.__version__
    assert not Path(torch_file).is_relative_to(new), "the cell must not install another torch"
