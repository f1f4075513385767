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
START |= {"stretch": 0, "layout": 0, "fast": 0, "slow": 12}
STATES = [
    {},
    {"shift": 1000},
    {"distance": 500, "stretch": 2, "fast": 7, "slow": 15},
    {"distance": 500, "fast": 6, "slow": 8},
    {"distance": 100, "stretch": 3, "layout": 1, "shift": 17},
    {"layer": 0, "head": 1, "query": 76, "key": 74},
    {"layer": 3, "head": 3, "query": 127, "key": 0, "stretch": 1},
    {"layer": 2, "head": 0, "query": 118, "key": 115, "layout": 1, "fast": 3},
    {"query": 0, "key": 0},
]
SIZES = [(1440, 900), (NARROW, 844)]
# Everything that is drawn, as numbers.
DRAWN = """() => {
    const root = document.querySelector('.rope-explorer');
    const all = (what, where = root) => [...where.querySelectorAll(what)];
    const one = (what, where) => where.querySelector(what);
    const of = (node, ...names) => names.map((name) => Number(node.getAttribute(name)));
    const middle = ([x, y, aside]) => [x + aside, y]; // of a diamond
    const numbers = (text) => text.match(/-?[\\d.]+(e-?\\d+)?/g).map(Number);
    return {
        dials: all('svg:has(.ring)').map((face) => {
            const [known, mark] = [one('.known', face), one('.angle', face)];
            const strange = mark.tagName === 'path';
            const ring = of(one('.ring', face), 'r')[0];
            return {
                ring,
                hand: of(one('.hand', face), 'x2', 'y2', 'stroke-width'),
                share: [...of(one('.share', face), 'x', 'width', 'height'),
                    one('.share', face).classList.contains('more')],
                known: known.tagName === 'circle' ? null : numbers(known.getAttribute('d')).slice(-2),
                more: known.tagName === 'path' && numbers(known.getAttribute('d'))[5] === 1,
                mark: strange ? middle(numbers(mark.getAttribute('d'))) : of(mark, 'cx', 'cy'),
                strange,
            };
        }),
        two: all('.two > div').map((node) => node.innerText),
        band: one('polygon.band', root).getAttribute('points').split(' ').map(numbers),
        dots: all('.near .one').map((node) => of(node, 'cx', 'cy')),
        near: of(one('.near .here', root), 'cx', 'cy'),
        line: one('polyline.curve', root).getAttribute('points').split(' ').map(numbers),
        here: of(one('.curve .here', root), 'cx', 'cy'),
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
    for name in ("fast", "slow"):
        page.locator(".rope-explorer .dials button").nth(state[name]).click()


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


@pytest.mark.parametrize(("width", "states"), [(WIDE, STATES), (NARROW, STATES), (320, [{}])])
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
            assert f" at position {expected.m}, key" in where
            assert f" at {expected.m - expected.distance}," in where
            drawn = page.evaluate(DRAWN)
            drawn_dials(drawn, state, expected)
            drawn_curve(drawn, expected)
            drawn_text(drawn, expected)
            drawn_vectors(drawn, state, expected)
            assert drawn["over"] <= 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert visitor.faults == []


def drawn_dials(drawn, state, expected):
    """Two large ones and all sixteen, each with its hand, its share, its arc and its mark."""
    hands = expected.hands()
    planes = [state["fast"], state["slow"], *range(16)]
    for dial, j in zip(drawn["dials"], planes, strict=True):
        length, wide = (62, 14) if dial["ring"] == 72 else (14, 6)
        end = length * torch.polar(torch.ones(()).double(), hands[j].angle())
        width = (wide * hands[j].abs() / hands.abs().max()).item()
        close(dial["hand"], [end.real, -end.imag, max(1, width)], 1e-6)  # y grows downwards
        left, across, height, more = dial["share"]
        close([left, across, height], [min(end.real, 0), abs(end.real), width], 1e-6)
        assert more == bool(end.real >= 0)
        reached = arc_of(dial)
        close(reached, 127 * THETA[j] if 128 * THETA[j] < 2 * math.pi else 7, 1e-6)
        turned = expected.distance * expected.inv_freq[j]
        at = torch.polar(torch.tensor(dial["ring"]).double(), -turned)
        close(dial["mark"], [at.real, -at.imag], 1e-6)
        assert dial["strange"] == (clockwise(dial["mark"]) > reached + 1e-9)
    for said, j in zip(drawn["two"], planes, strict=False):
        share = hands[j].real.item()
        assert f"plane {j}: " in said
        assert f"share {share:+.2f}".replace("-", "\u2212") in said
        wave = 2 * math.pi / expected.inv_freq[j].item()
        assert f"a turn in {wave:,.{int(wave < 100)}f} positions" in said


def clockwise(point):
    """The angle of a point of a dial, clockwise from the right, where y grows downwards."""
    return math.atan2(point[1], point[0]) % (2 * math.pi)


def arc_of(dial):
    """The angles that a dial shows as reached, from 0; 7 is all of them."""
    if dial["known"] is None:
        return 7
    reached = clockwise(dial["known"])
    assert dial["more"] == (reached > math.pi), "the longer of two arcs"
    return reached


def drawn_curve(drawn, expected):
    """The line's points are means of scores three pixels wide, and the band holds these."""
    zero, line, band = drawn["zero"], drawn["line"], drawn["band"]
    scores = torch.tensor([expected.score_at(d) for d in range(513)])
    scale = (zero - drawn["here"][1]) / scores[expected.distance]
    assert scale > 0
    left, right = line[0][0], drawn["trained"][0] + drawn["trained"][1]
    wide = (right - left) / math.log2(128) * math.log2(513)  # to 512, from that to 127
    across = [left + wide * math.log2(1 + d) / math.log2(513) for d in range(513)]
    close(drawn["here"][0], across[expected.distance], 0.11)
    for x, distance in drawn["ticks"]:
        close(x, across[distance], 0.11)
    upper, lower = band[: len(line)], band[len(line) :][::-1]
    bins = [[]]
    for d in range(513):
        apart = across[d + 1] - across[d] if d < 512 else 0
        new = (
            apart >= 3 or not bins[-1] or math.floor(across[d] / 3) != math.floor(across[d - 1] / 3)
        )
        bins += [[d]] if new and bins[-1] else []
        bins[-1] += [d] if bins[-1] != [d] else []
    assert len(bins) == len(line) == len(upper) == len(lower)
    for inside, middle, top, bottom in zip(bins, line, upper, lower, strict=True):
        some = scores[inside]
        heights = [zero - scale * value for value in (some.mean(), some.max(), some.min())]
        close([middle[1], top[1], bottom[1]], heights, 0.11)  # tenths of a pixel
        close(middle[0], (across[inside[0]] + across[inside[-1]]) / 2, 2)
    dots, first = drawn["dots"], min(max(0, expected.distance - 16), 480)
    assert len(dots) == 33
    close(dots[expected.distance - first], drawn["near"], 1e-6)
    rises = torch.tensor([y for _, y in dots])
    ratio = (rises.max() - rises.min()) / (
        scores[first : first + 33].max() - scores[first : first + 33].min()
    )
    close(rises - rises[0], -ratio * (scores[first : first + 33] - scores[first]), 0.01)
    steps = torch.tensor([x for x, _ in dots]).diff()
    close(steps, steps[:1].expand(32), 1e-3)


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


