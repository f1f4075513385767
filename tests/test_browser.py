"""The built pages in a real browser, from file:// with no network, wide and narrow."""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

from rope.book.figures.rotation_in_two_dimensions import THETA, K, Q
from rope.reference import score

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[1]
HTML = Path(os.environ.get("ROPE_HTML", ROOT / "_build" / "html")).resolve()
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
PAGES = [TOC["root"], *(c["file"] for part in TOC["parts"] for c in part["chapters"])]
WIDE, NARROW = 1300, 390
SMALLEST_TEXT = 8.9  # pixels; the page's own rule is 9, and a browser rounds
READY = """async () => {
    if (window.MathJax?.startup?.promise) await MathJax.startup.promise;
    const charts = [...document.querySelectorAll('.rope-chart')];
    return charts.every((chart) => chart.dataset.ready);
}"""
# Each line is a fault a reader would see; an empty list is a good page.
LOOK = """({narrow, smallest}) => {
    const faults = [];
    const article = document.querySelector('article') || document.body;
    const all = (what, where = article) => [...where.querySelectorAll(what)];
    const shown = (node) => node.getClientRects().length > 0;
    for (const node of all('.math'))
        if (!node.querySelector('mjx-container')) faults.push('untypeset: ' + node.textContent);
    for (const node of all('mjx-merror, [data-mjx-error]'))
        faults.push('formula with an error: ' + node.textContent);
    const words = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    for (let node; (node = words.nextNode()); ) {
        if (node.parentElement.closest('pre, code, script, style, mjx-container')) continue;
        const raw = node.data.match(/\\\\\\(|\\\\\\[|\\$\\$|\\{(prf:ref|numref|eq|cite:[tp])\\}/);
        if (raw) faults.push('raw markup: ' + node.data.trim().slice(0, 80));
    }
    for (const node of all('img', document)) {
        if (!node.complete || !node.naturalWidth) faults.push('broken image: ' + node.src);
        if (!node.alt.trim()) faults.push('image without alt text: ' + node.src);
    }
    for (const node of all('svg')) {
        if (node.closest('button, mjx-container, [aria-hidden="true"]')) continue;
        const drawing = node.closest('[role="img"]') || node;
        if (!drawing.getAttribute('aria-label')?.trim()) faults.push('drawing without alt text');
    }
    for (const node of all('.rope-chart'))
        if (!node.getAttribute('aria-label')?.trim()) faults.push('chart without alt text');
    for (const svg of all('.rope-picture > svg, .rope-drawing svg')) {
        if (!shown(svg) || !svg.viewBox.baseVal) continue;
        const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
        for (const text of svg.querySelectorAll('text')) {
            if (!text.textContent.trim()) continue;
            // A formula's signs are tspans of their own size; raised signs may be smaller.
            const signs = [...text.querySelectorAll('tspan')];
            const sizes = (signs.length ? signs : [text])
                .map((sign) => parseFloat(getComputedStyle(sign).fontSize));
            const seen = Math.max(...sizes) * scale;
            if (seen < smallest)
                faults.push(`text of ${seen.toFixed(1)} px: ` + text.textContent.trim());
        }
    }
    for (const node of all('.rope-chart input, .rope-play'))
        if (narrow && (node.closest('label') || node).getBoundingClientRect().height < 39.5)
            faults.push('a control too small for a finger');
    const over = document.documentElement.scrollWidth - window.innerWidth;
    if (over > 0) faults.push(`the page is ${over} px too wide`);
    return [...new Set(faults)];
}"""


@pytest.fixture(scope="module")
def browser(chromium):
    if not (HTML / "index.html").exists():
        pytest.fail(f"no built book at {HTML}: run `make book`, or set ROPE_HTML to its folder.")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()


class Visitor:
    """A page of an offline browser that writes down what goes wrong.

    It reads the built files, or the same under the address of a site that is answered from them.
    """

    def __init__(self, browser, width: int, site: str | None = None, **settings) -> None:
        size = {"width": width, "height": 844}
        settings = {"reduced_motion": "reduce"} | settings
        self.context = browser.new_context(offline=True, viewport=size, **settings)
        self.root = site or HTML.as_uri()
        if site:
            self.context.route(
                f"{site}/**",
                lambda route: route.fulfill(path=HTML / urlsplit(route.request.url).path[1:]),
            )
        self.page: Page = self.context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(f"page error: {error}"))
        self.page.on("console", self._console)
        self.page.on("request", self._request)
        self.page.on("requestfailed", lambda r: self.faults.append(f"not found: {r.url}"))

    def _console(self, message) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text}")

    def _request(self, request) -> None:
        if re.match(r"(https?|wss?):", request.url.removeprefix(self.root)):
            self.faults.append(f"outside request: {request.url}")

    def open(self, name: str, *, wait: bool = True) -> Page:
        self.faults.clear()
        path, _, query = name.partition("?")
        self.page.goto(f"{self.root}/{path}.html" + (f"?{query}" if query else ""))
        if wait:
            self.page.wait_for_function(READY, timeout=20_000)
        return self.page


