"""Test that everything a reader may link to has a unique id on the built pages.

`make test` builds the pages before it runs this file. test_browser.py tests that no link is dead.
"""

import os
import re
from collections import Counter
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from conftest import ROOT, give_up

import rope

HTML = Path(os.environ.get("ROPE_HTML", ROOT / "_build" / "html")).resolve()
# Elements that a reader may link to. A heading has its section's id.
LINKED = "section[id] > :is(h1, h2, h3, h4, h5, h6), figure, table:has(caption), .proof, .exercise"
LINKED += ", .solution, div.math:has(> .eqno), div.citation"
# Elements that may repeat an id: citations and the library's names.
LEFT_OUT = ".bibtex-citation, dt, [id^='module-']"
DRAWING = re.compile(r"<svg.*?</svg>", re.DOTALL)
# An id that is a running number changes with the next edit.
COUNTED = re.compile(r"(\w+-|id)?\d+|proof|.*/.*")


@pytest.fixture(scope="module")
def pages():
    """Return the HTML of every chapter's page, keyed by its name."""
    paths = sorted((HTML / "chapters").glob("*.html"))
    if not paths:
        give_up(f"no built book at {HTML}: run `make book`, or set ROPE_HTML to its folder.")
    return {path.stem: path.read_text(encoding="utf-8") for path in paths}


@pytest.fixture(scope="module")
def articles(pages):
    """Return the parsed article of each chapter, without its drawings."""
    texts = [DRAWING.sub("", text) for text in pages.values()]
    return [BeautifulSoup(text, "html.parser").article for text in texts]


def test_everything_that_may_be_linked_has_an_id_of_its_own(articles):
    faults = []
    for article in articles:
        left_out = {id(tag) for tag in article.select(LEFT_OUT)}
        ids = [tag["id"] for tag in article.select("[id]") if id(tag) not in left_out]
        faults += [f"#{own} occurs twice" for own, times in Counter(ids).items() if times > 1]
        faults += [f"#{own} is a running number" for own in ids if COUNTED.fullmatch(own)]
        for tag in article.select(LINKED):
            owner = tag.parent if re.fullmatch("h[1-6]", tag.name) else tag
            if not owner.get("id"):
                faults.append(f"no id: {tag.get_text(' ', strip=True)[:60]}")
    assert faults == []


def test_every_page_says_which_version_it_is(pages):
    for name, text in pages.items():
        assert re.search(r"version (\S+)\. Code under", text)[1] == rope.__version__, name


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
    assert any(name.endswith("-2") for name in names), "no statement has two proofs anymore"


def test_statements_and_exercises_link_to_themselves(articles):
    for article in articles:
        for title in article.select(":is(.proof, .exercise) > .admonition-title"):
            if title.select_one(".caption-number"):
                link = title.select_one("a.headerlink")
                assert link["href"] == f"#{title.parent['id']}" and link.text == "#"
                assert link["title"].startswith("Link to this ")
