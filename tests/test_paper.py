"""The book on paper and on a reader: its cleaned articles, what publishing writes, planted faults.

The pages must have been built (`make book`); the files themselves are in `test_paper_files.py`.
"""

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from bs4 import BeautifulSoup

from rope.book.paper.articles import clean, link, read_articles
from rope.book.paper.mathml import one_letter
from rope.book.paper.pages import Page, read_book
from rope.book.paper.pictures import controls, still_chart
from rope.book.paper.publish import publish

ROOT = Path(__file__).parents[1]
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
FILES = [TOC["root"], *(c["file"] for part in TOC["parts"] for c in part["chapters"])]
SVG = "{http://www.w3.org/2000/svg}"
MARKS = ("path", "line", "rect", "circle", "polygon", "text", "use", "image")
pytestmark = pytest.mark.browser  # of the stage of `make test` that has the pages


@pytest.fixture(scope="module")
def book():
    if not (ROOT / "_build" / "html" / "index.html").exists():
        pytest.fail("no built pages: run `make book`.")
    return read_book(ROOT)


@pytest.fixture(scope="module")
def articles(book):
    return read_articles(book)


@pytest.fixture(scope="module")
def pages(book):
    """The article of each page as it was built, for comparison."""
    texts = [page.file.read_text(encoding="utf-8") for page in book.pages]
    return [BeautifulSoup(text, "html.parser").select_one("article") for text in texts]


def words(node) -> str:
    return " ".join(node.get_text().split())


def test_every_page_stands_in_its_place(articles, pages):
    assert [article.page.name for article in articles] == [Path(file).name for file in FILES]
    titles = [words(page.h1).removesuffix("#") for page in pages]
    assert [article.title for article in articles] == titles
    parts = [part["caption"] for part in TOC["parts"] for _ in part["chapters"]]
    assert [article.page.part for article in articles] == ["", *parts]


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


def test_links_between_pages_are_as_many_as_on_the_pages(articles, pages):
    """All but those to what is not in the book, such as the index."""
    for article, page in zip(articles, pages, strict=True):
        names = {Path(file).name for file in FILES}
        expected = sum(
            node["href"].startswith(("#", "http")) or node["href"].partition(".html")[0] in names
            for node in page.select("a[href]:not(.headerlink, details *)")
        )
        solutions = len(page.select(".solution"))
        assert len(article.body.select("a[href]")) == expected + solutions, article.page.name


def test_nothing_is_left_that_paper_cannot_do(articles):
    for article in articles:
        text = article.html()
        found = re.findall(r"<(button|input|select|details|summary|script|noscript|iframe)\b", text)
        assert found == [], article.page.name
        assert "Show code cell" not in text
        assert article.body.select(".headerlink, .toctree-wrapper") == []
        assert re.findall(r"var\(--rope|currentColor|\[\[\w+ [a-z]+ \d+\]\]", text) == []


def test_moving_figures_stand_still_and_say_what_moves_them(articles, pages):
    number = 0
    for article, page in zip(articles, pages, strict=True):
        specs = [json.loads(one.get_text()) for one in page.select(".rope-chart script")]
        drawn = article.body.select(".picture.chart")
        assert len(drawn) == len(specs), article.page.name
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
            number += 1
    assert number == sum(page.decode().count('class="rope-chart"') for page in pages) > 5


def assert_drawn(svg: ElementTree.Element) -> None:
    """Marks that have a shape, and no number that is none."""
    marks = [node for node in svg.iter() if node.tag.removeprefix(SVG) in MARKS]
    shapes = {node.get("d") for node in marks if node.get("d")}
    texts = {node.text for node in svg.iter(f"{SVG}text") if node.text and node.text.strip()}
    assert len(marks) > 10 and len(shapes) > 3 and len(texts) > 1
    assert "NaN" not in ElementTree.tostring(svg, encoding="unicode")


