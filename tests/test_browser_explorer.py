"""Use the explorer on its built page, as a reader would."""

import math
import re

import pytest
from test_browser import NARROW, WIDE, browser, visitors  # noqa: F401 (fixtures)
from test_explorer import START, close, computed, stored_figure

from rope.book.figures.explorer import SCRIPTS, STATIC

pytestmark = pytest.mark.browser

PAGE = "chapters/explorer"
OPENED = START | {"fast": 0, "slow": 25}
MOVED = {"head": 3, "query": 29, "key": 20, "shift": 17, "distance": 724, "stretch": 2}
MOVED |= {"layout": 1, "fast": 3, "slow": 31}
DRAWN = """() => {
    const all = (what) => [...document.querySelectorAll('.rope-explorer ' + what)];
    const of = (node, ...names) => names.map((name) => Number(node.getAttribute(name)));
    const faces = all('.face'); // of the two large dials and of all
    return {
        hands: faces.map((face) => of(face.querySelector('.hand'), 'x2', 'y2')),
        unseen: faces.map((face) => face.querySelector('.unseen') !== null),
        shades: all('.text span').map((node) => Number(node.style.getPropertyValue('--weight'))),
        shares: all('.dials .value').map((node) => Number(node.innerText.replace('\u2212', '-'))),
        bars: all('.vectors .bar').map((bar) => of(bar, 'y', 'height')),
        marked: all('.vectors .bar').map((bar) => bar.classList.contains('chosen')),
    };
}"""
# Returns which parts of the question, the large dials, and the text are covered, or cut off by the
# window, at one of three points.
COVERED = """() => {
    const parts = [...document.querySelectorAll('.stage :is(p, button, span, .face)')];
    return parts.filter((node) => {
        const box = node.getBoundingClientRect();
        return box.height > 0 && ![0.02, 0.5, 0.98].every((x) => {
            const top = document.elementFromPoint(box.x + x * box.width, box.y + x * box.height);
            return top !== null && top.closest('.stage') !== null;
        });
    }).map((node) => node.outerHTML);
}"""


def control(page, name):
    return page.locator(f'.rope-explorer :is(input, select)[name="{name}"]')


def choose(page, state):
    """Set a state with the controls."""
    for name in ("head", "stretch", "layout"):
        control(page, name).select_option(str(state[name]))
    for name in ("query", "key", "shift"):
        control(page, name).fill(str(state[name]))
    control(page, "distance").fill(str(round(64 + 32 * math.log2(state["distance"] / 64))))
    for name in ("fast", "slow"):
        page.locator(".rope-explorer .dials button").nth(state[name]).click()


def places(page):
    """Return the chosen query, the chosen key and the distance."""
    shown = page.locator(".sliders span.value").all_inner_texts()[:3]
    return tuple(int(value.replace(",", "")) for value in shown)


