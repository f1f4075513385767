"""What stops the making of the PDF, and what publishing writes; without built pages."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from rope.book.mime import still_chart
from rope.book.paper.articles import clean, link
from rope.book.paper.pages import Page, read_book
from rope.book.paper.pictures import controls
from rope.book.paper.publish import publish

ROOT = Path(__file__).parents[1]
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
    for name in ("_config.yml", "_toc.yml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"(\d+) of \1 pages were not built, first .*intro"):
        read_book(tmp_path)


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


def test_publishing_links_the_pdf_if_there_is_one(tmp_path):
    html, pdf = tmp_path / "html", tmp_path / "rope-book.pdf"
    (html / "chapters").mkdir(parents=True)
    built = '<article></article><div class="extra_footer">\n  <p>Licence</p></div>'
    pages = {up: html / path for up, path in (("", "search.html"), ("../", "chapters/one.html"))}
    for page in pages.values():
        page.write_text(built, encoding="utf-8")
    (html / "index.html").write_text("<meta>", encoding="utf-8")
    # A second time changes nothing; if the PDF is gone, so are its links.
    for made in (True, True, False):
        pdf.write_bytes(b"made") if made else pdf.unlink()
        assert publish(SimpleNamespace(html=html), pdf) == made == (html / pdf.name).exists()
        for up, page in pages.items():
            text = page.read_text(encoding="utf-8")
            assert re.findall('href="(.*?)"', text) == [f"{up}{pdf.name}"] * made
            assert made or text == built
    (html / "bare.html").write_text("<article></article>", encoding="utf-8")
    with pytest.raises(ValueError, match=r"bare\.html"):
        publish(SimpleNamespace(html=html), pdf)
