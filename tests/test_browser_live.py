"""Run cells in the built pages, in a real browser from file:// without a network.

Python takes seconds to start, so the tests for a page share one window and its Python process.
"""

import contextlib
import json
from pathlib import Path

import pytest
from conftest import give_up
from test_browser import HTML, NARROW, WIDE, Visitor, browser  # noqa: F401

from rope.book.live.__main__ import UNAVAILABLE, main

pytestmark = pytest.mark.browser

PAGE = "chapters/eulers_formula"
BUILD = "chapters/build_your_own"
LIMIT = 600_000  # milliseconds; only a state that never comes takes that long
ENDED = "bar => '✓✗■'.includes(bar.querySelector('[role=status]').textContent[0] || 'x')"
# Restore every cell to the book's code, unfold it, and open the judged cells for editing.
FRESH = """() => {
    const click = (text) => document.querySelectorAll('.rope-live button').forEach((button) => {
        if (button.textContent === text && !button.hidden) button.click();
    });
    click('Stop');
    click('Reset');
    click('Done');
    document.querySelectorAll('.rope-live:has(.rope-judge-marks) button').forEach((button) => {
        if (button.textContent === 'Edit') button.click();
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
    """Return a function that opens one window per page and width, with a clock to advance."""
    visitors = {}

    def window(name, width):
        if (name, width) not in visitors:
            visitors[name, width] = visitor = Visitor(browser, width)
            visitor.page.clock.install()
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


def asks(page):
    """Return True if the page asks for confirmation before the reader leaves it."""
    return page.evaluate("!dispatchEvent(new Event('beforeunload', { cancelable: true }))")


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
    if code_of(bar).get_attribute("contenteditable") != "plaintext-only":
        press(bar, "Edit")
    before = code_of(bar).inner_text()
    assert old in before
    code_of(bar).fill(before.replace(old, new, 1))


def test_a_reader_without_a_mouse_on_a_phone(visit):
    page = visit(width=NARROW)
    loaded = page.evaluate("[...document.scripts].map((one) => one.src)")
    names = [Path(name).name for name in loaded if "/_static/live/" in name]
    assert names == ["python.js", "buttons.js"], "Python must not load before a click"

    bar = bars(page).first
    code_of(bar).evaluate("pre => (pre.tabIndex = 0)")
    code_of(bar).focus()
    for _ in range(4):  # skip the copy button
        if page.evaluate("document.activeElement.textContent") == "Run":
            break
        page.keyboard.press("Tab")
    assert "The first click starts Python" in page.evaluate("document.activeElement.title")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    assert result(bar)[0] == "✓ ran, nothing to print, as in the book"
    assert page.evaluate("document.activeElement.textContent") == "Run"

    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    editor = page.locator(".rope-live-editor")
    assert editor.evaluate("node => node === document.activeElement")
    size = editor.evaluate("node => getComputedStyle(node).fontSize")
    assert size == "16px", "iPhones zoom in when smaller text gets the focus"
    editor.fill("1 / 0")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".rope-live-error")
    wide = "document.documentElement.scrollWidth - window.innerWidth"
    assert page.evaluate(wide) == 0
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "BUTTON", "Tab must leave the editor"
    code_of(bar).focus()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == "Edit" and not editor.count()
    target = (
        bar.locator("xpath=..").locator("button.copybtn").get_attribute("data-clipboard-target")
    )
    assert page.locator(target).inner_text() == "1 / 0", "the copy button must copy the edited code"
    heights = bar.locator("button:visible").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().height)"
    )
    assert min(heights) >= 39.5, "buttons must be large enough for a finger"


def test_planted_errors_turn_red_and_a_cell_can_be_stopped(visit):
    stored = "(-6+17j): length 18.0278, angle 1.9101"
    page = visit()
    first, second = bars(page).nth(0), bars(page).nth(1)
    change = """(change) => {
        const cell = ropeLive.PAGE.cells.find((one) => one.stored?.includes(change[0]));
        cell.stored = cell.stored.replace(...change);
    }"""
    wrong = stored.replace("18.0278", "18.0279")
    page.evaluate(change, [stored, wrong])
    press(second, "Run")
    status, output = result(second)
    page.evaluate(change, [wrong, stored])
    assert status.startswith("✗ not as printed")
    assert output.splitlines()[-2:] == ["− " + wrong, "+ " + stored]
    assert second.get_by_role("status").get_attribute("data-kind") == "wrong"  # shown in red
    write(first, "a * c - b * d", "a * c + b * d")
    press(first, "Run")
    status, output = result(first)
    assert status == "✗ the cell raises an exception"
    assert "NotEqual: SymPy can't reduce left - right to 0; what remains is -2*b*d (line" in output
    press(first, "Reset")
    assert first.get_by_role("status").inner_text() == ""

    write(second, "import cmath", "while True: pass\nimport cmath")
    press(second, "Run")
    press(first, "Run")  # it waits for the endless cell
    press(second, "Stop")
    assert result(second)[0] == result(first)[0] == "■ stopped"
    press(second, "Reset")
    press(second, "Run")
    assert result(second)[0] == "✓ as printed"


def test_the_browser_asks_before_it_forgets_an_edit(visit):
    page = visit()
    assert not asks(page)
    write(bars(page).first, "(c + sp.I * d)", "(c + 2 * sp.I * d)")
    assert asks(page)
    press(bars(page).first, "Reset")
    assert not asks(page)


def test_an_edit_above_holds_below(visit):
    """Check that a cell runs the lines it needs from cells above that have not been run."""
    page = visit()
    all_bars = bars(page)
    write(all_bars.first, "(c + sp.I * d)", "(c + 2 * sp.I * d)")
    check = all_bars.nth(2)
    assert "prove_equal(real**2" in check.locator("xpath=..").inner_text()
    press(check, "Run")
    status, output = result(check)
    assert status.startswith("✗") and "NotEqual" in output, (status, output)
    press(all_bars.first, "Reset")
    assert check.get_by_role("status").inner_text() == ""
    press(check, "Run")
    assert result(check)[0] == "✓ ran, nothing to print, as in the book"
    press(check, "Edit")
    code_of(check).fill("# nothing is proved")
    press(check, "Run")
    assert result(check)[0] == "✓ ran without an exception"


def test_an_edit_while_a_cell_runs_outdates_it(visit):
    page = visit()
    first = bars(page).first
    write(first, "(c + sp.I * d)", "(c + sp.I * d)  # again")
    first.evaluate("""(bar) => { // before Python can answer
        const [run, , reset] = bar.querySelectorAll('button');
        run.click();
        reset.click();
    }""")
    first.get_by_role("status").filter(has_text="edited meanwhile").wait_for(timeout=LIMIT)
    press(first, "Run")
    assert result(first)[0] == "✓ ran, nothing to print, as in the book"


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
    all_bars = page.locator(".rope-live:not(:has(.rope-judge-marks))").all()
    for bar in reversed(all_bars):
        press(bar, "Run")
    results = [result(bar) for bar in all_bars]
    assert [result for result in results if not result[0].startswith("✓")] == []


TURNED = """def rotate(x, y, angle):
    import cmath
    return complex(x, y) * cmath.exp({sign}1j * angle)