def test_drawings_are_whole_and_described(articles, pages):
    for article, page in zip(articles, pages, strict=True):
        stored = [svg["aria-label"] for svg in page.select(".rope-picture > svg")]
        drawings = article.body.select(".picture:not(.chart)")
        svgs = [ElementTree.fromstring(article.pictures[one.get_text()]) for one in drawings]
        assert [svg.get("aria-label") for svg in svgs] == stored
        assert all(svg.get("role") == "img" and len(list(svg.iter())) > 10 for svg in svgs)


@pytest.mark.parametrize("what", [".caption-number", ".section-number", ".eqno", "figcaption"])
def test_every_number_of_the_pages_is_there(articles, pages, what):
    for article, page in zip(articles, pages, strict=True):
        there = Counter(words(node).removesuffix("#") for node in page.select(what))
        assert Counter(words(node) for node in article.body.select(what)) == there


def test_solutions_stand_at_the_end_once(articles, pages):
    for article, page in zip(articles, pages, strict=True):
        expected = [words(one.select_one(".admonition-title")) for one in page.select(".solution")]
        solutions = article.body.select(".solution")
        assert [words(one.select_one(".admonition-title")) for one in solutions] == expected
        if not expected:
            continue
        section = article.body.select("section.solutions")
        assert len(section) == 1 and section[0].find_next_sibling() is None
        assert section[0].select(".solution") == solutions
        order = [node.get("id") for node in article.body.find_all(True)]
        for solution in solutions:
            exercise = solution.select_one(".admonition-title a")["href"][1:]
            assert order.index(exercise) < order.index(solution["id"])
            back = article.body.select(f'[id="{exercise}"] .to-solution a')
            assert [one["href"] for one in back] == [f"#{solution['id']}"]


def test_a_check_is_one_line(articles, pages):
    number = 0
    for article, page in zip(articles, pages, strict=True):
        lines = Counter(words(one.summary.p) for one in page.select(".tag_check details"))
        assert Counter(map(words, article.body.select("p.tick"))) == lines
        assert all(line.startswith("✓") for line in lines)
        for cell in article.body.select(".tag_check"):
            assert cell.select("pre") == [] or not cell.select(".cell_input")
        number += len(lines)
    assert number > 100


def test_open_code_and_outputs_are_those_of_the_pages(articles, pages):
    for article, page in zip(articles, pages, strict=True):
        there = Counter(one.get_text() for one in page.select("pre:not(details *)"))
        assert Counter(one.get_text() for one in article.body.select("pre")) == there


# Planted faults: a page that holds what paper cannot show must not become a page without it.

CHART = (
    '<div class="rope-chart" role="group"><script type="application/json">{}</script></div>'.format
)
EXERCISE = '<div class="exercise admonition" id="ex"><p class="admonition-title">Exercise</p></div>'


def page_of(folder: Path, body: str, name: str = "one") -> Page:
    file = folder / f"{name}.html"
    file.write_text(f"<article><h1 id='t'>1. One</h1>{body}</article>", encoding="utf-8")
    return Page(name, "Part", file)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<button>Run</button>", "no form on paper for '<button>"),
        ('<div class="explorer"><script>draw()</script></div>', "no form on paper for '<script>"),
        (
            "<details><summary>More</summary>words</details>",
            "a fold that holds no code: 'Morewords'",
        ),
        ('<div class="solution"><p>Words</p></div>', "a solution without an exercise: Words"),
        (CHART('{"mark": "point"}'), "a chart without a control"),
        ('<div class="rope-chart"></div>', "chart 0 has no JSON"),
    ],
)
def test_what_has_no_form_on_paper_is_named(tmp_path, body, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        clean(page_of(tmp_path, body))


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    one = clean(page_of(tmp_path, '<a href="two.html#there">x</a><a href="two.html#gone">y</a>'))
    two = clean(page_of(tmp_path, '<p id="there"></p><a href="genindex.html">i</a>', "two"))
    with pytest.raises(ValueError, match=r"1 links lead nowhere: one: two\.html#gone"):
        link([one, two])
    assert one.body.a["href"] == "#two--there"
    assert two.body.a is None


def test_links_in_drawings_stay_in_the_book(tmp_path):
    svg = '<svg aria-label="Map" role="img" viewBox="0 0 1 1"><a xlink:href="{}"/></svg>'
    drawing = f'<div class="rope-picture">{svg}</div>'
    one = clean(page_of(tmp_path, drawing.format("two.html")))
    two = clean(page_of(tmp_path, "", "two"))
    link([one, two])
    assert 'xlink:href="#two"' in one.html()
    lost = clean(page_of(tmp_path, drawing.format("three.html"), "lost"))
    with pytest.raises(ValueError, match=r"lost: three\.html in a figure"):
        link([lost])


def test_an_exercise_and_its_solution_link_to_each_other(tmp_path):
    title = '<p class="admonition-title">Solution to <a href="#ex">Exercise</a></p>'
    solution = f'<div class="solution" id="c/one-2">{title}<p>So.</p></div>'
    article = clean(page_of(tmp_path, f"{EXERCISE}{solution}<p>After.</p>"))
    link([article])
    text = article.html()
    assert text.index("After.") < text.index("Solutions") < text.index("So.")
    assert 'href="#one--c-one-2"' in text and 'href="#one--ex"' in text


def test_a_book_that_was_not_built_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"30 of 30 pages were not built, first .*intro"):
        read_book(ROOT, tmp_path)


