"""Use the explorer on its built page, as a reader would."""

import math
import re

import pytest
from test_browser import NARROW, WIDE, browser, visitors  # noqa: F401 (fixtures)
from test_explorer import START, close, computed, stored_figure

from rope.book.figures.explorer import SCRIPTS, STATIC

pytestmark = pytest.mark.browser

PAGE = "chapters/explorer"
OPENED = START | {"layout": 0, "fast": 0, "slow": 12}
MOVED = {"layer": 2, "head": 0, "query": 118, "key": 115, "distance": 500, "shift": 17}
MOVED |= {"stretch": 2, "layout": 1, "fast": 3, "slow": 15}
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


def slider(page, name):
    return page.locator(f'.rope-explorer input[name="{name}"]')


def choose(page, state):
    """Set a state with the controls."""
    page.locator(".rope-explorer details").evaluate("node => node.open = true")
    page.get_by_label(f"layer {state['layer']}, head {state['head']}", exact=True).click()
    for name in ("query", "key", "shift", "distance"):
        slider(page, name).fill(str(state[name]))
    for name in ("stretch", "layout"):
        page.locator(f'select[name="{name}"]').select_option(str(state[name]))
    for name in ("fast", "slow"):
        page.locator(".rope-explorer .dials button").nth(state[name]).click()


def places(page):
    """Return the chosen query, the chosen key and the distance."""
    return tuple(int(slider(page, name).input_value()) for name in ("query", "key", "distance"))


