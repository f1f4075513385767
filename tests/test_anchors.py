"""Links into the built pages: each thing has an address, and an address that is listed stays.

The pages are those that were built last; `make test` builds them before it runs this file.
"""

import re
from io import StringIO
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

import rope
from rope.book.tools import anchors, links
from tests import test_browser

ROOT = Path(__file__).parents[1]
HTML = test_browser.HTML
LISTED = ROOT / anchors.LISTED
MOVED = ROOT / links.MOVED
browser, visitors = test_browser.browser, test_browser.visitors  # fixtures


@pytest.fixture(scope="module")
def pages():
    """The addresses of the built pages, and what is wrong with them."""
    if not (HTML / "index.html").exists():
        pytest.fail(f"no built book at {HTML}: run `make book`, or set ROPE_HTML to its folder.")
    return anchors.built(HTML)


def test_everything_that_may_be_linked_has_an_id_of_its_own(pages):
    addresses, faults = pages
    assert not faults, "\n" + "\n".join(faults)
    assert len(addresses) > 800, "the pages were not read whole"


def test_a_link_made_to_a_listed_address_arrives(pages):
    moved = links.read_moved(MOVED)
    faults = anchors.compare(pages[0], anchors.read_listed(LISTED), moved)
    assert not faults, "\n" + "\n".join(faults)


def test_the_list_is_sorted_so_that_two_changes_of_it_merge():
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    assert lines == sorted({*lines})


def test_every_page_says_which_version_it_is():
    for path in [HTML / "search.html", *(HTML / "chapters").glob("*.html")]:
        page = path.read_text(encoding="utf-8")
        if "This page has moved" not in page:
            assert re.search(r"version (\S+)\. Code under", page)[1] == rope.__version__, path.name


# The addresses of pages of our own


PAGE = """<article><section id="a-heading"><h2>A heading</h2>
<figure id="fig-one"></figure><div class="math" id="equation-eq-one"><span class="eqno">(1)</span>
</div><div class="math">unnumbered</div><svg><g id="id9"></g></svg>
<p>as <span class="bibtex-citation" id="id1">they</span> say</p>
<div class="proof theorem" id="thm-one"></div><div class="proof" id="proof-thm-one"></div>
<div class="exercise" id="ex-one-1"></div><div class="solution" id="solution-ex-one-1"></div>
<table><tr><td>no caption</td></tr></table>
</section></article>"""


def anchors_of(page):
    return anchors.anchors(BeautifulSoup(anchors.DRAWING.sub("", page), "html.parser").article)


def test_anchors_are_what_has_an_id_and_is_no_part_of_a_drawing():
    found, faults = anchors_of(PAGE)
    assert faults == []
    assert found == [
        *("a-heading", "fig-one", "equation-eq-one", "thm-one", "proof-thm-one", "ex-one-1"),
        "solution-ex-one-1",
    ]


@pytest.mark.parametrize(
    ("named", "worse", "said"),
    [
        ('id="fig-one"', "", "no id"),
        ('id="thm-one"', "", "no id: "),
        ('id="equation-eq-one"', "", "no id: (1)"),
        ('id="ex-one-1"', "", "no id"),
        ('id="a-heading"', 'id="id3"', "#id3 is counted, not given"),
        ('id="fig-one"', 'id="figure-7"', "#figure-7 is counted"),
        ('id="proof-thm-one"', 'id="proof"', "#proof is counted"),
        ('id="solution-ex-one-1"', 'id="chapters/one-solution-4"', "is counted"),
        ('id="thm-one"', 'id="fig-one"', "#fig-one stands 2 times"),
        ("<table>", "<table><caption>Sizes</caption>", "no id: Sizes"),
    ],
)
def test_what_has_no_lasting_id_is_named(named, worse, said):
    assert PAGE.count(named) == 1
    assert any(said in fault for fault in anchors_of(PAGE.replace(named, worse))[1])


def test_the_comparison_says_what_to_do():
    pages = {"a", "a#x", "b", "b#x"}
    assert anchors.compare(pages, pages, {}) == []
    (new,) = anchors.compare({*pages, "b#new"}, pages, {})
    assert "b#new is not in" in new and "python -m rope.book.tools.anchors" in new
    (gone,) = anchors.compare(pages, {*pages, "a#old"}, {})
    assert "a#old is gone" in gone and "that name again" in gone and "moved.txt" in gone
    # Led on, an old page keeps its anchors where the new one has them, and there alone.
    assert anchors.compare(pages, {*pages, "old", "old#x"}, {"old": "b"}) == []
    assert anchors.compare(pages, {*pages, "old#y"}, {"old": "b"})[0].startswith("old#y is gone")
    # A redirect to nowhere, and one that no page carries out.
    assert (
        "leads a#x to b#y, which is not there" in anchors.compare(pages, pages, {"a#x": "b#y"})[0]
    )
    chain = anchors.compare(pages, pages, {"a#x": "b#x", "b#x": "a#x"})
    assert "leads a#x to b#x, which moved too: lead it to a#x" in chain[0]
    assert "leads a#y on, and no page" in anchors.compare(pages, pages, {"a#y": "b#x"})[0]


@pytest.mark.parametrize("text", ["a", "a b c", "a b\na c"])
def test_a_line_of_redirects_is_an_old_address_and_its_new_one(tmp_path, text):
    (tmp_path / "moved.txt").write_text(f"# a comment\n\n{text}\n")
    with pytest.raises(ValueError, match="is not one old address"):
        links.read_moved(tmp_path / "moved.txt")


