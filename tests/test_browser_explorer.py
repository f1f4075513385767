"""Use the explorer on its built page, as a reader would."""

import math
import re

import pytest
from test_browser import NARROW, WIDE, browser, visitors  # noqa: F401 (fixtures)
from test_explorer import close, computed, stored_figure

from rope.book.figures.explorer import SCRIPTS, STATIC

pytestmark = pytest.mark.browser

PAGE = "chapters/explorer"
OPENED = {"head": 0, "query": 15, "key": 14, "fast": 0, "slow": 8}
MOVED = {"head": 3, "query": 29, "key": 20, "distance": 724, "fast": 3, "slow": 31}
DRAWN = """() => {
    const all = (what) => [...document.querySelectorAll('.rope-explorer ' + what)];
    const of = (node, ...names) => names.map((name) => Number(node.getAttribute(name)));
    const faces = all('.face'); // of the two large dials and of all
    return {
        hands: faces.map((face) => of(face.querySelector('.hand'), 'x2', 'y2')),
        unseen: faces.map((face) => face.querySelector('.unseen') !== null),
        shades: all('.text span').map((node) => Number(node.style.getPropertyValue('--weight'))),
        shares: all('.dials .value').map((node) => Number(node.innerText.replace('\u2212', '-'))),
    };
}"""


def control(page, name):
    return page.locator(f'.rope-explorer :is(input, select)[name="{name}"]')


def choose(page, state):
    """Set a state with the controls."""
    control(page, "head").select_option(str(state["head"]))
    for name in ("query", "key"):
        control(page, name).fill(str(state[name]))
    control(page, "distance").fill(str(round(64 + 32 * math.log2(state["distance"] / 64))))
    for name in ("fast", "slow"):
        page.locator(".rope-explorer .dials button").nth(state[name]).click()


def places(page):
    """Return the chosen query, the chosen key and the distance."""
    shown = page.locator(".controls span.value").all_inner_texts()
    return tuple(int(value.split(",")[0]) for value in shown)


def check(page, state):
    """Compare what the page shows in a state with what the package computes."""
    state = {"distance": state["query"] - state["key"]} | state
    expected, shown = computed(state), page.evaluate(DRAWN)
    readout = page.locator(".rope-explorer .readout").inner_text().replace("\u2212", "-")
    score, weight = re.search(r"score (\S+), weight (\S+)%", readout).groups()
    close(float(score), expected["score"], 0.0501)
    close(float(weight), 100 * expected["weights"][state["key"]], 0.501)
    words, best = stored_figure()[1]["words"], expected["weights"].topk(min(3, state["query"] + 1))
    reads = re.findall(r"(\S+)% ‘(.*?)’ \((\d+)\)", readout)
    assert [(word, int(i)) for _, word, i in reads] == [(words[i].strip(), i) for i in best.indices]
    close([float(share) for share, *_ in reads], 100 * best.values, 0.501)
    planes = [state["fast"], state["slow"], *range(32)]
    angles = [math.atan2(-y, x) for x, y in shown["hands"]]  # y grows downward
    close(angles, expected["hands"][planes].angle(), 1e-8)
    close(shown["shares"], expected["hands"].real, 0.0501)
    assert shown["unseen"] == expected["new"][planes].tolist()
    close(shown["shades"][: state["query"] + 1], expected["weights"].sqrt(), 6e-4)


def test_the_chapter_stores_the_present_scripts():
    page, _ = stored_figure()
    for name in ("explorer.css", *SCRIPTS):
        assert (STATIC / name).read_text(encoding="utf-8") in page, f"{name}: run `make execute`"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_it_shows_what_the_package_computes_and_fits(visitors, width):  # noqa: F811
    """Check that guess, dials, text, and controls fit into the window, with room for fingers."""
    visitor = visitors(width)
    page = visitor.open(PAGE)
    check(page, OPENED)
    choose(page, MOVED)
    check(page, MOVED)
    page.locator(".back").click()
    check(page, OPENED)
    for name, last in (("key", 0), ("distance", 1), ("distance", 1)):
        page.locator(f'label:has(input[name="{name}"]) button').nth(last).click()
    assert places(page) == (15, 13, 4)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.locator(".guess .options button").first.click()
    box, end = (
        page.locator(f".rope-explorer {part}").bounding_box() for part in (".guess", ".back")
    )
    assert end["y"] + end["height"] - box["y"] < 780
    small = page.evaluate("""() => [...document.querySelectorAll(
        '.panel :is(button, select, input[type=range], .text span)')]
        .map((node) => [node.outerHTML.slice(0, 80), node.getBoundingClientRect()])
        .filter(([, box]) => box.width < 23.99 || box.height < 23.99)""")
    assert small == [] and visitor.faults == []


def test_a_key_is_chosen_in_the_text_and_by_the_head(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    words = page.locator(".rope-explorer .text span")
    words.nth(3).click()
    assert places(page) == (15, 3, 12)
    words.nth(25).click()  # a later word becomes the query, and the head reads its favorite key
    assert places(page) == (25, 24, 1)
    control(page, "head").select_option("3")
    assert places(page) == (25, 5, 20)


def test_guesses_come_before_answers(visitors):  # noqa: F811
    """Check the questions by keyboard: with reduced motion, answers appear at once."""
    visitor = visitors(WIDE)
    page = visitor.open(PAGE)
    box = page.locator(".rope-explorer .guess")
    box.locator(".options button").first.focus()
    for question in stored_figure()[1]["questions"]:
        answer = re.sub("<.*?>", "", question["answer"])
        assert answer[:20] not in box.inner_text()
        check(page, OPENED | question["before"])
        for _ in range((question["right"] + 1) % len(question["options"])):  # from the first option
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        check(page, OPENED | question["after"])
        assert f"No: {question['options'][question['right']]}." in box.inner_text()
        assert answer in box.inner_text()
        changes = box.locator(".changes").inner_text()
        page.keyboard.press("Enter")  # go on to the next guess, which has the focus
    assert "planes at new angles: 0 → 10." in changes
    box.locator(".options button").first.click()
    assert "Correct: plane 0." in box.inner_text()
    assert visitor.faults == []


def test_an_answer_plays_until_something_is_moved(visitors):  # noqa: F811
    """Check that the hands turn from the old state to the new state in a second and a half."""
    page = visitors(WIDE, reduced_motion="no-preference").open(PAGE)
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    question, guess = stored_figure()[1]["questions"][0], page.locator(".guess .options button")

    def angle():
        x, y = page.evaluate(DRAWN)["hands"][0]
        return math.atan2(-y, x)

    before = angle()
    guess.first.click()
    page.clock.run_for(750)
    close(angle(), before - 1.5, 0.04)  # the hand turns by 3 radians, 0.032 per frame
    control(page, "distance").fill("3")
    page.clock.run_for(800)
    check(page, OPENED | question["after"] | {"distance": 3})