def drawn_vectors(drawn, state, expected):
    interleaved, two = bool(state["layout"]), (state["fast"], state["slow"])
    for which, vector in enumerate(expected.vectors):
        ordered = half_to_interleaved(vector) if interleaved else vector
        plane = torch.arange(16)
        planes = plane.repeat_interleave(2) if interleaved else plane.repeat(2)
        bars = drawn["bars"][which]
        heights = [height * (1 if y < 34 else -1) for _, y, height, _, _ in bars]
        close(heights, 28 * ordered / ordered.abs().max(), 1e-6)
        marked = [plane for plane, bar in zip(planes.tolist(), bars, strict=True) if bar[-1]]
        chosen = [plane for plane in planes.tolist() if plane in two]
        assert marked == chosen
        # Where there is room all are named, or the marked ones.
        assert drawn["planes"][which] in (planes.tolist(), chosen)
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
    assert "at position 44, key" in where.inner_text() and "at 43, distance 1" in where.inner_text()
    page.locator(".back").click()
    key.click()
    away.hover()
    assert "at 38, distance 5" in where.inner_text()
    text.locator('[data-place="90"]').click()  # after the query: no key of it
    assert "at 38, distance 5" in where.inner_text()
    page.get_by_label("query", exact=True).check()
    text.locator('[data-place="20"]').click()
    assert "at position 20, key" in where.inner_text() and "at 20, distance 0" in where.inner_text()
    text.locator('[data-place="60"]').click()  # the key that was chosen is there again
    assert (
        "at position 60, key" in where.inner_text() and "at 38, distance 22" in where.inner_text()
    )