@pytest.fixture(scope="module")
def visitors(browser):
    """One visitor for each width and colour scheme, made when first asked for."""
    made: dict[tuple, Visitor] = {}

    def visitor(width: int, **settings) -> Visitor:
        key = (width, *sorted(settings.items()))
        if key not in made:
            made[key] = Visitor(browser, width, **settings)
        return made[key]

    yield visitor
    for one in made.values():
        one.context.close()


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", PAGES)
def test_page_is_whole(visitors, name, width):
    visitor = visitors(width)
    page = visitor.open(name)
    narrow = width == NARROW
    faults = page.evaluate(LOOK, {"narrow": narrow, "smallest": SMALLEST_TEXT})
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.wait_for_function(
            "scheme => document.documentElement.dataset.theme === scheme", arg=scheme
        )
        faults += [f"{scheme} theme: text in {fill}" for fill in unlike(page, scheme)]
    if not narrow:  # once for each page: to draw its charts takes longer than to look at them
        faults += still(page)
    assert visitor.faults + faults == []


def still(page: Page) -> list[str]:
    """Sliders that do not move their chart; a page must have the charts that its file has."""
    charts = page.locator(".rope-chart").all()
    source = (HTML / page.url.partition("/html/")[2]).read_text(encoding="utf-8")
    found = [] if len(charts) == source.count('class="rope-chart"') else ["charts are missing"]
    for number, chart in enumerate(charts, 1):
        for slider in chart.locator('input[type="range"]').all():
            before = chart.locator(".rope-drawing svg").inner_html()
            least = slider.input_value() == slider.get_attribute("max")
            slider.press("Home" if least else "End")
            page.wait_for_timeout(60)
            if chart.locator(".rope-drawing svg").inner_html() == before:
                found.append(f"chart {number}: {slider.get_attribute('name')} does not move it")
    return found


def test_the_book_has_charts_that_move():
    pages = [(HTML / f"{name}.html").read_text(encoding="utf-8") for name in PAGES]
    assert sum('class="rope-chart"' in page for page in pages) > 5


