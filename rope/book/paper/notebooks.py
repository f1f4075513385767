"""The chapters as flat notebooks: Markdown and cells that Colab, GitHub and any Jupyter show.

The words, with all numbers, are the built page's; code cells and outputs are the committed
notebook's, with a picture of each figure. A page without code becomes a Markdown file.
"""

from __future__ import annotations

import base64
import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import vl_convert
from bs4 import BeautifulSoup, Tag
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from rope.book.figures.chart import MIME as CHART
from rope.book.figures.chart import VEGA_LITE
from rope.book.mime import SVG, fonts
from rope.book.paper.articles import AS_IT_OPENS
from rope.book.paper.browser import DRAWN_BY_SCRIPT, photos
from rope.book.paper.markdown import CELL, escaped, to_markdown, unfolding
from rope.book.paper.pages import Book, Page
from rope.book.paper.pictures import controls
from rope.book.tools.minutes import TICK
from rope.book.tools.notebooks import claim

SET_UP = "Set-up: imports the book's package; on Colab it is installed first"
# Of a cell's outputs: what shows without an extension, and without trust in the notebook.
SHOWN = ("text/plain", "text/latex", "image/png", CHART)
# Pages that list the package's names begin so; a notebook has `help`.
NAMES_OF_THE_PACKAGE = "api"


@dataclass
class Links:
    """Where the links between the pages lead among the files that are written.

    files: each page's file. at: what stands before them; "" when they lie beside each other.
    targets: for each page, the ids that links lead to.
    """

    files: dict[str, str]
    at: str
    targets: dict[str, set[str]] = field(default_factory=dict)

    def collect(self, own: str, article: Tag) -> None:
        """Note where a page's links lead."""
        for node in article.select("a[href]:not(.headerlink)"):
            name, place = self.parts(str(node["href"]), own)
            if place and name in self.files:
                self.targets.setdefault(name, set()).add(place)

    def parts(self, href: str, own: str) -> tuple[str, str]:
        """The page that a link on the page `own` leads to, "" for the web, and the id on it."""
        if re.match(r"https?:|mailto:", href):
            return "", ""
        path, _, place = href.partition("#")
        return path.removesuffix(".html").rpartition("/")[2] if path else own, place

    def markdown(self, article: Tag, own: str) -> str:
        """A page's article, or a part of one, as Markdown with its links."""

        def address(href: str) -> str | None:
            name, place = self.parts(href, own)
            if not name:
                return href
            file = "" if name == own else self.files.get(name)
            if file is None:
                return None
            return (f"{self.at}{file}" if file else "") + (f"#{place}" if place else "")

        return to_markdown(article, address, self.targets.get(own, set()))


def make_notebooks(book: Book, folder: Path) -> list[Path]:
    """Write every chapter as a flat notebook, and the pages without code as Markdown.

    folder: emptied first. Returns the notebooks' files.

    Raises ValueError: a page was built of another notebook than the one that is there.
    """
    pages = [page for page in book.pages if not page.name.startswith(NAMES_OF_THE_PACKAGE)]
    sources = {page.name: book.chapters / f"{page.name}.ipynb" for page in pages}
    files = {name: f"{name}.{'ipynb' if at.exists() else 'md'}" for name, at in sources.items()}
    links = Links(files, f"{book.address}/blob/notebooks/chapters/" if book.address else "")
    articles = {page.name: read_article(page) for page in pages}
    for name, article in articles.items():
        links.collect(name, article)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for page in pages:
        article, file = articles[page.name], folder / files[page.name]
        if file.suffix == ".md":
            file.write_text(links.markdown(article, page.name) + "\n", encoding="utf-8")
            continue
        source = nbformat.read(sources[page.name], as_version=4)
        cells = list(flat_cells(article, page, source, links))
        for number, cell in enumerate(cells):
            cell["id"] = f"cell-{number}"
        nbformat.write(new_notebook(cells=cells, metadata=source["metadata"]), file)
    return sorted(folder.glob("*.ipynb"))


def read_article(page: Page) -> Tag:
    """A built page's article.

    Raises ValueError: it has none.
    """
    text = page.file.read_text(encoding="utf-8")
    article = BeautifulSoup(text, "html.parser").select_one("article")
    if article is None:
        raise ValueError(f"{page.file} has no article")
    return article


def flat_cells(
    article: Tag, page: Page, source: NotebookNode, links: Links
) -> Iterator[NotebookNode]:
    """A chapter's cells: Markdown between the code cells, a caption below each figure."""
    code = [cell for cell in source["cells"] if cell["cell_type"] == "code"]
    boxes = article.select("div.cell")
    if len(code) != len(boxes):
        raise ValueError(
            f"{page.name}: the page has {len(boxes)} code cells, the notebook {len(code)}; "
            "run `make book` and try again."
        )
    drawn = len(article.select(DRAWN_BY_SCRIPT))
    captions = [caption(box, cell, page, links) for box, cell in zip(boxes, code, strict=True)]
    texts = pieces(links.markdown(article, page.name))
    shots = taken(page, drawn)
    last = ""
    for (text, fold), cell, figure in zip(texts, [*code, None], [*captions, ""], strict=True):
        if text:
            yield new_markdown_cell(text)
        if cell is not None:
            title = heading(cell, cell is code[0], fold, figure)
            again = ", continued" if fold and title == last else ""
            yield code_cell(cell, title + again, hidden=bool(fold), shots=shots)
            last = title
        if figure and fold:
            figure = f"{unfolding(f'{fold}: its figure')}\n\n{figure}\n\n</details>"
        if figure:
            yield new_markdown_cell(figure)


