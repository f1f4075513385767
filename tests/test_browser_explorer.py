"""The explorer on its built page: it shows what the package computes, whatever is chosen."""

import json
import re

import pytest
import torch
from test_browser import HTML, NARROW, WIDE, browser, visitors  # noqa: F401 (fixtures)

import rope
from rope.extensions import NTK, Linear, YaRN
from rope.figures.explorer import stored
from rope.layouts import half_to_interleaved

pytestmark = pytest.mark.browser

PAGE = "chapters/explorer"
EXTENSIONS = [None, Linear(4.0), NTK(4.0), YaRN(4.0, 128)]
START = {"layer": 1, "head": 2, "query": 43, "key": 42, "distance": None, "shift": 0}
START |= {"stretch": 0, "layout": 0}
STATES = [
    {},
    {"shift": 1000},
    {"distance": 4},
    {"distance": 511, "stretch": 2},
    {"distance": 100, "stretch": 3, "layout": 1, "shift": 17},
    {"layer": 0, "head": 1, "query": 76, "key": 74},
    {"layer": 3, "head": 3, "query": 127, "key": 0, "stretch": 1},
    {"layer": 2, "head": 0, "query": 118, "key": 115, "layout": 1},
    {"query": 0, "key": 0},
]


@pytest.fixture(scope="module")
def data():
    """What the page holds: the figure's own data."""
    page = (HTML / f"{PAGE}.html").read_text(encoding="utf-8")
    inside = page.partition('class="rope-explorer"')[2]
    return json.loads(re.search(r'"application/json">(.*?)</script>', inside, re.S)[1])


def expected(data, state):
    """The score, each plane's share and the weight, by the package, in float64."""
    layer, head, query, key = (state[name] for name in ("layer", "head", "query", "key"))
    distance = query - key if state["distance"] is None else state["distance"]
    q, k = (vectors[layer, head].double() for vectors in stored(data))  # [S, D]
    extension = EXTENSIONS[state["stretch"]]
    inv_freq = rope.inverse_frequencies(32, extension=extension)
    scale = 1.0 if extension is None else extension.attention_scaling

    def rotated(x, positions):
        tables = rope.rotary_tables(positions, inv_freq, dtype=torch.float64, scale=scale)
        return rope.rotary_embedding(x[None, None], *tables)[0, 0]

    here = torch.tensor([query + state["shift"]])
    places = here - query + torch.arange(query + 1)
    places[key] = here - distance
    q_m, k_n = rotated(q[query : query + 1], here), rotated(k[: query + 1], places)
    products = q_m * k_n / 32**0.5
    scores = products.sum(dim=-1)
    shares = products[key].view(2, 16).sum(dim=0)  # half-split
    return scores[key], shares, scores.softmax(dim=0)[key], (q_m[0], k_n[key])


def choose(page, state):
    """Set a state with the controls, as a reader does."""
    page.locator(".back").click()
    page.get_by_label(f"layer {state['layer']}, head {state['head']}", exact=True).click()
    page.locator('input[name="query"]').fill(str(state["query"]))
    page.locator('input[name="key"]').fill(str(state["key"]))
    page.locator('input[name="shift"]').fill(str(state["shift"]))
    for name in ("stretch", "layout"):
        page.locator(f'select[name="{name}"]').select_option(str(state[name]))
    if state["distance"] is not None:
        slider = page.locator('input[name="distance"]')
        slider.focus()
        page.keyboard.press("Home")
        steps = 0
        while (reached := int(slider.get_attribute("aria-valuetext"))) < state["distance"]:
            page.keyboard.press("ArrowRight")
            steps += 1
            assert steps < 200, "the slider does not move"
        state = state | {"distance": reached}
    return state


def number(text):
    return float(text.replace("\u2212", "-"))


def read(page):
    """The score, the shares and the weight that the page shows."""
    said = page.locator(".rope-explorer output.score").inner_text()
    score, weight = re.search(r"score (\S+) = .* weight (\S+)%", said).groups()
    shares = [number(text) for text in page.locator(".dials .value").all_inner_texts()]
    return number(score), shares, number(weight)


