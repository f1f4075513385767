"""Compare the articles that the PDF is made of with the pages that were built last."""

import json
import re
from base64 import b64decode
from collections import Counter
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from bs4 import BeautifulSoup
from PIL import Image

import rope
from rope.book.paper.pages import cover

ROOT = Path(__file__).parents[1]
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
FILES = [TOC["root"], *(c["file"] for part in TOC["parts"] for c in part["chapters"])]
SVG = "{http://www.w3.org/2000/svg}"
MARKS = ("path", "line", "rect", "circle", "polygon", "text", "use", "image")
pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.fixture(scope="module")
def pages(book):
    """The article of each page as it was built, for comparison."""
    texts = [page.file.read_text(encoding="utf-8") for page in book.pages]
    return [BeautifulSoup(text, "html.parser").select_one("article") for text in texts]


@pytest.fixture
def pairs(articles, pages):
    """Each page's article for paper, and the article as it was built."""
    return list(zip(articles, pages, strict=True))


def words(node) -> str:
    return " ".join(node.get_text().split())


def test_the_title_page_says_which_version_it_is(book):
    page = cover(book, "Edition")
    assert f"Edition of version {rope.__version__}" in page
    assert f"version {rope.__version__}. Code under the MIT licence" in page  # as each page's foot


def test_every_link_leads_somewhere(articles):
    ids, links = Counter(), []
    for article in articles:
        text = article.html()
        ids.update(re.findall(r'\sid="([^"]*)"', text))
        links += re.findall(r'<a[^>]*?\shref="([^"]*)"', text)
        links += re.findall(r'\sxlink:href="([^"]*)"', text)
    assert [name for name, times in ids.items() if times > 1] == []
    assert [name for name in ids if not re.fullmatch(r"[A-Za-z_][\w.-]*", name)] == []
    inside = {one for one in links if not re.match("https?:", one)}
    assert {one for one in inside if one[0] != "#" or one[1:] not in ids} == set()
    # The map on the first page is a drawing whose boxes are links.
    assert {f"#{Path(file).name}" for file in FILES if "Reference" not in file} & inside


def test_nothing_is_left_that_paper_cannot_do(pairs):
    for article, _ in pairs:
        text = article.html()
        assert not re.search(
            r"<(button|input|select|details|summary|script|noscript|iframe)\b", text
        )
        assert "Code of the figure" not in text and "This has moved" not in text
        assert "cells of this page run" not in text and "The first click on Run" not in text
        assert article.body.select(".headerlink, .toctree-wrapper") == []
        assert re.findall(r"var\(--rope|currentColor|\[\[\w+ [a-z]+ \d+\]\]", text) == []


def test_moving_figures_stand_still_and_say_what_moves_them(pairs):
    for article, page in pairs:
        specs = [json.loads(one.get_text()) for one in page.select(".rope-chart script")]
        drawn = article.body.select(".picture.chart")
        assert len(drawn) == len(specs) == page.decode().count('class="rope-chart"')
        for spec, picture in zip(specs, drawn, strict=True):
            svg = ElementTree.fromstring(article.pictures[picture.get_text()])
            assert svg.get("aria-label") == spec["description"]
            assert_drawn(svg)
            line = words(picture.find_next_sibling("p", class_="moves"))
            for one in spec["params"]:
                if "bind" in one:
                    assert one["bind"]["name"] in line
                    value = one["value"]
                    minus = isinstance(value, float | int) and value < 0
                    assert (f"−{-value}" if minus else str(value)) in line


def assert_drawn(svg: ElementTree.Element) -> None:
    """Marks that have a shape, and no number that is none."""
    marks = [node for node in svg.iter() if node.tag.removeprefix(SVG) in MARKS]
    shapes = {node.get("d") for node in marks if node.get("d")}
    texts = {node.text for node in svg.iter(f"{SVG}text") if node.text and node.text.strip()}
    assert len(marks) > 10 and len(shapes) > 3 and len(texts) > 1
    assert "NaN" not in ElementTree.tostring(svg, encoding="unicode")


def test_drawings_are_whole_and_described(pairs):
    for article, page in pairs:
        stored = [svg["aria-label"] for svg in page.select(".rope-picture > svg")]
        drawings = article.body.select(".picture:not(.chart, .photo)")
        svgs = [ElementTree.fromstring(article.pictures[one.get_text()]) for one in drawings]
        assert [svg.get("aria-label") for svg in svgs] == stored
        assert all(svg.get("role") == "img" and len(list(svg.iter())) > 10 for svg in svgs)


def test_figures_drawn_by_their_own_scripts_are_pictures(pairs):
    for article, page in pairs:
        boxes = page.select(".rope-explorer")
        photos = [article.pictures[one.get_text()] for one in article.body.select(".photo")]
        assert len(photos) == len(boxes)
        for box, photo in zip(boxes, photos, strict=True):
            node = BeautifulSoup(photo, "html.parser").img
            assert node["alt"] == box["aria-label"]
            data = b64decode(node["src"].partition(",")[2])
            image = np.asarray(Image.open(BytesIO(data)).convert("RGB")).astype(int)
            coloured = (image.max(-1) - image.min(-1) > 15).mean()
            assert image.shape[1] > 1000 and coloured > 0.1


@pytest.mark.parametrize("what", [".caption-number", ".section-number", ".eqno", "figcaption"])
def test_every_number_of_the_pages_is_there(pairs, what):
    for article, page in pairs:
        there = Counter(words(node).removesuffix("#") for node in page.select(what))
        assert Counter(words(node) for node in article.body.select(what)) == there


def test_a_check_is_one_line(pairs):
    for article, page in pairs:
        lines = Counter(words(one.summary.p) for one in page.select(".tag_check details"))
        assert Counter(map(words, article.body.select("p.tick"))) == lines
        assert all(line.startswith("✓") for line in lines)
        for cell in article.body.select(".tag_check"):
            assert cell.select("pre") == [] or not cell.select(".cell_input")


def test_open_code_and_outputs_are_those_of_the_pages(pairs):
    for article, page in pairs:
        there = Counter(one.get_text() for one in page.select("pre:not(details *)"))
        assert Counter(one.get_text() for one in article.body.select("pre")) == there