def test_controls_are_written_as_the_page_shows_them():
    bind = {"input": "range", "step": 0.01, "name": "a < b"}
    spec = {"params": [{"name": "a", "value": -3.1, "bind": bind}, {"name": "unbound"}]}
    line = "In the browser this figure moves. Its control, as set here: <em>a &lt; b</em> −3.10."
    assert controls(spec) == line


def test_narrow_charts_stack_their_panels():
    panel = {"mark": "point", "width": 200, "data": {"values": [{"x": 1}]}}
    panel["encoding"] = {"x": {"field": "x", "type": "quantitative"}}
    spec = {"hconcat": [panel, panel], "description": "Two"}
    width = [
        int(re.search(r'width="(\d+)"', still_chart(spec, "c", narrow=narrow))[1])
        for narrow in (False, True)
    ]
    assert width[1] < 0.7 * width[0]


def test_letters_of_formulas():
    assert one_letter("R", "double-struck") == "ℝ"
    assert one_letter("k", "double-struck") == "𝕜"
    assert one_letter("n", "bold") == "𝐧"
    assert one_letter("δ", "bold-italic") == "𝜹"
    with pytest.raises(ValueError, match="no sign for '⊤' in the variant bold"):
        one_letter("⊤", "bold")


def test_publishing_links_what_was_made_and_nothing_else(tmp_path):
    html, made = tmp_path / "html", tmp_path / "made"
    (html / "chapters").mkdir(parents=True)
    made.mkdir()
    page = '<article></article><div class="extra_footer">\n  <p>Licence</p></div>'
    for name in ("search.html", "chapters/one.html"):
        (html / name).write_text(page, encoding="utf-8")
    (html / "index.html").write_text("<meta>", encoding="utf-8")

    class Built:
        pass

    Built.html = html
    (made / "rope-book.pdf").write_bytes(b"%PDF")
    (made / "rope-book.epub").write_bytes(b"PK")
    for _ in range(2):  # a second time changes nothing
        assert publish(Built, made) == ["pdf", "epub"]
        text = (html / "chapters" / "one.html").read_text(encoding="utf-8")
        assert text.count("rope-book") == 2 and 'href="../rope-book.pdf"' in text
        assert 'href="rope-book.epub"' in (html / "search.html").read_text(encoding="utf-8")
    (made / "rope-book.pdf").unlink()
    assert publish(Built, made) == ["epub"]
    assert not (html / "rope-book.pdf").exists()
    assert "rope-book.pdf" not in (html / "search.html").read_text(encoding="utf-8")
    shutil.rmtree(made)
    assert publish(Built, made) == []
    assert (html / "search.html").read_text(encoding="utf-8") == page
    (html / "bare.html").write_text("<article></article>", encoding="utf-8")
    with pytest.raises(ValueError, match=r"bare\.html has no .*extra_footer"):
        publish(Built, made)
