"""The explorer on its built page: it shows what the package computes, whatever is chosen."""

import json
import math
import re

import pytest
import torch
from test_browser import HTML, NARROW, WIDE, browser, visitors  # noqa: F401 (fixtures)

import rope
from rope.book.figures.explorer import stored
from rope.extensions import NTK, Linear, YaRN
from rope.layouts import half_to_interleaved

pytestmark = pytest.mark.browser

PAGE = "chapters/explorer"
EXTENSIONS = [None, Linear(4.0), NTK(4.0), YaRN(4.0, 128)]
THETA = rope.inverse_frequencies(32)
START = {"layer": 1, "head": 2, "query": 43, "key": 42, "distance": None, "shift": 0}
START |= {"stretch": 0, "layout": 0}
STATES = [
    {},
    {"shift": 1000},
    {"distance": 500, "stretch": 2},
    {"distance": 100, "stretch": 3, "layout": 1, "shift": 17},
    {"layer": 0, "head": 1, "query": 76, "key": 74},
    {"layer": 3, "head": 3, "query": 127, "key": 0, "stretch": 1},
    {"layer": 2, "head": 0, "query": 118, "key": 115, "layout": 1},
    {"query": 0, "key": 0},
]
SIZES = [(1440, 900), (NARROW, 844)]
# Everything that is drawn, as numbers.
DRAWN = """() => {
    const root = document.querySelector('.rope-explorer');
    const all = (what, where = root) => [...where.querySelectorAll(what)];
    const one = (what, where) => where.querySelector(what);
    const of = (node, ...names) => names.map((name) => Number(node.getAttribute(name)));
    const numbers = (text) => text.match(/-?[\\d.]+(e-?\\d+)?/g).map(Number);
    return {
        hands: all('.dials .hand').map((node) => of(node, 'x2', 'y2')),
        shares: all('.dials .share').map((node) => [...of(node, 'x2'), node.classList.contains('more')]),
        known: all('.dials .known').map((node) =>
            node.tagName === 'circle' ? null : numbers(node.getAttribute('d')).slice(-2)),
        marks: all('.dials button').map((node) => {
            const dot = one('.angle', node);
            if (dot) return [...of(dot, 'cx', 'cy'), false];
            const [x, y] = numbers(one('.strange', node).getAttribute('d'));
            return [x + 5, y, true];
        }),
        line: one('polyline.curve', root).getAttribute('points').split(' ').map(numbers),
        here: of(one('.here', root), 'cx', 'cy'),
        zero: of(one('div.curve .axis', root), 'y1')[0],
        trained: of(one('.trained', root), 'x', 'width'),
        ticks: all('div.curve .tick[text-anchor=middle]').slice(0, -1).map((node) =>
            [...of(node, 'x'), Number(node.textContent)]),
        shades: all('.text span').map((node) => Number(node.style.getPropertyValue('--weight'))),
        frames: ['query', 'key'].map((name) => Number(one('.text .' + name, root)?.dataset.place ?? -1)),
        bars: all('.vectors svg').map((box) => all('.bar', box).map((node) =>
            [...of(node, 'x', 'y', 'height', 'width'), node.classList.contains('chosen')])),
        planes: all('.vectors svg').map((box) => all('.tick', box).map((node) => Number(node.textContent))),
        pairs: all('.vectors svg').map((box) => all('.pair', box).map((node) => {
            const d = numbers(node.getAttribute('d'));
            return [d[0], d[6]];
        })),
        map: (() => {
            const canvas = one('.heads [aria-pressed=true] canvas', root);
            return [...canvas.getContext('2d').getImageData(0, 0, 128, 128).data].filter((_, i) => i % 4 === 3);
        })(),
        over: one('.panel', root).scrollWidth - one('.panel', root).clientWidth,
    };
}"""  # noqa: E501


@pytest.fixture(scope="module")
def data():
    """What the page holds: the figure's own data."""
    page = (HTML / f"{PAGE}.html").read_text(encoding="utf-8")
    inside = page.partition('class="rope-explorer"')[2]
    return json.loads(re.search(r'"application/json">(.*?)</script>', inside, re.S)[1])


