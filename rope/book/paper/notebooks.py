"""Convert the chapters to flat notebooks that Colab, GitHub, and Jupyter can display.

The text, including all reference numbers, comes from the built page. Code cells and outputs come
from the committed notebook, and each figure becomes a PNG. A page without code becomes Markdown.
"""

from __future__ import annotations

import base64
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import vl_convert
from bs4 import Tag
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from rope.book.figures.chart import MIME as CHART
from rope.book.figures.chart import VEGA_LITE
from rope.book.mime import SVG, fonts
from rope.book.paper.markdown import CELL, to_markdown, unfolding
from rope.book.paper.pages import MOVES, Book, link_target
from rope.book.tools.minutes import CHECK
from rope.book.tools.notebooks import HIDDEN

# Output types that display without an extension and in an untrusted notebook.
SHOWN = ("text/plain", "text/latex", "image/png", CHART)
# Name prefix of the API pages, which are omitted; in a notebook, `help` shows their content.
REFERENCE = "api"

ToMarkdown = Callable[[Tag, str], str]


def make_notebooks(book: Book, folder: Path) -> list[Path]:
    """Write each chapter as a flat notebook, and each page without code as a Markdown file.

    folder: the output folder, which is emptied first. Returns the paths of the notebooks.
    Raises ValueError if a page is older than its notebook.
    """
    pages = [page for page in book.pages if not page.name.startswith(REFERENCE)]
    sources = {page.name: book.chapters / f"{page.name}.ipynb" for page in pages}
    files = {name: f"{name}.{'ipynb' if at.exists() else 'md'}" for name, at in sources.items()}
    articles = {page.name: page.article() for page in pages}
    convert = converter(
        articles, files, f"{book.address}/blob/notebooks/chapters/" if book.address else ""
    )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, article in articles.items():
        file = folder / files[name]
        if file.suffix == ".md":
            file.write_text(convert(article, name) + "\n", encoding="utf-8")
            continue
        source = nbformat.read(sources[name], as_version=4)
        cells = list(flat_cells(article, name, source, convert))
        for number, cell in enumerate(cells):
            cell["id"] = f"cell-{number}"
        nbformat.write(new_notebook(cells=cells, metadata=source["metadata"]), file)
    return sorted(folder.glob("*.ipynb"))


def converter(articles: dict[str, Tag], files: dict[str, str], prefix: str) -> ToMarkdown:
    """Return a function that converts the article on the named page, or a part of the article.

    files: maps each page's name to the name of its output file.
    prefix: the text to put before file names in links; "" if all files are in one folder.
    """
    targets = {
        link_target(str(node["href"]), own)
        for own, article in articles.items()
        for node in article.select("a[href]:not(.headerlink)")
    }

    def convert(article: Tag, own: str) -> str:
        def address(href: str) -> str | None:
            name, place = link_target(href, own)
            if not name:
                return href
            if name not in files:
                return None
            file = "" if name == own else prefix + files[name]
            return file + (f"#{place}" if place else "")

        return to_markdown(article, address, {place for name, place in targets if name == own})

    return convert


def flat_cells(
    article: Tag, name: str, source: NotebookNode, convert: ToMarkdown
) -> Iterator[NotebookNode]:
    """Yield a chapter's cells: Markdown cells, code cells, and a caption below each figure."""
    code = [cell for cell in source["cells"] if cell["cell_type"] == "code"]
    captions = []
    for box, cell in zip(article.select("div.cell"), code, strict=True):
        figcaption = box.select_one("figcaption")
        if figcaption:
            figcaption["id"] = figcaption.parent.get("id") or ""  # type: ignore[union-attr]
        moves = any(CHART in output.get("data", {}) for output in cell["outputs"])
        words = convert(figcaption, name) if figcaption else ""
        captions.append(f"{words}\n\n{MOVES}" if moves else words)
    texts = pieces(convert(article, name))
    for (text, fold), cell, caption in zip(texts, [*code, None], [*captions, ""], strict=True):
        if text:
            yield new_markdown_cell(text)
        if cell is not None:
            yield code_cell(cell, folded=bool(fold))
        if caption and fold:
            caption = f"{unfolding(f'{fold}: figure')}\n\n{caption}\n\n</details>"
        if caption:
            yield new_markdown_cell(caption)


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield each piece of Markdown between code cells, with the title of the fold it ends in or "".

    A fold is closed before a code cell and reopened after it.

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


def code_cell(cell: NotebookNode, *, folded: bool) -> NotebookNode:
    """Return a code cell with its outputs. Colab shows a check's claim as the title of the cell.

    folded: True folds the code and the outputs. The code that the page hides is always folded.
    """
    metadata: dict[str, Any] = {}
    code = CHECK.sub(r"#@title \1\n", cell["source"], count=1)
    if folded or HIDDEN & set(cell["metadata"].get("tags", [])):
        folds = {"source_hidden": True} | ({"outputs_hidden": True} if folded else {})
        metadata = {"cellView": "form", "jupyter": folds}
    outputs = [with_picture(output) for output in cell["outputs"]]
    count = cell["execution_count"]
    return new_code_cell(code, metadata=metadata, outputs=outputs, execution_count=count)


def with_picture(output: NotebookNode) -> NotebookNode:
    """Return an output with its figure, if any, converted to a PNG at twice the resolution."""
    if "data" not in output:
        return output
    data, metadata = dict(output["data"]), dict[str, Any]()
    vl_convert.register_font_directory(str(fonts()))
    picture = b""
    if SVG in data:
        picture = vl_convert.svg_to_png(data[SVG], scale=2)
    elif CHART in data:
        picture = vl_convert.vegalite_to_png(data[CHART], VEGA_LITE, scale=2)
    if picture:
        data["image/png"] = base64.b64encode(picture).decode()
        width, height = struct.unpack(">II", picture[16:24])  # from the PNG's header
        alt = data["text/plain"].removeprefix("Figure: ")
        metadata["image/png"] = {"width": width // 2, "height": height // 2, "alt": alt}
    data = {kind: data[kind] for kind in SHOWN if kind in data}
    return NotebookNode(output | {"data": data, "metadata": metadata})