def check(page, state):
    """Compare what the page shows in a state with what the package computes."""
    expected, shown = computed(state), page.evaluate(DRAWN)
    readout = page.locator(".rope-explorer .readout").inner_text().replace("\u2212", "-")
    score, weight = re.search(r"score (\S+) = .* weight (\S+)%", readout).groups()
    close(float(score), expected["score"], 0.00501)
    close(float(weight), 100 * expected["weights"][state["key"]], 0.0501)
    assert f"position {expected['m']}, key" in readout
    assert f"at {expected['n']}, distance {state['distance']}" in readout
    chosen = [state["fast"], state["slow"]]
    planes = [*chosen, *range(16)]
    angles = [math.atan2(-y, x) for x, y in shown["hands"]]  # y grows downward
    close(angles, expected["hands"][planes].angle())
    close(shown["shares"], expected["hands"].real, 0.00501)
    assert shown["unseen"] == expected["new"][planes].tolist()
    close(shown["shades"][: state["query"] + 1], expected["weights"].sqrt(), 6e-4)
    vectors = expected["rotated"][state["layout"]]
    heights = [height if y < 34 else -height for y, height in shown["bars"]]  # 34 is the zero line
    close(heights, (28 * vectors / vectors.abs().amax(dim=-1, keepdim=True)).flatten())
    plane_of = [i // 2 if state["layout"] else i % 16 for i in range(32)]
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
    slider(page, "shift").fill("731")
    page.locator('select[name="layout"]').select_option("1")
    assert dials.inner_html() == before, "a shift or another layout must not change a plane's share"
    choose(page, MOVED)
    check(page, MOVED)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.locator(".back").click()
    check(page, OPENED)
    assert visitor.faults == []


def test_hovering_previews_a_key_and_a_click_selects_it(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    away, characters = (page.locator(f".rope-explorer {what}") for what in (".guess", ".text span"))
    characters.nth(38).hover()
    assert places(page) == (43, 38, 5)
    slider(page, "shift").press("ArrowRight")  # the preview continues
    away.hover()
    assert places(page) == (43, 42, 1)
    characters.nth(38).click()
    away.hover()
    assert places(page) == (43, 38, 5)
    characters.nth(90).click()  # a later character cannot be the key
    assert places(page) == (43, 38, 5)
    page.get_by_label("query", exact=True).check()
    characters.nth(20).click()
    assert places(page) == (20, 20, 0)
    characters.nth(60).click()  # the key chosen before is restored
    assert places(page) == (60, 38, 22)


def test_the_key_is_dragged_on_the_curve_and_on_its_dots(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    page.locator("div.near").scroll_into_view_if_needed()
    ticks, dots = page.locator("div.curve .tick[text-anchor=middle]"), page.locator(".near .one")

    def move_to(node):
        box = node.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 20)

    for distance in (16, 512):
        move_to(ticks.get_by_text(str(distance), exact=True))
        page.mouse.down()
        assert places(page) == (43, 42, distance)
        page.mouse.up()
    move_to(dots.nth(20))  # the dots are at distances 480 to 512
    page.mouse.down()
    assert places(page) == (43, 42, 500)
    move_to(dots.nth(3))
    assert places(page) == (43, 42, 483), "the dots must not move during a drag"
    page.mouse.up()
    here = page.locator(".near .here").get_attribute("cx")
    assert here == dots.nth(16).get_attribute("cx"), "after the drag, the key must be in the middle"


def test_a_finger_has_room(visitors):  # noqa: F811
    """Check that targets are at least 24 pixels, sliders have buttons and the heads are folded."""
    page = visitors(NARROW).open(PAGE)
    assert not page.locator(".heads").is_visible()
    page.locator(".rope-explorer summary").click()
    assert page.locator(".heads").is_visible()
    for name, last in (("query", 0), ("distance", 1), ("distance", 1)):
        page.locator(f'label:has(input[name="{name}"]) button').nth(last).click()
    assert places(page) == (42, 42, 2)
    small = page.evaluate("""() => [...document.querySelectorAll(
        '.panel :is(button, select, input[type=range], .text span, summary, .pick label)')]
        .filter((node) => node.checkVisibility())
        .map((node) => [node.outerHTML.slice(0, 80), node.getBoundingClientRect()])
        .filter(([, box]) => box.width < 23.99 || box.height < 23.99)""")
    assert small == []


def edges(page, what):
    """Return the top and bottom screen coordinates of a part of the figure."""
    box = page.locator(f".rope-explorer {what}").first.bounding_box()
    return box["y"], box["y"] + box["height"]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_sliders_and_the_score_stay_visible(visitors, width):  # noqa: F811
    page = visitors(width).open(PAGE)
    for moves, what in enumerate((".guess", ".text", ".dials", "div.curve", ".vectors"), 1):
        page.locator(f".rope-explorer {what}").evaluate("node => node.scrollIntoView()")
        slider(page, "query").press("ArrowLeft")
        assert places(page)[0] == 43 - moves
        top, bottom = edges(page, ".strip")
        readout, moved = edges(page, ".readout"), edges(page, 'input[name="query"]')
        assert top <= readout[0] < readout[1] <= moved[0] < moved[1] <= bottom <= 844
        assert 0 < edges(page, what)[0] < top - 80 and bottom - top <= 844 / 3


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_guesses_come_before_answers_by_keyboard(visitors, width):  # noqa: F811
    """Check that, with reduced motion, answers appear at once and are visible with their dials."""
    visitor = visitors(width)
    page = visitor.open(PAGE)
    box = page.locator(".rope-explorer .guess")
    box.locator(".options button").first.focus()
    for question in stored_figure()[1]["questions"]:
        assert question["answer"][:20] not in box.inner_text()
        check(page, OPENED | question["before"])
        for _ in range((question["right"] + 1) % len(question["options"])):  # from the first option
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        check(page, OPENED | question["after"])
        assert f"No: {question['options'][question['right']]}." in box.inner_text()
        assert question["answer"] in box.inner_text()
        answer, faces, strip = (edges(page, what) for what in (".answer", ".two .face", ".strip"))
        assert 0 < answer[0] < answer[1] <= strip[0] and 0 < faces[0] < faces[1] <= strip[0]
        changes = box.locator(".changes").inner_text()
        page.keyboard.press("Enter")  # go on to the next guess, which has the focus
        assert 0 < edges(page, ".guess")[0] < edges(page, ".guess")[1] < strip[0]
    assert "planes at new angles: 9 → 8." in changes
    box.locator(".options button").nth(3).click()
    assert "Correct: none." in box.inner_text()
    assert visitor.faults == []


def test_an_answer_plays_until_something_is_moved(visitors):  # noqa: F811
    """Check that the hands turn from the old state to the new state in a second and a half."""
    page = visitors(WIDE, reduced_motion="no-preference").open(PAGE)
    drag, stretch = stored_figure()[1]["questions"][1:]
    states = (computed(START | drag[when]) for when in ("before", "after"))
    before, after = (state["hands"][0].angle() for state in states)
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    guess, again = page.locator(".guess .options button").first, page.locator(".answer button")

    def cosine():
        return page.evaluate(DRAWN)["hands"][0][0] / 62

    guess.click()
    again.click()
    guess.click()
    close(cosine(), before.cos())
    page.clock.run_for(750)
    close(cosine(), ((before + after) / 2).cos(), 0.04)  # the hand turns 0.032 radians per frame
    page.clock.run_for(800)
    close(cosine(), after.cos())
    again.click()
    guess.click()
    slider(page, "distance").fill("3")
    page.clock.run_for(800)
    check(page, OPENED | stretch["after"] | {"distance": 3})


def test_arrow_keys_move_within_a_group_of_buttons(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    buttons = page.locator(".rope-explorer .heads button")
    buttons.first.focus()
    for key, layer, head in (("ArrowLeft", 0, 0), ("ArrowRight", 0, 1), ("ArrowDown", 1, 1)):
        page.keyboard.press(key)
        label = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert label == f"layer {layer}, head {head}"
    assert [button.get_attribute("tabindex") for button in buttons.all()].index("0") == 5
    page.keyboard.press("Enter")
    assert "layer 1, head 1:" in page.locator(".rope-explorer .where").inner_text()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.heads')") is None