judge(1, rotate)"""
RIGHT = TURNED.format(sign="")
SCORED = """def score(q, k, m, n, theta):
    from cmath import exp
    return (complex(*q) * complex(*k).conjugate() * exp(1j * (m - n) * theta)).real

judge(2, score)"""
CALLING = """def score(q, k, m, n, theta):
    return (rotate(*q, m * theta) * rotate(*k, n * theta).conjugate()).real

judge(2, score)"""
KEY = "rope: build it yourself, step "


def step(page, number):
    """Return the button bar of a judged step."""
    return page.locator(".rope-live:has(.rope-judge-marks)").nth(number - 1)


def fill_in(page, code, number=1):
    """Write an answer into a step's cell and return its button bar."""
    bar = step(page, number)
    code_of(bar).fill(code)
    return bar


def marks_of(bar):
    return bar.locator(".rope-judge-marks").inner_text()


def kept(page, number=1):
    """Return what the browser has stored for a step."""
    return json.loads(page.evaluate("key => localStorage.getItem(key)", f"{KEY}{number}"))


def answer(page, code, number=1):
    """Write an answer to a step and run it; return the status, the output and the marks."""
    press(bar := fill_in(page, code, number), "Run")
    return *result(bar), marks_of(bar)


def test_an_answer_is_judged_in_the_page(visit):
    """Check the verdict and its reason, and that each step's code and mark have their own key."""
    page = visit(BUILD)
    assert page.locator(".rope-live-editor").count() == 3, "steps 1 to 3 must be open for editing"
    solution = page.locator(".solution.dropdown").first
    solution.evaluate("node => node.classList.add('toggle-hidden')")
    status, output, marks = answer(page, TURNED.format(sign="-"))
    assert status.startswith("✗ Step 1: the pair turns clockwise")
    assert "rotate(1, 0, 1.5708) gives 0 - 1i; it must give (0, 1)." in output
    assert 'See "Rotation in two dimensions".' in output
    chapter = page.locator(".rope-live-output a").get_attribute("href")
    assert chapter == "rotation_in_two_dimensions.html"
    assert "✓" not in marks
    assert "toggle-hidden" in solution.get_attribute("class")
    status, _, marks = answer(page, RIGHT)
    assert status.startswith("✓ Step 1") and marks.startswith("1 ✓  2 ·")
    assert "toggle-hidden" not in solution.get_attribute("class"), (
        "the book's solution must be unfolded"
    )
    fill_in(page, SCORED, 2)
    assert (kept(page)["code"], kept(page)["right"]) == (RIGHT, True)
    assert (kept(page, 2)["code"], kept(page, 2)["right"]) == (SCORED, False)
    assert marks_of(step(page, 3)).startswith("1 ✓  2 ·")
    assert answer(page, CALLING, 2)[0].startswith("✓ Step 2"), (
        "step 2 must use the reader's own rotate"
    )
    press(step(page, 1), "Reset")
    assert marks_of(step(page, 3)).startswith("1 ·") and "code" not in kept(page)
    status, _, _ = answer(page, CALLING, 2)
    assert status.startswith("✗ Step 2: it calls rotate, and step 1 is not right yet"), status