def check(page, state):
    """Compare what the page shows in a state with what the package computes."""
    state = {"distance": state["query"] - state["key"]} | state
    expected, shown = computed(state), page.evaluate(DRAWN)
    readout = page.locator(".rope-explorer .readout").inner_text().replace("\u2212", "-")
    score, weight = re.search(r"score (\S+) = .* weight (\S+)%", readout).groups()
    close(float(score), expected["score"], 0.00501)
    close(float(weight), 100 * expected["weights"][state["key"]], 0.0501)
    words, best = stored_figure()[1]["words"], expected["weights"].topk(min(3, state["query"] + 1))
    reads = re.findall(r"(\S+)% ‘(.*?)’ \((\d+)\)", readout)
    assert [(word, int(i)) for _, word, i in reads] == [(words[i].strip(), i) for i in best.indices]
    close([float(share) for share, *_ in reads], 100 * best.values, 0.0501)
    assert f"at position {expected['m']:,}, key" in readout and f"’ at {expected['n']:,}" in readout
    chosen = [state["fast"], state["slow"]]
    planes = [*chosen, *range(32)]
    angles = [math.atan2(-y, x) for x, y in shown["hands"]]  # y grows downward
    close(angles, expected["hands"][planes].angle(), 1e-8)
    close(shown["shares"], expected["hands"].real, 0.00501)
    assert shown["unseen"] == expected["new"][planes].tolist()
    close(shown["shades"][: state["query"] + 1], expected["weights"].sqrt(), 6e-4)
    vectors = expected["rotated"][state["layout"]]
    heights = [height if y < 34 else -height for y, height in shown["bars"]]  # 34 is the zero line
    close(heights, (28 * vectors / vectors.abs().amax(dim=-1, keepdim=True)).flatten())
    plane_of = [i % 32 if state["layout"] else i // 2 for i in range(64)]
    assert shown["marked"] == 2 * [plane in chosen for plane in plane_of]


def test_the_chapter_stores_the_present_scripts():
    page, _ = stored_figure()
    for name in ("explorer.css", *SCRIPTS):
        assert (STATIC / name).read_text(encoding="utf-8") in page, f"{name}: run `make execute`"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_it_shows_what_the_package_computes(visitors, width):  # noqa: F811
    visitor = visitors(width)
    page = visitor.open(PAGE)
    check(page, OPENED)
    dials = page.locator(".dials")
    before = dials.inner_html()
    control(page, "shift").fill("731")
    control(page, "layout").select_option("1")
    assert dials.inner_html() == before, "a shift or another layout must not change a plane's share"
    choose(page, MOVED)
    check(page, MOVED)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.locator(".back").click()
    check(page, OPENED)
    assert visitor.faults == []


def test_a_key_is_chosen_in_the_text_on_the_curve_and_by_the_head(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    words = page.locator(".rope-explorer .text span")
    words.nth(3).click()
    assert places(page) == (15, 3, 12)
    words.nth(25).click()  # a later word becomes the query, and the head reads its favorite key
    assert places(page) == (25, 24, 1)
    control(page, "head").select_option("3")
    assert places(page) == (25, 5, 20)
    page.locator("div.curve").scroll_into_view_if_needed()
    ticks = page.locator("div.curve .tick[text-anchor=middle]")
    for distance in (16, 16_384):
        box = ticks.get_by_text(f"{distance:,}", exact=True).bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 20)
        page.mouse.down()
        assert places(page) == (25, 5, distance)
    page.mouse.up()


def edges(page, what):
    """Return the top and bottom screen coordinates of a part of the figure."""
    box = page.locator(f".rope-explorer {what}").first.bounding_box()
    return box["y"], box["y"] + box["height"]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_sliders_stay_visible_and_fingers_have_room(visitors, width):  # noqa: F811
    """Check that the strip stays in the window, and that targets are at least 24 pixels wide."""
    page = visitors(width).open(PAGE)
    for name, last in (("key", 0), ("distance", 1), ("distance", 1)):
        page.locator(f'label:has(input[name="{name}"]) button').nth(last).click()
    assert places(page) == (15, 13, 4)
    for moves, what in enumerate((".guess", ".text", ".dials", "div.curve", ".vectors"), 1):
        page.locator(f".rope-explorer {what}").evaluate("node => node.scrollIntoView()")
        control(page, "query").press("ArrowLeft")
        assert places(page)[0] == 15 - moves
        top, bottom = edges(page, ".strip")
        readout, moved = edges(page, ".readout"), edges(page, 'input[name="query"]')
        assert top <= readout[0] < readout[1] <= moved[0] < moved[1] <= bottom <= 844
        assert 0 < edges(page, what)[0] < top - 80 and bottom - top <= 844 / 3
    assert (
        page.evaluate("""() => [...document.querySelectorAll(
        '.panel :is(button, select, input[type=range], .text span)')]
        .map((node) => [node.outerHTML.slice(0, 80), node.getBoundingClientRect()])
        .filter(([, box]) => box.width < 23.99 || box.height < 23.99)""")
        == []
    )


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_guesses_come_before_answers_and_nothing_covers_them(visitors, width):  # noqa: F811
    """Check the questions by keyboard: with reduced motion, answers appear at once."""
    visitor = visitors(width)
    page = visitor.open(PAGE)
    box = page.locator(".rope-explorer .guess")
    page.locator(".rope-explorer .stage").evaluate("node => node.scrollIntoView(false)")
    box.locator(".options button").first.focus()
    for question in stored_figure()[1]["questions"]:
        answer = re.sub("<.*?>", "", question["answer"])
        assert answer[:20] not in box.inner_text()
        assert page.evaluate(COVERED) == []
        check(page, OPENED | question["before"])
        for _ in range((question["right"] + 1) % len(question["options"])):  # from the first option
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        check(page, OPENED | question["after"])
        assert f"No: {question['options'][question['right']]}." in box.inner_text()
        assert answer in box.inner_text()
        assert page.evaluate(COVERED) == []
        changes = box.locator(".changes").inner_text()
        page.keyboard.press("Enter")  # go on to the next guess, which has the focus
    assert "planes at new angles: 10 → 9." in changes
    box.locator(".options button").nth(3).click()
    assert "Correct: none." in box.inner_text()
    assert visitor.faults == []


def test_an_answer_plays_until_something_is_moved(visitors):  # noqa: F811
    """Check that the hands turn from the old state to the new state in a second and a half."""
    page = visitors(WIDE, reduced_motion="no-preference").open(PAGE)
    shift, drag = stored_figure()[1]["questions"][:2]
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    guess, again = page.locator(".guess .options button").first, page.locator(".answer button")

    def angle():
        x, y = page.evaluate(DRAWN)["hands"][0]
        return math.atan2(-y, x)

    guess.click()
    control(page, "distance").fill("3")
    page.clock.run_for(800)
    check(page, OPENED | shift["after"] | {"distance": 3})
    again.click()
    before = angle()
    guess.click()
    page.clock.run_for(750)
    close(angle(), before - 1.5, 0.04)  # the hand turns by 3 radians, 0.032 per frame
    page.clock.run_for(800)
    check(page, OPENED | drag["after"])


def test_arrow_keys_move_within_the_small_dials(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    buttons = page.locator(".rope-explorer .dials button")
    buttons.first.focus()
    for key, plane in (("ArrowLeft", 0), ("ArrowRight", 1), ("ArrowDown", 17)):
        page.keyboard.press(key)
        label = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert label.startswith(f"plane {plane}:")
    assert [button.get_attribute("tabindex") for button in buttons.all()].index("0") == 17
    page.keyboard.press("Enter")
    assert "plane 17:" in page.locator(".rope-explorer .slow").inner_text()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.dials')") is None