def test_only_what_is_loaded_is_there(visitors):
    """Beside the pages' own files, what a formula's menu or an unusual command loads."""
    files = [path for path in (HTML / "_static").rglob("*.*") if "live" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 13e6
    visitor = visitors(WIDE)
    page = visitor.open("chapters/notation")
    page.evaluate("MathJax.loader.load('input/mml', 'output/svg', '[tex]/cancel')")
    # Speech asks for its words in a way that no browser allows a page from file://.
    speech = {"mathjax/a11y/explorer.js", "mathjax/a11y/sre.js", "mathjax/sre/mathmaps/en.json"}
    assert speech <= {path.relative_to(HTML / "_static").as_posix() for path in files}
    assert visitor.faults == []


def unlike(page: Page, scheme: str) -> list[str]:
    """Colours of figures' text that is not light on the dark theme or dark on the light one."""
    fills = page.evaluate("""() => {
        const texts = document.querySelectorAll('.rope-picture text, .rope-drawing text');
        const fill = (text) => getComputedStyle(text.querySelector('tspan') || text).fill;
        return [...new Set([...texts].map(fill))];
    }""")
    found = []
    for fill in fills:
        red, green, blue = map(int, re.findall(r"\d+", fill)[:3])
        brightness = (299 * red + 587 * green + 114 * blue) / 255_000
        if (brightness > 0.5) != (scheme == "dark"):
            found.append(fill)
    return found


def move(page: Page, chart: int, slider: str, value: float) -> None:
    """Set a chart's slider as a reader's hand does."""
    control = page.locator(".rope-chart").nth(chart).locator(f'input[name="{slider}"]')
    control.fill(f"{value:g}")
    page.wait_for_timeout(60)


def reading(page: Page, chart: int, name: str) -> str:
    """The text of the named mark of a chart."""
    text = page.locator(".rope-chart").nth(chart).locator(f".{name}_marks text").text_content()
    return (text or "").replace("\u2212", "-")


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_score_follows_the_difference_alone(visitors, width, subtests):
    visitor = visitors(width)
    page = visitor.open(TOC["root"])
    q, k = np.array(Q), np.array(K)
    for m, n, shift in [(4, 9, 0), (4, 9, 21), (30, 3, 0), (30, 3, 2)]:
        with subtests.test(m=m, n=n, shift=shift):
            for slider, value in (("m", m), ("n", n), ("shift", shift)):
                move(page, 0, slider, value)
            expected = score(q, k, m, n, np.array([THETA]))
            assert reading(page, 0, "score") == f"q · k = {expected:.3f}"
            where = f"q at {m + shift}, k at {n + shift}, n - m = {n - m}"
            assert reading(page, 0, "positions") == where
    assert visitor.faults == []


def test_play_moves_and_stops(visitors):
    page = visitors(WIDE).open(TOC["root"])
    button = page.locator(".rope-play").first
    shift = page.locator('.rope-chart input[name="shift"]').first
    before, start = reading(page, 0, "score"), shift.input_value()
    button.click()
    page.wait_for_function(
        "start => document.querySelector('.rope-chart input[name=shift]').value !== start",
        arg=start,
        timeout=5_000,
    )
    assert reading(page, 0, "score") == before
    button.click()
    stopped = shift.input_value()
    page.wait_for_timeout(900)
    assert shift.input_value() == stopped


def test_turning_a_phone_keeps_what_was_set(visitors):
    visitor = visitors(WIDE)
    page = visitor.open(TOC["root"])
    for slider, value in (("m", 4), ("n", 9), ("shift", 21)):
        move(page, 0, slider, value)
    before = reading(page, 0, "positions")
    for width, stacked in ((NARROW, "true"), (WIDE, "false")):
        page.set_viewport_size({"width": width, "height": 844})
        page.locator(f'.rope-chart[data-stacked="{stacked}"] input[name="shift"]').wait_for()
        assert reading(page, 0, "positions") == before == "q at 25, k at 30, n - m = 5"
        assert page.locator('.rope-chart input[name="m"]').first.input_value() == "4"
        assert "Play" in page.locator(".rope-play").first.inner_text()
    page.locator(".rope-play").first.click()
    page.set_viewport_size({"width": NARROW, "height": 844})
    page.locator('.rope-chart[data-stacked="true"] .rope-play').wait_for()
    assert "Pause" in page.locator(".rope-play").first.inner_text()
    assert visitor.faults == []


def first_result(page):
    """Once the search has ended: its last word, a line above them, moves the results down."""
    page.locator(".search-summary").filter(has_text="finished").wait_for(timeout=20_000)
    return page.locator("#search-results a").first


def test_search_finds_a_page(visitors):
    visitor = visitors(WIDE)
    page = visitor.open(TOC["root"])
    page.keyboard.press("Control+k")
    page.locator('input[type="search"]:visible').first.fill("rotation")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=rotation*")
    link = first_result(page)
    link.click()
    page.wait_for_url("**/chapters/*.html*")
    assert "rotation" in page.locator("article").inner_text().lower()
    assert visitor.faults == []


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("why is V not rotated", "questions.html#why-is-v-not-rotated"),
        ("left padding", "rotary_attention.html#padding-on-the-left"),
        ("is_neox_style", "notation.html#also-called"),
        ("GPT-NeoX layout", "notation.html#also-called"),
        ("many dimensions", "many_dimensions.html"),
        ("Euler's formula", "eulers_formula.html"),
        ("mrope on text", "questions.html#is-m-rope"),
        ("windows", "#"),
        ("KV cache", "#"),
        ("llama 3", "#"),
    ],
)
def test_search_finds_the_place_first(visitors, query, first):
    visitor = visitors(WIDE)
    page = visitor.open(f"search?q={query}")
    link = first_result(page)
    assert first in link.get_attribute("href")
    link.click()
    page.wait_for_url("**/chapters/*.html*")
    if place := page.url.partition("#")[2]:
        assert page.locator(f"[id='{place}']").bounding_box()["y"] < 300
    assert visitor.faults == []


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_without_script_a_chart_shows_its_still(visitors, width):
    page = visitors(width, java_script_enabled=False).open(TOC["root"], wait=False)
    instead = page.locator(".rope-chart noscript").first
    assert "needs JavaScript" in instead.inner_text()
    still = instead.locator("svg")
    assert "q · k = " in still.text_content() and len(still.get_attribute("aria-label")) > 100
    box = still.bounding_box()
    assert 250 < box["width"] <= width and box["x"] >= 0


SLOW_PAGES = [pytest.param(name, marks=pytest.mark.slow) for name in PAGES[1:]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", [PAGES[0], *SLOW_PAGES])
def test_axe_finds_nothing_critical_and_nothing_serious(visitors, name, scheme):
    page = visitors(WIDE, color_scheme=scheme).open(name)
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [
        (fault["impact"], fault["id"], fault["nodes"][0]["html"][:200])
        for fault in found
        if fault["impact"] in ("critical", "serious")
    ] == []


def test_no_formula_is_a_stop_of_the_tab_key_and_each_is_there_for_ears(visitors):
    page = visitors(WIDE).open("chapters/eulers_formula")
    formulas = page.locator("mjx-container")
    assert formulas.count() > 200
    assert page.locator("mjx-container[tabindex='0']").count() == 0
    assert page.locator("mjx-container mjx-assistive-mml math").count() == formulas.count()


def test_a_fold_has_no_name_but_its_own_words(visitors):
    page = visitors(WIDE).open("chapters/eulers_formula")
    assert page.locator("summary").count() > 10
    assert page.locator("summary[aria-label]").count() == 0