def test_the_command_adds_and_never_drops(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert anchors.main() == 1
    assert "make book first" in capsys.readouterr().err
    page = tmp_path / anchors.HTML / "chapters" / "one.html"
    page.parent.mkdir(parents=True)
    (tmp_path / "chapters").mkdir()
    page.write_text(PAGE)
    assert anchors.main() == 0
    before = anchors.read_listed(anchors.LISTED)
    assert {"chapters/one", "chapters/one#fig-one"} < before
    page.write_text(PAGE.replace("fig-one", "fig-two"))
    assert anchors.main() == 1
    assert "chapters/one#fig-one is gone" in capsys.readouterr().err
    assert anchors.read_listed(anchors.LISTED) == {*before, "chapters/one#fig-two"}


# What the extension makes of a small book


BOOK = {
    "conf.py": """
extensions = ["myst_parser", "sphinx_proof", "sphinx_exercise", "rope.book.tools.links"]
myst_enable_extensions = ["dollarmath"]
numfig = True
prf_realtyp_to_countertyp = {"lemma": "theorem"}
""",
    "index.md": "# Front\n\n```{toctree}\nchapters/one\nchapters/two\n```\n",
    "chapters/one.md": """# One

## Its new heading

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

```{exercise} Try
:label: ex-one-1

Do it.
```

```{solution} ex-one-1
Done.
```

$$x$$ (eq-new)
""",
    "chapters/two.md": "# Two\n\n```{prf:lemma}\n:label: lem-two\n\nTwo.\n```\n",
    "chapters/moved.txt": """# old, new
chapters/one#its-heading chapters/one#its-new-heading
chapters/one#equation-eq-old chapters/one#equation-eq-new
chapters/one#lem-two chapters/two#lem-two
chapters/old chapters/two
""",
}


def build(folder, **changes):
    """The built pages of the small book, and the warnings."""
    for name, text in {**BOOK, **changes}.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    folders = [folder, folder, folder / "html", folder / "trees"]
    warnings = StringIO()
    with patch_docutils(), docutils_namespace():
        Sphinx(*map(str, folders), "html", status=None, warning=warnings).build()
    return {
        path: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for path in (folder / "html" / "chapters").glob("*.html")
    }, warnings.getvalue()


@pytest.fixture(scope="module")
def small_pages(tmp_path_factory):
    pages, warnings = build(tmp_path_factory.mktemp("book"))
    assert warnings == ""
    return pages


@pytest.fixture(scope="module")
def small_book(small_pages):
    return {path.stem: page for path, page in small_pages.items()}


def test_proofs_and_solutions_are_named_after_what_they_belong_to(small_book):
    page = small_book["one"]
    assert [proof["id"] for proof in page.select("div.proof.admonition")] == [
        *("thm-one", "proof-thm-one", "proof-thm-one-2"),
    ]
    assert page.select_one(".solution")["id"] == "solution-ex-one-1"
    assert not re.search(r'id="\w+-content"', str(page.select_one(".body")))


def test_statements_and_exercises_link_to_themselves(small_book):
    for page, names in (("one", ["thm-one", "ex-one-1"]), ("two", ["lem-two"])):
        for name in names:
            link = small_book[page].select_one(f"#{name} > .admonition-title > a.headerlink")
            assert link["href"] == f"#{name}" and link.text == "#"
            assert link["title"].startswith("Link to this ")


def test_an_anchor_that_was_renamed_stands_before_its_new_place(small_book):
    page = small_book["one"]
    for old, new in (("its-heading", "its-new-heading"), ("equation-eq-old", "equation-eq-new")):
        (place,) = page.select(f'[id="{old}"]')
        assert place.find_next(id=True)["id"] == new


def test_an_anchor_on_another_page_leads_there_without_script(small_book):
    line = small_book["one"].select_one("p#lem-two")
    assert line.text == "This has moved: Two" and line["class"] == ["rope-moved"]
    assert line.a["href"] == "two.html#lem-two"
    assert small_book["two"].select_one("#lem-two")


def test_a_page_that_was_renamed_leads_to_its_new_name(small_book):
    page = small_book["old"]
    assert page.select_one("meta[http-equiv=refresh]")["content"] == "0; url=two.html"
    assert page.select_one("link[rel=canonical]")["href"] == "two.html"
    assert page.p.a["href"] == "two.html" and page.p.a.text == "Two"
    assert 'location.replace("two.html" + location.hash)' in page.script.text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("chapters/one#a chapters/one#lost", "chapters/one#a leads to #lost, which is not there"),
        ("chapters/one#a chapters/lost#a", "chapters/one#a leads to a page that is not there"),
        ("chapters/old chapters/lost", "chapters/old leads to a page that is not there"),
        ("chapters/one chapters/two", "chapters/one is a page of the book, and would be lost"),
    ],
)
def test_a_redirect_to_what_is_not_there_is_a_warning(tmp_path, line, said):
    _, warnings = build(tmp_path, **{"chapters/moved.txt": line})
    assert said in warnings


# In a browser


@pytest.mark.browser
def test_a_link_to_a_renamed_page_keeps_its_anchor(browser, small_pages):
    (old,) = (path for path in small_pages if path.stem == "old")
    page = browser.new_page()
    page.goto(f"{old.as_uri()}#lem-two")
    page.wait_for_url("**/two.html#lem-two")
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [test_browser.WIDE, test_browser.NARROW])
def test_what_is_on_another_page_is_said_to_the_link_that_asks(visitors, width):
    visitor = visitors(width)
    page = visitor.open("chapters/rotation_in_two_dimensions")
    line = page.locator("p#thm-both-parts")
    assert not line.is_visible()
    page.goto(f"{page.url}#thm-both-parts")
    assert line.is_visible() and line.bounding_box()["y"] < 844
    line.locator("a").click()
    page.wait_for_url("**/why_rotation.html#thm-both-parts")
    assert visitor.faults == []


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
