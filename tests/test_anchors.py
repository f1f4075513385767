"""Links within the built pages: each leads somewhere, and each thing has an id to link to.

The pages are those that were built last; `make test` builds them before it runs this file.
"""

import re
from collections import Counter
from html import unescape
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup

import rope
from tests import test_browser

HTML = test_browser.HTML
browser, visitors = test_browser.browser, test_browser.visitors  # fixtures
# What a reader may link to; headings are told by their section.
LINKED = "section[id] > :is(h1, h2, h3, h4, h5, h6), figure, table:has(caption), .proof, .exercise"
LINKED += ", .solution, div.math:has(> .eqno), div.citation"
# Left out, beside what stands in a drawing: places of citations, and the library's names.
LEFT_OUT = ".bibtex-citation, dt, [id^='module-']"
DRAWING = re.compile(r"<svg.*?</svg>", re.DOTALL)
# An id that was counted, not given, is another one after an edit.
COUNTED = re.compile(r"(\w+-|id)?\d+|proof|.*/.*")


@pytest.fixture(scope="module")
def pages():
    """The text of every built page, by its path."""
    if not (HTML / "index.html").exists():
        pytest.fail(f"no built book at {HTML}: run `make book`, or set ROPE_HTML to its folder.")
    paths = [*HTML.glob("*.html"), *(HTML / "chapters").glob("*.html")]
    return {path: path.read_text(encoding="utf-8") for path in paths}


@pytest.fixture(scope="module")
def articles(pages):
    """The article of each chapter, parsed, without its drawings."""
    texts = [DRAWING.sub("", text) for path, text in pages.items() if "chapters" in path.parts]
    return [BeautifulSoup(text, "html.parser").article for text in texts]


def test_every_link_within_the_book_leads_somewhere(pages):
    ids = {path: {*re.findall(r'\sid="([^"]*)"', text)} for path, text in pages.items()}
    lost, number = [], 0
    for path, text in pages.items():
        for link in map(unescape, re.findall(r'\b(?:href|src)="([^"]*)"', text)):
            if re.match(r"[a-z]+:", link) or link in ("", "#"):
                continue
            name, _, anchor = unquote(link).partition("#")
            target = (path.parent / name.partition("?")[0]).resolve() if name else path
            number += 1
            if not target.exists() or (anchor and anchor not in ids.get(target, {anchor})):
                lost.append(f"{path.stem}: {link}")
    assert lost == []
    assert number > 3000, "the pages were not read whole"


def test_everything_that_may_be_linked_has_an_id_of_its_own(articles):
    faults = []
    for article in articles:
        left_out = {id(tag) for tag in article.select(LEFT_OUT)}
        ids = [tag["id"] for tag in article.select("[id]") if id(tag) not in left_out]
        faults += [f"#{own} stands twice" for own, times in Counter(ids).items() if times > 1]
        faults += [f"#{own} is counted" for own in ids if COUNTED.fullmatch(own)]
        for tag in article.select(LINKED):
            owner = tag.parent if re.fullmatch("h[1-6]", tag.name) else tag
            if not owner.get("id"):
                faults.append(f"no id: {tag.get_text(' ', strip=True)[:60]}")
    assert faults == []


def test_every_page_says_which_version_it_is(pages):
    for path, text in pages.items():
        if "chapters" in path.parts or path.stem == "search":
            assert re.search(r"version (\S+)\. Code under", text)[1] == rope.__version__, path.name


def test_proofs_and_solutions_are_named_after_what_they_belong_to(articles):
    names = set()
    for article in articles:
        last = ""
        for statement in article.select(".proof.admonition"):
            if statement.select_one(":scope > .admonition-title > .caption-number"):
                last = statement["id"]
            else:
                assert re.fullmatch(f"proof-{last}(-[2-9])?", statement["id"])
                names.add(statement["id"])
        for solution in article.select(".solution"):
            exercise = solution.select_one(".admonition-title a")["href"].partition("#")[2]
            assert solution["id"] == f"solution-{exercise}"
    assert any(name.endswith("-2") for name in names), "no statement has two proofs any more"


def test_statements_and_exercises_link_to_themselves(articles):
    for article in articles:
        for title in article.select(":is(.proof, .exercise) > .admonition-title"):
            if title.select_one(".caption-number"):
                link = title.select_one("a.headerlink")
                assert link["href"] == f"#{title.parent['id']}" and link.text == "#"
                assert link["title"].startswith("Link to this ")


@pytest.mark.browser
def test_the_link_of_a_theorem_shows_at_the_keyboard(visitors):
    page = visitors(test_browser.WIDE).open("chapters/rotation_in_two_dimensions")
    link = page.locator("#thm-rope-2d > .admonition-title > a.headerlink")
    opacity = "link => getComputedStyle(link).opacity"
    link.scroll_into_view_if_needed()
    page.mouse.move(0, 0)
    assert link.evaluate(opacity) == "0"
    page.keyboard.press("Tab")  # so that what has the focus is known to be of the keyboard
    link.focus()
    page.wait_for_function(
        "() => getComputedStyle(document.activeElement).opacity === '1'", timeout=5_000
    )