@pytest.mark.parametrize(("width", "states"), [(WIDE, STATES), (NARROW, STATES[4:6])])
def test_it_shows_what_the_package_computes(visitors, data, width, states):  # noqa: F811
    visitor = visitors(width)
    page = visitor.open(PAGE)
    for changes in states:
        state = choose(page, START | changes)
        score, shares, weight, vectors = expected(data, state)
        shown_score, shown_shares, shown_weight = read(page)
        assert abs(shown_score - score) <= 0.00501, state
        assert all(abs(a - b) <= 0.00501 for a, b in zip(shown_shares, shares, strict=True)), state
        assert abs(shown_weight - 100 * weight) <= 0.0501, state
        for box, vector in zip(page.locator(".vectors svg").all(), vectors, strict=True):
            drawn = half_to_interleaved(vector) if state["layout"] else vector
            heights = [
                float(bar.get_attribute("height"))
                * (1 if float(bar.get_attribute("y")) < 34 else -1)
                for bar in box.locator(".bar").all()
            ]
            bars = torch.tensor(heights, dtype=torch.float64)
            torch.testing.assert_close(bars, 28 * drawn / drawn.abs().max(), rtol=0, atol=1e-6)
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert over <= 0 and visitor.faults == []


def test_a_shift_and_a_layout_move_no_number(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    choose(page, START)
    before, drawn = read(page), page.locator(".dials").inner_html()
    coordinates = page.locator(".vectors").inner_html()
    page.locator('input[name="shift"]').fill("731")
    page.locator('select[name="layout"]').select_option("1")
    assert (read(page), page.locator(".dials").inner_html()) == (before, drawn)
    assert page.locator(".vectors").inner_html() != coordinates


def test_planes_that_leave_known_angles_are_named(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    outside = {0: [*range(6, 16)], 1: [], 2: [*range(6, 15)], 3: []}
    for stretch, planes in outside.items():
        choose(page, START | {"distance": 480, "stretch": stretch})
        said = page.locator(".rope-explorer .where").inner_text().partition("new angles: ")[2]
        assert [int(one) for one in said.split(", ") if one] == planes
        marks = page.locator(".dials button").evaluate_all(
            "all => all.map((one) => one.querySelector('.strange') !== null)"
        )
        assert [j for j, strange in enumerate(marks) if strange] == planes


def test_the_pointer_tries_a_key_and_a_press_keeps_it(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    choose(page, START)
    where = page.locator(".rope-explorer .where")
    key = page.locator('.rope-explorer .text [data-place="38"]')
    key.hover()
    assert "at 38, distance 5" in where.inner_text()
    page.locator(".rope-explorer .guess").hover()
    assert "at 42, distance 1" in where.inner_text()
    key.click()
    page.locator(".rope-explorer .guess").hover()
    assert "at 38, distance 5" in where.inner_text()
    page.get_by_label("query", exact=True).check()
    page.locator('.rope-explorer .text [data-place="60"]').click()
    assert "at 60, key" in where.inner_text()


def test_the_key_is_dragged_on_the_curve(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    choose(page, START)
    box = page.locator("div.curve svg").bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 80)
    page.mouse.up()
    assert "distance 512" in page.locator(".rope-explorer .where").inner_text()


def test_guesses_come_before_answers_by_keyboard(visitors, data):  # noqa: F811
    visitor = visitors(NARROW)
    page = visitor.open(PAGE)
    box = page.locator(".rope-explorer .guess")
    for question in data["questions"]:
        assert question["answer"][:20] not in box.inner_text()
        wrong = (question["right"] + 1) % 3
        box.locator(".options button").nth(wrong).focus()
        page.keyboard.press("Enter")
        assert "Not so." in box.inner_text() and question["answer"][:20] in box.inner_text()
        right = box.locator(".options .right").inner_text()
        assert right == question["options"][question["right"]]
        after = START | {"distance": None} | question["after"]
        assert abs(read(page)[0] - expected(data, after)[0]) <= 0.00501
        page.keyboard.press("Enter")  # the next guess, which has the focus
    assert "Guess 1" in box.inner_text()
    box.locator(".options button").nth(data["questions"][0]["right"]).click()
    assert "So it is." in box.inner_text()
    assert visitor.faults == []


def test_without_script_it_is_described(visitors):  # noqa: F811
    page = visitors(WIDE, java_script_enabled=False).open(PAGE, wait=False)
    text = page.locator(".rope-explorer noscript").inner_text()
    assert "needs JavaScript" in text and len(text) > 100
