"""Links within the built pages: each leads somewhere, and each thing has an id to link to.

The pages are those that were built last; `make test` builds them before it runs this file.
"""

import re
from collections import Counter
from html import unescape
from io import StringIO
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

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


def test_everything_that_may_be_linked_has_an_id_of_its_own(pages):
    faults = []
    for path, text in pages.items():
        if "chapters" not in path.parts:
            continue
        article = BeautifulSoup(DRAWING.sub("", text), "html.parser").article
        left_out = {id(tag) for tag in article.select(LEFT_OUT)}
        given = [tag["id"] for tag in article.select("[id]") if id(tag) not in left_out]
        faults += [
            (path.stem, f"#{own} stands twice") for own, n in Counter(given).items() if n > 1
        ]
        faults += [(path.stem, f"#{own} is counted") for own in given if COUNTED.fullmatch(own)]
        for tag in article.select(LINKED):
            owner = tag.parent if re.fullmatch("h[1-6]", tag.name) else tag
            if not owner.get("id"):
                faults.append((path.stem, f"no id: {tag.get_text(' ', strip=True)[:60]}"))
    assert faults == []


def test_every_page_says_which_version_it_is(pages):
    for path, text in pages.items():
        if "chapters" in path.parts or path.stem == "search":
            assert re.search(r"version (\S+)\. Code under", text)[1] == rope.__version__, path.name


# What the extension makes of a small book


CONFIG = """
extensions = ["myst_parser", "sphinx_proof", "sphinx_exercise", "rope.book.tools.links"]
prf_realtyp_to_countertyp = {"lemma": "theorem"}
"""
PAGE = """# One

```{prf:theorem} A name
:label: thm-one

One.
```

```{prf:proof}
By one way.
```

```{prf:proof}
By another.
```

```{prf:lemma}
:label: lem-two

Two.
```

```{exercise} Try
:label: ex-one-1

Do it.
```

```{solution} ex-one-1
Done.
```
"""


@pytest.fixture(scope="module")
def small_page(tmp_path_factory):
    """The built page of a book that has one."""
    folder = tmp_path_factory.mktemp("book")
    (folder / "conf.py").write_text(CONFIG)
    (folder / "index.md").write_text(PAGE)
    folders = [folder, folder, folder / "html", folder / "trees"]
    warnings = StringIO()
    with patch_docutils(), docutils_namespace():
        Sphinx(*map(str, folders), "html", status=None, warning=warnings).build()
    assert warnings.getvalue() == ""
    return BeautifulSoup((folder / "html" / "index.html").read_text(), "html.parser")


def test_proofs_and_solutions_are_named_after_what_they_belong_to(small_page):
    assert [proof["id"] for proof in small_page.select("div.proof.admonition")] == [
        *("thm-one", "proof-thm-one", "proof-thm-one-2", "lem-two"),
    ]
    assert small_page.select_one(".solution")["id"] == "solution-ex-one-1"
    assert not re.search(r'id="\w+-content"', str(small_page.select_one(".body")))


def test_statements_and_exercises_link_to_themselves(small_page):
    for name in ("thm-one", "lem-two", "ex-one-1"):
        link = small_page.select_one(f"#{name} > .admonition-title > a.headerlink")
        assert link["href"] == f"#{name}" and link.text == "#"
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