def test_what_cannot_be_judged_is_said(visit, subtests):
    page = visit(BUILD)
    for body, said_of_it in [
        ("return (x", "✗ the cell raises"),
        ("return 1 / 0", "✗ Step 1: it raises Zero"),
        ("return 1e999 * x, y", "✗ Step 1: "),
    ]:
        with subtests.test(body=body):
            code = f"def rotate(x, y, angle):\n    {body}\njudge(1, rotate)"
            assert answer(page, code)[0].startswith(said_of_it)
    assert answer(page, RIGHT)[0].startswith("✓ Step 1"), "Python must still work"


def test_an_answer_without_end_is_ended(visit):
    """Check that an answer's time limit starts when it runs; a waiting answer keeps its mark."""
    page = visit(BUILD)
    assert answer(page, SCORED, 2)[2].startswith("1 ·  2 ✓")
    first, second = fill_in(page, f"while True: pass\n{RIGHT}"), step(page, 2)
    press(first, "Run")
    press(second, "Run")
    first.locator("[role=status][data-kind=limited]").wait_for(timeout=LIMIT)
    page.clock.fast_forward(10_000)
    assert result(first)[0].startswith("✗ Step 1: no end after 10 s")
    assert result(second)[0] == "■ stopped"
    assert marks_of(second).startswith("1 ·  2 ✓")
    press(first, "Run")
    press(second, "Run")
    first.locator("[data-kind=limited]").wait_for(timeout=LIMIT)
    assert second.locator("[data-kind=limited]").count() == 0, (
        "a waiting answer must not start its time limit"
    )
    press(first, "Stop")
    assert answer(page, RIGHT)[0].startswith("✓ Step 1"), "Python must still work"