class Expected:
    """What the package computes for a state, in float64, from the figure's own vectors."""

    def __init__(self, data, state):
        layer, head, query, key = (state[name] for name in ("layer", "head", "query", "key"))
        self.q, self.k = (vectors[layer, head].double() for vectors in stored(data))  # [S, D]
        self.query, self.key = query, key
        self.distance = query - key if state["distance"] is None else state["distance"]
        self.m = max(query + state["shift"], self.distance)
        self.extension = EXTENSIONS[state["stretch"]]
        self.inv_freq = rope.inverse_frequencies(32, extension=self.extension)
        q_m = self.rotated(self.q[query], self.m)
        places = self.m - query + torch.arange(query + 1)
        places[key] = self.m - self.distance
        k_n = torch.stack([self.rotated(self.k[n], int(p)) for n, p in enumerate(places)])
        products = q_m * k_n / 32**0.5
        self.scores = products.sum(dim=-1)
        self.score, self.shares = self.scores[key], products[key].view(2, 16).sum(dim=0)
        self.weights = self.scores.softmax(dim=0)
        self.vectors = q_m, k_n[key]

    def rotated(self, x, position):
        scale = 1.0 if self.extension is None else self.extension.attention_scaling
        at = torch.tensor([position])
        tables = rope.rotary_tables(at, self.inv_freq, dtype=torch.float64, scale=scale)
        return rope.rotary_embedding(x.view(1, 1, 1, -1), *tables).flatten()

    def score_at(self, distance):
        q_m, k_n = self.rotated(self.q[self.query], distance), self.rotated(self.k[self.key], 0)
        return (q_m @ k_n / 32**0.5).item()

    def hands(self):
        """Each plane's complex number, from the query to the key."""
        q, k = (torch.complex(*x.view(2, 16)) for x in self.vectors)
        return q.conj() * k / 32**0.5


def choose(page, state):
    """Set a state with the controls, as a reader does."""
    page.locator(".back").click()
    if page.locator(".rope-explorer details:not([open])").count():
        page.locator(".rope-explorer summary").click()
    page.get_by_label(f"layer {state['layer']}, head {state['head']}", exact=True).click()
    for name in ("query", "key", "shift", "distance"):
        if state[name] is not None:
            page.locator(f'.rope-explorer input[name="{name}"]').fill(str(state[name]))
    for name in ("stretch", "layout"):
        page.locator(f'select[name="{name}"]').select_option(str(state[name]))


def number(text):
    return float(text.replace("\u2212", "-"))


def read(page):
    """The score, the shares and the weight that the page shows."""
    said = page.locator(".rope-explorer .score").inner_text()
    score, weight = re.search(r"score (\S+) = .* weight (\S+)%", said).groups()
    shares = [number(text) for text in page.locator(".dials .value").all_inner_texts()]
    return number(score), shares, number(weight)


def close(shown, expected, off):
    torch.testing.assert_close(
        torch.as_tensor(shown, dtype=torch.float64),
        torch.as_tensor(expected, dtype=torch.float64),
        rtol=0,
        atol=off,
    )


@pytest.mark.parametrize(("width", "states"), [(WIDE, STATES), (NARROW, STATES[3:5]), (320, [{}])])
def test_it_shows_what_the_package_computes(visitors, data, width, states, subtests):  # noqa: F811
    visitor = visitors(width)
    page = visitor.open(PAGE)
    for changes in states:
        with subtests.test(**changes):
            state = START | changes
            choose(page, state)
            expected = Expected(data, state)
            score, shares, weight = read(page)
            close(score, expected.score, 0.00501)
            close(shares, expected.shares, 0.00501)
            close(weight, 100 * expected.weights[state["key"]], 0.0501)
            where = page.locator(".rope-explorer .where").inner_text()
            assert f" at {expected.m}, key" in where
            assert f" at {expected.m - expected.distance}," in where
            drawn = page.evaluate(DRAWN)
            drawn_dials(drawn, expected)
            drawn_curve(drawn, expected)
            drawn_text(drawn, expected)
            drawn_vectors(drawn, expected, bool(state["layout"]))
            assert drawn["over"] <= 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert visitor.faults == []