def test_the_key_is_dragged_on_the_curve_and_on_its_dots(visitors):  # noqa: F811
    page = visitors(WIDE).open(PAGE)
    choose(page, START)
    page.locator("div.near").scroll_into_view_if_needed()
    box, dots = (page.locator(f"div.{what} svg").bounding_box() for what in ("curve", "near"))
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
    step = (dots["width"] - 36 - 8 - 14) / 32  # the dots are those of 480 to 512
    page.mouse.move(dots["x"] + 36 + 8 + 20 * step, dots["y"] + 40)
    page.mouse.down()
    assert "distance 500" in where.inner_text()
    page.mouse.move(dots["x"] + 36 + 8 + 3 * step, dots["y"] + 40)
    assert "distance 483" in where.inner_text(), "they stay while the key is held"
    page.mouse.up()
    assert page.evaluate(DRAWN)["near"] == page.evaluate(DRAWN)["dots"][16], (
        "and then it is in the middle"
    )
    page.mouse.move(left, box["y"] + 80)
    page.mouse.down()
    page.mouse.up()
    assert "distance 0" in where.inner_text()


def test_a_finger_has_room(visitors):  # noqa: F811
    """Targets have 24 pixels at least, and each slider a button for a step to either side."""
    page = visitors(NARROW).open(PAGE)
    choose(page, START)
    for name, step in (("query", -1), ("distance", 1), ("shift", 1)):
        slider = page.locator(f'.rope-explorer input[name="{name}"]')
        before = int(slider.input_value())
        page.locator(f'label:has(input[name="{name}"]) button').nth(int(step > 0)).click()
        assert int(slider.input_value()) == before + step
    small = page.evaluate("""() => [...document.querySelectorAll(
        '.panel :is(button, select, input[type=range], .text span, summary, .pick label)')]
        .filter((node) => node.checkVisibility())
        .map((node) => [node.outerHTML.slice(0, 80), node.getBoundingClientRect()])
        .filter(([, box]) => box.width < 23.99 || box.height < 23.99)""")
    assert small == []


def test_guesses_come_before_answers_by_keyboard(visitors, data):  # noqa: F811
    visitor = visitors(NARROW, reduced_motion="reduce")
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
        right = question["options"][question["right"]]
        assert f"Not so: {right}." in box.inner_text()
        assert question["answer"] in box.inner_text()
        close(read(page)[0], Expected(data, START | question["after"]).score, 0.00501)
        shift = page.locator('input[name="shift"]').input_value()
        assert int(shift) == question["after"].get("shift", 0)
        page.keyboard.press("Enter")  # the next guess, which has the focus
    assert "Guess 1" in box.inner_text()
    box.locator(".options button").nth(data["questions"][0]["right"]).click()
    assert "So it is: none." in box.inner_text()
    assert visitor.faults == []


def test_what_is_asked_and_answered_is_what_is_drawn(visitors, data):  # noqa: F811
    """Each sentence again, from the arcs, hands and numbers of the page."""
    page = visitors(WIDE, reduced_motion="reduce").open(PAGE)

    def seen(state):
        choose(page, START | state)
        return page.evaluate(DRAWN), *read(page)

    def new(drawn):
        return [
            j for j, one in enumerate(drawn["dials"][2:]) if clockwise(one["mark"]) > arc_of(one)
        ]

    shift, drag, stretch = data["questions"]
    (before, *numbers), (after, *later) = (seen(shift[when]) for when in ("before", "after"))
    moved = shift["after"]["shift"]
    assert shift["ask"].startswith(f"Move the query and the key {moved:,} positions on, both.")
    assert shift["options"][shift["right"]] == "none" and numbers == later
    assert before["dials"] == after["dials"]
    for one, two in zip(before["bars"], after["bars"], strict=True):
        assert sum(a != b for a, b in zip(one, two, strict=True)) >= 31, (
            "the tallest may be it again"
        )
    assert "the distance, which is still 1." in shift["answer"] and numbers[0] > 0

    (before, score, shares, weight), (after, less, fewer, _) = (
        seen(drag[when]) for when in ("before", "after")
    )
    far = drag["after"]["distance"]
    assert drag["ask"].startswith(
        f"This query gives {weight:.0f}% of its weight to the character before."
    )
    assert f"from distance 1 to {far}:" in drag["ask"]
    lost = [a - b for a, b in zip(shares, fewer, strict=True)]
    parts = [(0, 3), (4, 7), (8, 15)]
    falls = [sum(lost[first : last + 1]) for first, last in parts]
    assert falls.index(max(falls)) == drag["right"]
    for option, (first, last) in zip(drag["options"], parts, strict=True):
        assert option.endswith(f", {first} to {last}")
    assert drag["answer"].startswith(
        f"Plane 0 alone takes {lost[0]:.1f} of the {score - less:.1f}: "
    )
    assert "its hand has gone from right to left." in drag["answer"]
    (x, *_), (then, *_) = before["dials"][0]["hand"], after["dials"][0]["hand"]
    assert x > 0.9 * 62 and then < -0.9 * 62
    assert drag["answer"].endswith("Planes 8 to 15 have hardly turned.")
    for one, two in list(zip(before["dials"], after["dials"], strict=True))[2 + 8 :]:
        turned = clockwise(two["hand"][:2]) - clockwise(one["hand"][:2])
        assert abs((turned + math.pi) % (2 * math.pi) - math.pi) < 0.05

    before, after = (seen(stretch[when])[0] for when in ("before", "after"))
    assert new(before) == [*range(7, 16)] and new(after) == [*range(7, 15)]
    assert stretch["ask"].startswith(
        "At distance 500 nine planes, 7 to 15, stand at angles that training"
    )
    assert "Two of three stretches by 4 bring all nine back." in stretch["ask"]
    found = [new(seen(stretch["before"] | {"stretch": number})[0]) for number in (1, 2, 3)]
    assert [bool(outside) for outside in found] == [i == stretch["right"] for i in range(3)]
    slower = THETA / torch.tensor(data["stretches"][2]["inv_freq"], dtype=torch.float64)
    assert stretch["answer"].startswith(
        f"It slows plane 7 by a factor of {slower[7]:.1f}, and only plane 15 by {slower[15]:.0f}:"
    )
    assert slower[14] < 3.7 and "eight of the nine stay outside." in stretch["answer"]