def test_an_answer_may_print(visit):
    """Check that the verdict is found in the output and the reader's own output follows it."""
    page = visit(BUILD)
    printing = RIGHT.replace("    return", "    print('x\\n  y')\n    return")
    status, output, marks = answer(page, printing)
    assert status.startswith("✓ Step 1: right. Tried: rotate on") and marks.startswith("1 ✓")
    assert output.startswith("Your code has printed:\nx\n  y\nx\n"), (
        "the reader's output must stay as printed"
    )
    assert "Step" not in output and "2 ·" not in output
    printing = TURNED.format(sign="-").replace("    return", "    print(x, end=' ')\n    return")
    status, output, marks = answer(page, printing + "\nprint('end')")
    assert status.startswith("✗ Step 1: the pair turns clockwise") and marks.startswith("1 ·")
    starts = ["rotate(1", 'See "Rot', "Your cod", "1.0 -1.0", "end"]
    assert [line[:8] for line in output.splitlines()] == starts
    status, _, marks = answer(page, SCORED)
    assert status == "✗ Step 1: the cell must end with judge(1, rotate)"
    assert marks.startswith("1 ·"), "judging step 2 must not mark step 1"


def test_a_mark_stands_beside_the_code_that_was_judged(visit):
    """Check that a mark disappears after an edit, or if the same code now raises an exception."""
    page = visit(BUILD)
    assert answer(page, RIGHT)[2].startswith("1 ✓")
    bar = fill_in(page, RIGHT + "  # again")
    assert marks_of(bar).startswith("1 ·") and kept(page)["right"] is False
    assert answer(page, "assert cos(0) == 1\n" + RIGHT)[2].startswith("1 ✓")
    write(bars(page).first, "import cos, sin", "import sin as cos, sin")
    press(bar, "Run")
    assert result(bar)[0].startswith("✗ the cell raises")
    assert marks_of(bar).startswith("1 ·")


RESTORED = """([key, content]) => {
    localStorage.setItem(key, content);
    const data = { judged: 1, source: 'the book' };
    const bar = document.createElement('div');
    ropeJudge.equip(data, bar);
    return [data.edited ?? null, bar.textContent.split('  ')[0]];
}"""
KEPT = '{"code": "mine", "right": true, "source": %s}'


def test_what_was_written_comes_back_and_nothing_else(visit, subtests):
    """Check that stored values from another page, a hand edit or an older edition are ignored."""
    page = visit(BUILD)
    older = [KEPT % source for source in ("7", '"an older book"', "null")]
    for content in (*older, "5", '{"1":7}', '"abc"', "null", "no JSON"):
        with subtests.test(content=content):
            assert page.evaluate(RESTORED, [KEY + "1", content]) == [None, "1 ·"]
    assert page.evaluate(RESTORED, [KEY + "1", KEPT % '"the book"']) == ["mine", "1 ✓"]
    fill_in(page, RIGHT)  # so that the next test starts from a fresh page


def test_a_browser_may_give_no_storage(visit):
    """Check that the page asks before it loses an answer, until one can be stored again."""
    page = visit(BUILD)
    page.evaluate("""() => {
        window.own = Storage.prototype.setItem;
        Storage.prototype.setItem = (key) => {
            if (key.startsWith('rope: ')) throw new Error('no storage');
        };
    }""")
    assert answer(page, RIGHT)[2].startswith("1 ✓")
    assert asks(page)
    page.evaluate("() => (Storage.prototype.setItem = own)")
    fill_in(page, RIGHT + "  # kept")
    assert not asks(page)