def taken(page: Page, number: int) -> Iterator[str]:
    """Pictures of what scripts draw on a page; none, with a word on why, without a Chromium."""
    try:
        yield from photos(page.file, number)
    except FileNotFoundError as error:
        print(f"{page.name}: a figure stays a sentence: {error}")


def caption(box: Tag, cell: NotebookNode, page: Page, links: Links) -> str:
    """What stands below a cell's figure: its caption, what moves it, its description to unfold."""
    figure = box.select_one("figure")
    if figure is None or figure.figcaption is None:
        return ""
    pictured = figure.select_one("[aria-label]")
    if pictured is None:
        raise ValueError(f"{page.name}: a figure has no description")
    description = escaped(str(pictured["aria-label"]))
    figure.figcaption["id"] = figure.get("id") or ""
    words = links.markdown(figure.figcaption, page.name)
    if line := moves(cell):
        words += f"\n\n{line}"
    return f"{words}\n\n{unfolding('Description of the figure')}\n\n{description}\n\n</details>"


def moves(cell: NotebookNode) -> str:
    """For a figure that moves, a line on what moves it, and on the state of its picture."""
    for output in cell["outputs"]:
        if CHART in output.get("data", {}):
            return re.sub(r"</?em>", "*", controls(output["data"][CHART]))
        if "text/html" in output.get("data", {}):
            return AS_IT_OPENS
    return ""


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """The Markdown before each code cell and after the last, and the fold that the cell stands in.

    >>> list(pieces(f"a\\n\\n{unfolding('T')}\\n\\nb\\n\\n{CELL}\\n\\n</details>"))[0]
    ('a\\n\\n<details><summary>T</summary>\\n\\nb\\n\\n</details>', 'T')
    """
    fold = ""
    for part in re.split(rf"^{re.escape(CELL)}$", text, flags=re.MULTILINE):
        piece = f"{unfolding(fold)}\n\n{part.strip()}" if fold else part.strip()
        marks = re.findall(r"<details><summary>(.*)</summary>|</details>", piece)
        fold = marks[-1] if marks else ""
        if fold:
            piece += "\n\n</details>"
        yield re.sub(r"<details><summary>.*</summary>\s*</details>", "", piece).strip(), fold


def heading(cell: NotebookNode, first: bool, fold: str, figure: str) -> str:
    """What a folded cell says of itself; "" for one that is open.

    fold: the solution that it belongs to. figure: its figure's caption.
    """
    if first:
        return SET_UP
    tags = set(cell["metadata"].get("tags", []))
    if said := claim(cell):
        return said
    if fold:
        return f"{fold}: its code"
    if not tags & {"hide-input", "remove-input", "hide-cell"}:
        return ""
    number = re.search(r"\*\*(.*?)\*\*", figure)
    own = cell["metadata"].get("mystnb", {}).get("code_prompt_show", "Code that the next cells use")
    return f"{number[1]}: its code" if number else own


def code_cell(
    cell: NotebookNode, title: str, *, hidden: bool, shots: Iterator[str]
) -> NotebookNode:
    """A code cell with its outputs; with a title, folded under it.

    hidden: the outputs are folded too. shots: pictures of what scripts draw, in order.
    """
    metadata: dict[str, Any] = {}
    code = TICK.sub("", cell["source"], count=1)
    if title:
        folds = {"source_hidden": True} | ({"outputs_hidden": True} if hidden else {})
        metadata = {"cellView": "form", "jupyter": folds}
        code = f"#@title {title}\n{code}"
    outputs = [shown(output, shots) for output in cell["outputs"]]
    count = cell["execution_count"]
    return new_code_cell(code, metadata=metadata, outputs=outputs, execution_count=count)


def shown(output: NotebookNode, shots: Iterator[str]) -> NotebookNode:
    """An output with a picture in the place of what needs the book's pages."""
    if "data" not in output:
        return output
    data, metadata = dict(output["data"]), dict[str, Any]()
    if picture := picture_of(data, shots):
        data["image/png"] = base64.b64encode(picture).decode()
        # The picture has two dots a pixel; its header says how many dots.
        width, height = struct.unpack(">II", picture[16:24])
        metadata["image/png"] = {"width": width // 2, "height": height // 2}
        metadata["image/png"]["alt"] = data["text/plain"].removeprefix("Figure: ")
    kept = {kind: data[kind] for kind in SHOWN if kind in data}
    return NotebookNode(output | {"data": kept, "metadata": metadata})


def picture_of(data: dict[str, Any], shots: Iterator[str]) -> bytes:
    """An output's figure as a PNG on paper, as it opens; nothing where it has none."""
    vl_convert.register_font_directory(str(fonts()))
    if SVG in data:
        return vl_convert.svg_to_png(data[SVG], scale=2)
    if CHART in data:
        return vl_convert.vegalite_to_png(data[CHART], VEGA_LITE, scale=2)
    return base64.b64decode(next(shots, "")) if "text/html" in data else b""