def test_the_answer_plays_on_the_large_dials(visitors, data):  # noqa: F811
    """The hands turn there, past what lies between; a slider that is moved meanwhile ends that."""
    page = visitors(WIDE, reduced_motion="no-preference").open(PAGE)
    root = page.locator(".rope-explorer")
    hand = "() => Number(document.querySelector('.two .hand').getAttribute('x2'))"
    for _ in range(2):
        page.locator(".guess .options button").first.click()
        if "Guess 2" in page.locator(".guess").inner_text():
            break
        page.wait_for_function(
            "() => document.querySelector('.rope-explorer').dataset.ready === 'true'"
        )
        page.locator(".guess .answer button").click()
    assert root.get_attribute("data-ready") == "playing"
    places = [page.evaluate(hand)]
    while root.get_attribute("data-ready") == "playing":
        places.append(page.evaluate(hand))
    assert places == sorted(places, reverse=True) and len(set(places)) > 3, "from right to left"
    close(page.evaluate(DRAWN)["dials"][0]["hand"][0], places[-1], 15)
    page.locator(".guess .answer button").click()
    page.locator(".guess .options button").first.click()
    page.locator('.rope-explorer input[name="distance"]').fill("3")
    close(
        read(page)[0],
        Expected(data, START | data["questions"][2]["after"] | {"distance": 3}).score,
        0.00501,
    )
    assert root.get_attribute("data-ready") == "true"


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
def test_after_a_guess_the_answer_and_its_dials_are_in_sight(visitors, data, size):  # noqa: F811
    visitor, page = sized(visitors, size)
    for question in data["questions"]:
        page.locator(".guess .options button").nth(question["right"]).click()
        answer, two, strip = (edges(page, what) for what in (".answer", ".two", ".strip"))
        faces = edges(page, ".two .face >> nth=0")
        assert 0 < answer[0] < answer[1] <= strip[0] and 0 < two[0] < faces[1] <= strip[0]
        changes = page.locator(".changes").inner_text()
        states = [Expected(data, START | question[when]) for when in ("before", "after")]
        computed = [(x.score, 100 * x.weights[x.key], x.vectors[0][2]) for x in states]
        names = ("score", "weight", "coordinate 2 of the query")
        for name, *pair in zip(names, *computed, strict=True):
            shown = re.findall(rf"{name}: (\S*\d)%? → (\S*\d)%?[;.]", changes)
            assert len(shown) == (name in question["numbers"])
            for two in shown:
                close([number(x) for x in two], pair, 0.0501 if name == "weight" else 0.00501)
        page.locator(".guess .answer button").click()
        assert 0 < edges(page, ".guess")[0] < edges(page, ".guess")[1] < edges(page, ".strip")[0]
    assert "9 → 8" in changes  # planes at new angles, of the last question
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


@pytest.mark.parametrize(("group", "below"), [("heads", 4), ("dials", 0)])
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
