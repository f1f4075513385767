"""Run cells in the built pages, in a real browser from file:// without a network.

Python takes seconds to start, so the tests for a page share one window and its Python process.
"""

import contextlib
import json
from pathlib import Path

import pytest
from conftest import give_up
from playwright.sync_api import expect
from test_browser import HTML, NARROW, WIDE, Visitor, browser  # noqa: F401

from rope.book.live.__main__ import UNAVAILABLE, main

pytestmark = pytest.mark.browser

PAGE = "chapters/eulers_formula"
BUILD = "chapters/build_your_own"
LIMIT = 600_000  # milliseconds; only a state that never comes takes that long
ENDED = "bar => '✓✗■'.includes(bar.querySelector('[role=status]').textContent[0] || 'x')"
# Restore every cell to the book's code, and unfold it.
FRESH = """() => {
    for (const text of ['Stop', 'Reset'])
        document.querySelectorAll('.rope-live button').forEach((button) => {
            if (button.textContent === text && !button.hidden) button.click();
        });
    document.querySelectorAll('details').forEach((one) => (one.open = true));
    document.querySelectorAll('.toggle-hidden').forEach((one) =>
        one.classList.remove('toggle-hidden'));
}"""


@pytest.fixture(scope="module", autouse=True)
def live(browser):  # noqa: F811
    """Add the buttons to the built pages if the last build removed them."""
    if 'id="rope-live"' in (HTML / f"{PAGE}.html").read_text(encoding="utf-8"):
        return
    with contextlib.chdir(HTML.parents[1]):
        status = main()
    if status == UNAVAILABLE:
        give_up("npm is missing or cannot reach a registry")
    assert status == 0


@pytest.fixture(scope="module")
def windows(browser):  # noqa: F811
    """Return a function that opens one window per page and width."""
    visitors = {}

    def window(name, width):
        if (name, width) not in visitors:
            visitors[name, width] = visitor = Visitor(browser, width)
            visitor.open(name)
        return visitors[name, width]

    yield window
    for visitor in visitors.values():
        visitor.context.close()


@pytest.fixture
def visit(windows):
    """Return a function that shows a page as it was built; fail on console errors afterward."""
    visitors = []

    def visited(name=PAGE, width=WIDE):
        visitors.append(visitor := windows(name, width))
        visitor.page.evaluate(FRESH)
        return visitor.page

    yield visited
    assert [fault for visitor in visitors for fault in visitor.faults] == []


def bars(page):
    """Return the button bars of all cells."""
    return page.locator(".rope-live")


def press(bar, name):
    bar.get_by_role("button", name=name, exact=True).click()


def result(bar):
    """Wait until a cell has ended; return its status text and its output."""
    page = bar.page
    page.wait_for_function(ENDED, arg=bar.element_handle(), timeout=LIMIT)
    output = bar.locator("xpath=following-sibling::pre")
    return bar.get_by_role("status").inner_text(), output.text_content() or ""


def code_of(bar):
    """Return the element with a cell's code, which also serves as the editor."""
    return bar.locator("xpath=..").locator("pre").first


def write(bar, old, new):
    """Edit a cell: replace `old` with `new`."""
    before = code_of(bar).inner_text()
    assert old in before
    code_of(bar).fill(before.replace(old, new, 1))


def test_a_reader_without_a_mouse_on_a_phone(visit):
    page = visit(width=NARROW)
    loaded = page.evaluate("[...document.scripts].map((one) => one.src)")
    names = [Path(name).name for name in loaded if "/_static/live/" in name]
    assert names == ["buttons.js"], "Python must not load before a click"

    bar = bars(page).first
    editor = code_of(bar)
    expect(editor).to_have_accessible_name("The code of this cell")
    editor.focus()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    for _ in range(4):  # skip the copy button
        if page.evaluate("document.activeElement.textContent") == "Run":
            break
        page.keyboard.press("Tab")
    assert "The first click takes" in page.evaluate("document.activeElement.title")
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    assert result(bar)[0] == "✓ ran without an exception"
    assert page.evaluate("document.activeElement.textContent") == "Run"

    editor.fill("1 / 0")
    editor.focus()
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Control+Enter")
    status, output = result(bar)
    assert status == "✗ the cell raises an exception" and "ZeroDivisionError" in output
    wide = "document.documentElement.scrollWidth - window.innerWidth"
    assert page.evaluate(wide) == 0
    copy = bar.locator("xpath=..").locator("button.copybtn")
    target = copy.get_attribute("data-clipboard-target")
    assert page.locator(target).inner_text() == "1 / 0", "the copy button must copy the edited code"
    heights = bar.locator("button:visible").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().height)"
    )
    assert min(heights) >= 39.5, "buttons must be large enough for a finger"


