"""Test the PDF that is made here from the built pages, which takes a while."""

import re
from collections import Counter

import pypdfium2
import pytest
from bs4 import BeautifulSoup
from pypdf import PdfReader

from rope.book.paper.pdf import document, make_pdf, outline_entries

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.fixture(scope="module")
def file(made, chromium):
    return made(make_pdf, "rope-book.pdf")


@pytest.fixture(scope="module")
def pdf(file):
    return PdfReader(file)


@pytest.fixture(scope="module")
def texts(file):
    """Return the text of each page, with single spaces."""
    with pypdfium2.PdfDocument(file) as pages:
        return [" ".join(page.get_textpage().get_text_range().split()) for page in pages]


@pytest.fixture(scope="module")
def chapters(book):
    """Return the chapters of the document to print."""
    return BeautifulSoup(document(book), "html.parser").select("article")


def words(node):
    return " ".join(node.get_text().split())


def test_the_outline_is_the_headings_in_order(pdf, chapters, book):
    entries = list(outline_entries(pdf.outline))
    headings = [words(node) for one in chapters for node in one.select("h1, h2, h3, h4, h5, h6")]
    titles = [re.sub(r"\\[()]", "", heading) for heading in headings]
    assert [entry.title for entry in entries] == ["Contents", *titles]
    assert len(chapters) == len(book.pages)
    places = [pdf.get_destination_page_number(entry) for entry in entries]
    assert places == sorted(places)


def test_every_number_is_printed_on_the_pages_of_its_chapter(pdf, chapters, texts):
    named = pdf.named_destinations
    starts = [pdf.get_destination_page_number(named[f"/{one['id']}"]) for one in chapters]
    for chapter, start, end in zip(chapters, starts, [*starts[1:], len(texts)], strict=True):
        text = " ".join(texts[start:end])
        numbers = [words(node) for node in chapter.select(".caption-number, .eqno")]
        assert [number for number in numbers if number.removesuffix("#") not in text] == []
        figures = chapter.select(".rope-picture, .rope-explorer")
        assert len(figures) == len(chapter.select("figcaption"))


def test_formulas_are_typeset(texts):
    raw = [number for number, text in enumerate(texts, 1) if re.search(r"\\[(\[]\s*\\?\w", text)]
    assert raw == []


def test_links_stay_in_the_book_or_lead_to_the_web(pdf, chapters):
    web, inside = Counter(), set()
    for page in pdf.pages:
        for reference in page.get("/Annots", []):
            link = reference.get_object()
            if "/URI" in link.get("/A", {}):
                web[str(link["/A"]["/URI"])] += 1
            else:
                inside.add(str(link.get("/Dest")).removeprefix("/"))
    assert [address for address in web if not re.match(r"https?:|mailto:", address)] == []
    hrefs = {str(node["href"]) for one in chapters for node in one.select("a[href]")}
    assert {href[1:] for href in hrefs if href[0] == "#"} <= inside
    assert inside <= {name.removeprefix("/") for name in pdf.named_destinations}
