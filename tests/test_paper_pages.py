"""Test how a page becomes a PDF chapter and how files are published, without built pages."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from rope.book.paper.markdown import to_markdown
from rope.book.paper.pages import MOVES, Page, publish_pdf, read_book
from rope.book.paper.pdf import printable

ROOT = Path(__file__).parents[1]
PANEL = {
    "mark": "point",
    "width": 200,
    "data": {"values": [{"x": 1}]},
    "encoding": {"x": {"field": "x", "type": "quantitative"}},
}
CODE = '<div class="cell_input"><pre>x</pre></div>'


def page_of(folder: Path, body: str, name: str = "one") -> Page:
    file = folder / f"{name}.html"
    file.write_text(f"<article><h1 id='t'>1. One</h1>{body}</article>", encoding="utf-8")
    return Page(name, "Part", file)


def test_folded_code_is_removed_and_a_check_keeps_its_claim(tmp_path):
    fold = "<details><summary>✓</summary><p class='rope-claim'>{}</p>" + CODE + "</details>"
    article = printable(
        page_of(
            tmp_path,
            f'<div class="cell tag_check">{fold.format("1 &lt; 2")}</div>'
            f'<div class="cell">{fold.format("code")}</div>'
            f'<div class="cell">{CODE}</div>'
            '<p>Text<a class="headerlink">#</a></p><noscript>No script</noscript>',
        ),
        {"one"},
    )
    assert article.select_one("p.check").get_text() == "✓ 1 < 2"
    assert article.get_text(strip=True) == "1. One✓ 1 < 2xText"


def test_a_chart_is_drawn_as_it_opens(tmp_path):
    spec = json.dumps(PANEL | {"description": "One point"})
    box = f'<div class="rope-chart"><script type="application/json">{spec}</script></div>'
    article = printable(page_of(tmp_path, box), {"one"})
    assert article.svg["aria-label"] == "One point"
    assert article.select_one("p.moves").get_text() == MOVES
    assert not article.select("script")


def test_links_lead_to_places_in_the_document(tmp_path):
    hrefs = ["#here", "two.html", "two.html#there", "genindex.html", "https://arxiv.org/"]
    links = "".join(f'<a href="{href}">x</a>' for href in hrefs)
    drawing = '<svg><a xlink:href="two.html"><path id="kept"></path></a></svg>'
    body = f'<p id="here">{links}{drawing}</p>'
    text = str(printable(page_of(tmp_path, body), {"one", "two"}))
    assert re.findall('href="(.*?)"', text) == [
        "#one--here", "#two", "#two--there", "https://arxiv.org/", "#two",
    ]  # fmt: skip
    assert re.findall(' id="(.*?)"', text) == ["one", "one--t", "one--here", "kept"]


def test_a_book_that_was_not_built_is_named(tmp_path):
    for name in ("_config.yml", "_toc.yml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"(\d+) of \1 pages were not built.*intro"):
        read_book(tmp_path)


def test_a_box_becomes_markdown(tmp_path):
    box = '<div class="admonition"><p class="admonition-title">Note</p><p>a|b costs $1</p></div>'
    article = page_of(tmp_path, f"{box}<p>Text</p>").article()
    text = to_markdown(article, lambda href: href, set())
    assert text == "# 1. One\n\n**Note**\n\na|b costs \\$1\n\nText"


def test_publishing_links_the_pdf(tmp_path):
    front, pdf = tmp_path / "html" / "intro.html", tmp_path / "rope-book.pdf"
    front.parent.mkdir()
    front.write_text('<p class="rope-way-in">Start</p>', encoding="utf-8")
    book = SimpleNamespace(html=front.parent, pages=[SimpleNamespace(file=front)])
    with pytest.raises(FileNotFoundError):
        publish_pdf(book, pdf)
    pdf.write_bytes(b"PDF")
    for _ in range(2):  # a second call must change nothing
        publish_pdf(book, pdf)
        assert re.findall('href="(.*?)"', front.read_text()) == ["../rope-book.pdf"]
    assert (front.parent / pdf.name).exists()