def test_planted_errors_turn_red_and_a_cell_can_be_stopped(visit):
    page = visit()
    first, second = bars(page).nth(0), bars(page).nth(1)
    write(second, "import cmath", "print('planted')\nimport cmath")
    press(second, "Run")
    status, output = result(second)
    assert status == "✗ prints something different from the book" and output.startswith("planted\n")
    assert second.get_by_role("status").get_attribute("data-kind") == "wrong"  # shown in red
    write(first, "a * c - b * d", "a * c + b * d")
    press(first, "Run")
    status, output = result(first)
    assert status == "✗ the cell raises an exception"
    assert "SymPy can't reduce left - right to 0; what remains is -2*b*d" in output
    press(first, "Reset")
    assert first.get_by_role("status").inner_text() == ""

    write(second, "import cmath", "while True: pass\nimport cmath")
    press(second, "Run")
    press(first, "Run")  # it waits for the endless cell
    press(second, "Stop")
    assert result(second)[0] == result(first)[0] == "■ stopped"
    press(second, "Run")
    press(second, "Reset")  # an edit stops Python, too
    press(second, "Run")
    assert result(second)[0] == "✓ prints what the book prints"


def test_an_edit_above_holds_below(visit):
    """Check that a cell runs after the cells above it, with their edits."""
    page = visit()
    all_bars = bars(page)
    write(all_bars.first, "(c + sp.I * d)", "(c + 2 * sp.I * d)")
    check = all_bars.nth(2)
    press(check, "Run")
    status, output = result(check)
    assert status.startswith("✗") and "NotEqual" in output, (status, output)
    press(all_bars.first, "Reset")
    assert check.get_by_role("status").inner_text() == ""
    press(check, "Run")
    assert result(check)[0] == "✓ ran without an exception"


def test_every_cell_agrees(visit):
    agree(visit, PAGE)


@pytest.mark.slow
def test_every_cell_of_the_other_pages_agrees(visit, subtests):
    for path in sorted((HTML / "chapters").glob("*.html")):
        if path.stem != "eulers_formula" and 'id="rope-live"' in path.read_text(encoding="utf-8"):
            with subtests.test(page=path.stem):
                agree(visit, f"chapters/{path.stem}")


def agree(visit, name):
    """Run all cells without a judge from last to first, because the order must not matter."""
    page = visit(name)
    judged = page.evaluate("ropeLive.PAGE.cells.filter((one) => one.stored !== undefined)")
    shown = zip(bars(page).all(), judged, strict=True)
    all_bars = [bar for bar, cell in shown if "judged" not in cell]
    for bar in reversed(all_bars):
        press(bar, "Run")
    results = [result(bar) for bar in all_bars]
    assert [result for result in results if not result[0].startswith("✓")] == []


TURNED = """def rotate(x, y, angle):
    import cmath
    return complex(x, y) * cmath.exp({sign}1j * angle)

judge(1, rotate)"""
RIGHT = TURNED.format(sign="")
CALLING = """def score(q, k, m, n, theta):
    return (rotate(*q, m * theta) * rotate(*k, n * theta).conjugate()).real

judge(2, score)"""


def step(page, number):
    """Return the button bar of a judged step."""
    return page.locator(".tag_judge .rope-live").nth(number - 1)


def answer(page, code, number=1):
    """Write an answer to a step and run it; return the status and the output."""
    bar = step(page, number)
    code_of(bar).fill(code)
    press(bar, "Run")
    return result(bar)


def test_an_answer_is_judged_in_the_page(visit):
    """Check the verdict and its reason, and that a step calls the reader's earlier functions."""
    page = visit(BUILD)
    status, output = answer(page, TURNED.format(sign="-"))
    assert status == "✗ not right yet"
    assert output.startswith("✗ Step 1: the pair turns clockwise")
    assert "rotate(1, 0, 1.5708) gives 0 - 1i; it must give (0, 1)." in output
    printing = RIGHT.replace("    return", "    print('x')\n    return")
    status, output = answer(page, printing)
    assert status == "✓ right" and output.startswith("x\n") and "\n1 ✓  2 ·" in output
    status, output = answer(page, CALLING, 2)
    assert status == "✓ right" and "\n1 ✓  2 ✓" in output, "step 2 must use the reader's own rotate"
    press(step(page, 1), "Reset")
    status, output = answer(page, CALLING, 2)
    assert "✗ Step 2: it calls rotate, and step 1 is not right yet" in output
    assert answer(page, "rotate = 1")[0] == "✗ the judge was not called"
    assert answer(page, "def rotate(")[0] == "✗ the cell raises an exception"


def test_an_answer_is_stored_and_comes_back_when_the_page_is_opened_again(visit):
    page = visit(BUILD)
    key, keep = "rope: answer to step 1", "localStorage.setItem({}, {})"
    stored = f"() => localStorage.getItem({json.dumps(key)})"
    assert answer(page, RIGHT)[0] == "✓ right"
    assert page.evaluate(stored) == RIGHT
    # Store it again before the scripts run, so that the test doesn't depend on the browser's disk.
    page.add_init_script(keep.format(json.dumps(key), json.dumps(RIGHT)))
    page.reload()
    assert code_of(step(page, 1)).inner_text() == RIGHT
    press(step(page, 1), "Reset")
    assert "..." in code_of(step(page, 1)).inner_text() and page.evaluate(stored) == ""
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error(); }; }")
    assert answer(page, RIGHT)[0] == "✓ right", "a browser may have no storage"
