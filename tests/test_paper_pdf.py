"""The PDF, made of the built pages and read again. Slow: it is made here."""

import re
from collections import Counter
from html import unescape

import numpy as np
import pypdfium2
import pytest
from pypdf import PdfReader
from pypdf.generic import NullObject

from rope.book.paper.pdf import make_pdf

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.fixture(scope="module")
def pdf_file(made, chromium):
    return made(make_pdf, "rope-book.pdf")


@pytest.fixture(scope="module")
def pdf(pdf_file):
    return PdfReader(pdf_file)


@pytest.fixture(scope="module")
def drawn(pdf_file):
    """The PDF in the library that draws its pages and reads their text."""
    return pypdfium2.PdfDocument(pdf_file)


@pytest.fixture(scope="module")
def texts(drawn):
    """The words of each page, one space between them."""
    return [" ".join(page.get_textpage().get_text_range().split()) for page in drawn]


@pytest.fixture(scope="module")
def outline(pdf):
    """Level, title and page, from 0, of each entry of the outline in order."""

    def entries(items, level):
        for item in items:
            if isinstance(item, list):
                yield from entries(item, level + 1)
            else:
                yield level, item.title, pdf.get_destination_page_number(item)

    return list(entries(pdf.outline, 0))


@pytest.fixture(scope="module")
def starts(articles, outline):
    """The page, from 0, on which each chapter begins: the outline's first entry of its title."""
    found, position = [], 0
    for article in articles:
        titles = [title for _, title, _ in outline]
        position = titles.index(article.title, position)
        found.append(outline[position][2])
    return found


def test_outline_is_the_headings_of_the_book(articles, outline, book):
    expected = [book.title, "Contents"]
    part = ""
    for article in articles:
        if article.page.part != part:
            part = article.page.part
            expected.append(part)
        for heading in article.body.select("h1, h2, h3, h4, h5, h6"):
            expected.append(" ".join(heading.get_text().split()))
    plain = re.compile(r"\\\(.*?\\\)")  # a formula is other signs in the outline
    assert len(outline) == len(expected)
    for (_, title, _), heading in zip(outline, expected, strict=True):
        for piece in plain.split(heading):
            assert piece.strip() in title
        assert plain.search(heading) or title == heading
        assert "\\" not in title
    pages = [page for _, _, page in outline]
    assert pages == sorted(pages)


def test_no_page_is_empty(drawn, starts):
    """Between the running title and the page's number are two lines or more, as `widows` asks."""
    for number in range(starts[0], len(drawn)):
        image = np.asarray(drawn[number].render(scale=0.5, grayscale=True).to_pil())
        height = len(image)
        inked = np.flatnonzero((image[height // 12 : height * 11 // 12] < 200).any(1))
        assert np.ptp(inked) > 0.03 * height, f"page {number + 1}"


def test_every_figure_has_words_for_who_does_not_see_it(pdf, articles):
    nodes, descriptions = [pdf.trailer["/Root"]["/StructTreeRoot"]], []
    while nodes:
        node = nodes.pop().get_object()
        if isinstance(node, list):
            nodes += node
        elif isinstance(node, dict):
            nodes.append(node.get("/K", NullObject()))
            if node.get("/S") == "/Figure":
                descriptions.append(node.get("/Alt"))
    assert all(descriptions)  # those of formulas are their TeX
    pictures = "".join(text for one in articles for text in one.pictures.values())
    labels = re.findall(r'<(?:svg role="img" aria-label|img alt)="([^"]*)"', pictures)
    assert {*map(unescape, labels)} <= {*descriptions}
    assert len(labels) == sum(len(one.body.select(".picture")) for one in articles)


def test_every_number_is_printed_in_its_chapter_in_order(articles, starts, texts):
    ends = [*starts[1:], len(texts)]
    for article, start, end in zip(articles, starts, ends, strict=True):
        text = " ".join(texts[start:end])
        place = 0
        for node in article.body.select(".admonition-title > .caption-number"):
            number = " ".join(node.get_text().split())
            place = text.index(number, place) + len(number)
        for node in article.body.select("figcaption .caption-number, .eqno"):
            assert " ".join(node.get_text().split()) in text, article.page.name


def test_formulas_are_set(texts):
    """No TeX is left; code and the page on writing have some on purpose."""
    raw = [number for number, text in enumerate(texts, 1) if re.search(r"\\[(\[]\s*\\?\w", text)]
    assert raw == []


def test_links_stay_in_the_book_or_lead_to_the_web(pdf, articles):
    named = pdf.named_destinations
    outside, inside = Counter(), Counter()
    for page in pdf.pages:
        for reference in page.get("/Annots", []):
            annotation = reference.get_object()
            if annotation.get("/Subtype") != "/Link":
                continue
            action = annotation.get("/A", {})
            if "/URI" in action:
                outside[str(action["/URI"])] += 1
            else:
                target = annotation.get("/Dest") or action.get("/D")
                inside[str(target).removeprefix("/")] += 1
    assert [one for one in outside if not re.match("https?://", one)] == []
    names = {name.removeprefix("/") for name in named}
    assert set(inside) - names == set()
    expected = {
        str(node["href"])[1:]
        for article in articles
        for node in article.body.select("a[href^='#']")
    }
    assert expected - set(inside) == set()
    web = {
        str(node["href"]) for article in articles for node in article.body.select("a[href^=http]")
    }
    assert {one.rstrip("/") for one in web} == {one.rstrip("/") for one in outside}


def test_theorems_are_where_their_links_lead(pdf, articles, texts):
    named = {name.removeprefix("/"): place for name, place in pdf.named_destinations.items()}
    checked = 0
    for article in articles:
        for node in article.body.select(".admonition[id]"):
            number = node.select_one(".admonition-title > .caption-number")
            if number is None or node["id"] not in named:
                continue
            page = pdf.get_destination_page_number(named[node["id"]])
            assert " ".join(number.get_text().split()) in texts[page], node["id"]
            checked += 1
    assert checked > len(articles)