def drawn_dials(drawn, expected):
    hands = expected.hands()
    ends = hands * 26 / hands.abs().max()
    close(drawn["hands"], [[end.real, -end.imag] for end in ends], 1e-6)  # y grows downwards
    close([x for x, _ in drawn["shares"]], ends.real, 1e-6)
    assert [more for _, more in drawn["shares"]] == [bool(end.real >= 0) for end in ends]
    for j, (known, (x, y, strange)) in enumerate(zip(drawn["known"], drawn["marks"], strict=True)):
        full = 128 * THETA[j] >= 2 * math.pi
        reached = torch.polar(torch.tensor(33.0).double(), -127 * THETA[j])
        assert (known is None) == bool(full)
        if known is not None:
            close(known, [reached.real, -reached.imag], 1e-6)
        turned = expected.distance * expected.inv_freq[j]
        at = torch.polar(torch.tensor(33.0).double(), -turned)
        close([x, y], [at.real, -at.imag], 1e-6)
        assert strange == bool(not full and turned > 127 * THETA[j])


def drawn_curve(drawn, expected):
    line, zero = drawn["line"], drawn["zero"]
    assert len(line) == 513
    scores = torch.tensor([expected.score_at(d) for d in (0, 1, 7, 64, 200, 512)])
    heights = torch.tensor([zero - line[d][1] for d in (0, 1, 7, 64, 200, 512)])
    scale = (heights / scores).median()
    assert scale > 0
    close(heights, scores * scale, 0.11)  # the line is drawn to tenths of a pixel
    across = [math.log2(1 + d) / math.log2(513) for d in range(513)]
    left, right = line[0][0], line[-1][0]
    close([x for x, _ in line], [left + share * (right - left) for share in across], 0.11)
    close(drawn["here"], line[expected.distance], 0.11)
    start, wide = drawn["trained"]
    close([start, start + wide], [line[0][0], line[127][0]], 0.11)
    for x, distance in drawn["ticks"]:
        close(x, line[distance][0], 0.11)


def drawn_text(drawn, expected):
    query, key = expected.query, expected.key
    assert drawn["frames"] == ([query, key] if key != query else [query, -1])
    shades = torch.zeros(128, dtype=torch.float64)
    shades[: query + 1] = expected.weights.sqrt()
    close(drawn["shades"], shades, 6e-4)
    inv_freq = rope.rotary_tables(128, THETA, dtype=torch.float64)
    q_m, k_n = (
        rope.rotary_embedding(x[None, None], *inv_freq)[0, 0] for x in (expected.q, expected.k)
    )
    ahead = torch.ones(128, 128, dtype=torch.bool).triu(1)
    weights = (q_m @ k_n.mT / 32**0.5).masked_fill(ahead, -math.inf).softmax(dim=-1)
    opacity = torch.where(weights < 0.002, 0.0, 255 * weights.sqrt())
    off = (torch.tensor(drawn["map"]).view(128, 128) - opacity).abs()
    assert (off[(weights - 0.002).abs() > 1e-6] <= 1.01).all()


def drawn_vectors(drawn, expected, interleaved):
    for which, vector in enumerate(expected.vectors):
        ordered = half_to_interleaved(vector) if interleaved else vector
        plane = torch.arange(16)
        planes = plane.repeat_interleave(2) if interleaved else plane.repeat(2)
        bars = drawn["bars"][which]
        heights = [height * (1 if y < 34 else -1) for _, y, height, _, _ in bars]
        close(heights, 28 * ordered / ordered.abs().max(), 1e-6)
        marked = [plane for plane, bar in zip(planes.tolist(), bars, strict=True) if bar[-1]]
        assert marked == [0, 0]
        named = drawn["planes"][which]
        assert named == planes.tolist() or named == [0, 0]  # where there is room, or the marked one
        centres = [x + wide / 2 for x, _, _, wide, _ in bars]
        for j, pair in enumerate(drawn["pairs"][which]):
            close(pair, [centres[i] for i in (planes == j).nonzero().flatten()], 1e-6)


def test_a_shift_and_a_layout_move_no_share(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    choose(page, START)
    before, drawn = read(page), page.locator(".dials").inner_html()
    coordinates = page.locator(".vectors").inner_html()
    page.locator('input[name="shift"]').fill("731")
    page.locator('select[name="layout"]').select_option("1")
    assert (read(page), page.locator(".dials").inner_html()) == (before, drawn)
    assert page.locator(".vectors").inner_html() != coordinates
    page.get_by_label("plane 5", exact=False).click()
    assert page.evaluate(DRAWN)["bars"][0][10][-1]  # of plane 5, interleaved
    page.locator(".back").click()
    assert page.locator(".vectors").inner_html() == coordinates


def test_the_pointer_tries_a_key_and_a_press_keeps_it(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    choose(page, START)
    where, text = page.locator(".rope-explorer .where"), page.locator(".rope-explorer .text")
    away = page.locator(".rope-explorer .guess")
    key = text.locator('[data-place="38"]')
    key.hover()
    assert "at 38, distance 5" in where.inner_text()
    page.locator('input[name="shift"]').press("ArrowRight")  # the pointer still tries
    away.hover()
    assert "at 44, key" in where.inner_text() and "at 43, distance 1" in where.inner_text()
    page.locator(".back").click()
    key.click()
    away.hover()
    assert "at 38, distance 5" in where.inner_text()
    text.locator('[data-place="90"]').click()  # after the query: no key of it
    assert "at 38, distance 5" in where.inner_text()
    page.get_by_label("query", exact=True).check()
    text.locator('[data-place="20"]').click()
    assert "at 20, key" in where.inner_text() and "at 20, distance 0" in where.inner_text()
    text.locator('[data-place="60"]').click()  # the key that was chosen is there again
    assert "at 60, key" in where.inner_text() and "at 38, distance 22" in where.inner_text()


def test_the_key_is_dragged_on_the_curve(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    choose(page, START)
    page.locator("div.curve").scroll_into_view_if_needed()
    box = page.locator("div.curve svg").bounding_box()
    left, wide = box["x"] + 36, box["width"] - 36 - 14
    where = page.locator(".rope-explorer .where")
    for distance in (1, 4, 20, 512):
        x = left + wide * math.log2(1 + distance) / math.log2(513)
        page.mouse.move(x - 3, box["y"] + 80)
        before = where.inner_text()
        page.mouse.move(x, box["y"] + 80)
        assert where.inner_text() == before  # not pressed
        page.mouse.down()
        assert f"distance {distance}" in where.inner_text()
        page.mouse.up()
    page.mouse.down()
    page.mouse.move(left, box["y"] + 80)
    page.mouse.up()
    assert "distance 0" in where.inner_text()


def test_guesses_come_before_answers_by_keyboard(visitors, data):  # noqa: F811
    visitor = visitors(NARROW)
    page = visitor.open(PAGE)
    box = page.locator(".rope-explorer .guess")
    for number_, question in enumerate(data["questions"]):
        assert question["answer"][:20] not in box.inner_text()
        close(read(page)[0], Expected(data, START | question["before"]).score, 0.00501)
        if number_ == 0:
            box.locator(".options button").first.focus()
        for _ in range((question["right"] + 1) % len(question["options"])):  # from the first one
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert "Not so." in box.inner_text() and question["answer"][:20] in box.inner_text()
        assert f"✓ {question['options'][question['right']]}" in box.inner_text()
        close(read(page)[0], Expected(data, START | question["after"]).score, 0.00501)
        shift = page.locator('input[name="shift"]').input_value()
        assert int(shift) == question["after"].get("shift", 0)
        page.keyboard.press("Enter")  # the next guess, which has the focus
    assert "Guess 1" in box.inner_text()
    box.locator(".options button").nth(data["questions"][0]["right"]).click()
    assert "So it is." in box.inner_text()
    assert visitor.faults == []


def sized(visitors, size):  # noqa: F811
    """A visitor whose window is so large, and the page, opened anew."""
    visitor = visitors(size[0])
    visitor.page.set_viewport_size({"width": size[0], "height": size[1]})
    return visitor, visitor.open(PAGE)


def edges(page, what):
    """Where a part of the figure begins and ends on the screen."""
    box = page.locator(f".rope-explorer {what}").bounding_box()
    return box["y"], box["y"] + box["height"]


@pytest.mark.parametrize("size", SIZES)
def test_the_sliders_and_the_score_stay_in_sight(visitors, size, subtests):  # noqa: F811
    _, page = sized(visitors, size)
    for what in (".guess", ".text", ".dials", "div.curve", ".vectors"):
        page.locator(f".rope-explorer {what}").evaluate("node => node.scrollIntoView()")
        for name, key in (("query", "ArrowLeft"), ("distance", "ArrowRight"), ("shift", "PageUp")):
            with subtests.test(what=what, name=name):
                slider = page.locator(f'.rope-explorer input[name="{name}"]')
                before = slider.input_value()
                slider.press(key)
                assert slider.input_value() != before
                top, bottom = edges(page, ".strip")
                said, moved = edges(page, ".said"), edges(page, f'input[name="{name}"]')
                assert top <= said[0] < said[1] <= moved[0] < moved[1] <= bottom <= size[1]
                assert bottom - top <= size[1] / 3
                assert 0 < edges(page, what)[0] < top - 80


@pytest.mark.parametrize("size", SIZES)
def test_after_a_guess_the_answer_and_its_panel_are_in_sight(visitors, data, size):  # noqa: F811
    visitor, page = sized(visitors, size)
    for question in data["questions"]:
        page.locator(".guess .options button").nth(question["right"]).click()
        assert question["see"] in page.locator(".seen").get_attribute("class")
        answer, seen, strip = (edges(page, what) for what in (".answer", ".seen", ".strip"))
        assert 0 < answer[0] < answer[1] < seen[0] < strip[0] - 200
        changes = page.locator(".changes").inner_text()
        states = [Expected(data, START | question[when]) for when in ("before", "after")]
        scores = re.search(r"score (\S+) → (\S+);", changes).groups()
        close([number(score) for score in scores], [state.score for state in states], 0.00501)
        shown = re.search(r"weight (\S+)% → (\S+)%", changes).groups()
        weights = [100 * state.weights[state.key] for state in states]
        close([number(weight) for weight in shown], weights, 0.0501)
        page.locator(".guess .answer button").click()
        assert page.locator(".seen").count() == 0
        assert 0 < edges(page, ".guess")[0] < edges(page, ".guess")[1] < edges(page, ".strip")[0]
    assert "10 → 9" in changes  # planes at new angles, of the last question
    assert visitor.faults == []


def test_on_a_phone_the_heads_are_folded(visitors):  # noqa: F811
    _, page = sized(visitors, SIZES[1])
    heads, summary = page.locator(".heads"), page.locator(".rope-explorer summary")
    assert summary.is_visible() and not heads.is_visible()
    summary.click()
    assert heads.is_visible()
    summary.click()
    page.set_viewport_size({"width": WIDE, "height": 844})
    heads.wait_for()
    assert not summary.is_visible()
    page.set_viewport_size({"width": NARROW, "height": 844})
    heads.wait_for(state="hidden")


@pytest.mark.parametrize(("group", "below"), [("heads", 4), ("dials", 8)])
def test_a_group_of_buttons_is_one_stop_with_arrows(visitors, group, below):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    choose(page, START | {"layer": 0, "head": 0})
    buttons = page.locator(f".rope-explorer .{group} button")
    focused = "() => document.activeElement.getAttribute('aria-label')"
    labels = [button.get_attribute("aria-label") for button in buttons.all()]
    buttons.first.focus()
    for key, place in (("ArrowLeft", 0), ("ArrowRight", 1), ("ArrowDown", 1 + below)):
        page.keyboard.press(key)
        assert page.evaluate(focused) == labels[place]
    assert [button.get_attribute("tabindex") == "0" for button in buttons.all()] == [
        place == 1 + below for place in range(16)
    ]
    page.keyboard.press("Enter")
    assert buttons.nth(1 + below).get_attribute("aria-pressed") == "true"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) not in labels


def test_on_a_dark_page_the_maps_are_painted_anew(visitors):  # noqa: F811
    page = visitors(WIDE, color_scheme="light").open(PAGE)
    pixel = """() => [...document.querySelector('.rope-explorer canvas').getContext('2d')
        .getImageData(0, 0, 1, 1).data]"""
    light = page.evaluate(pixel)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    assert light[3] == 255 and page.evaluate(pixel)[:3] != light[:3]  # a token sees itself


def test_without_script_it_is_described(visitors):  # noqa: F811
    page = visitors(WIDE, java_script_enabled=False).open(PAGE, wait=False)
    text = page.locator(".rope-explorer noscript").inner_text()
    assert "needs JavaScript" in text and len(text) > 100
