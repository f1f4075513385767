"""Test the built pages in a real browser, from file:// without a network.

Each page is loaded once, and that visit runs all of its checks.
"""

import os
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from conftest import give_up
from playwright.sync_api import Page, TimeoutError, expect, sync_playwright

from rope.book.figures.rotation_in_two_dimensions import THETA, K, Q
from rope.reference import score

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[1]
HTML = Path(os.environ.get("ROPE_HTML", ROOT / "_build" / "html")).resolve()
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
CHAPTERS = [TOC["root"], *(c["file"] for part in TOC["parts"] for c in part["chapters"])]
WIDE, NARROW = 1300, 390
LIMIT = 600_000  # milliseconds; only a state that never comes takes that long
OF_COLOR = ["color-contrast", "link-in-text-block"]  # axe rules that depend on the theme


@pytest.fixture(scope="module")
def browser(chromium):
    if not (HTML / "index.html").exists():
        give_up(f"no built book at {HTML}: run `make book`, or set ROPE_HTML to its folder.")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()


class Visitor:
    """Open pages in an offline browser and collect all faults."""

    def __init__(self, browser, width: int, **settings) -> None:
        self.size = {"width": width, "height": 844}
        settings = {"reduced_motion": "reduce"} | settings
        self.context = browser.new_context(offline=True, viewport=self.size, **settings)
        self.context.set_default_timeout(LIMIT)
        self.context.add_init_script(path=Path(__file__).with_name("visit.js"))
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
        if re.match(r"(https?|wss?):", request.url):
            self.faults.append(f"outside request: {request.url}")

    def open(self, name: str, *, wait: bool = True) -> Page:
        self.faults.clear()
        self.page.set_viewport_size(self.size)
        self.page.goto(f"{HTML.as_uri()}/{name}.html")
        if wait:
            self.wait()
        return self.page

    def wait(self) -> None:
        """Wait until the formulas and charts are drawn for the page's width."""
        self.page.evaluate("visit.settled()")
        try:
            self.page.wait_for_function("() => visit.ready()")
        except TimeoutError:
            self.faults.append("a chart is not drawn")

    def resize(self, width: int) -> None:
        self.page.set_viewport_size(self.size | {"width": width})
        self.wait()

    def theme(self, scheme: str) -> None:
        self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        self.page.wait_for_function(
            "scheme => document.documentElement.dataset.theme === scheme", arg=scheme
        )
        self.page.evaluate("visit.settled()")


@pytest.fixture(scope="module")
def visitors(browser):
    """Return a function that creates one visitor per width and setting, on first use."""
    visitors: dict[tuple, Visitor] = {}

    def visitor(width: int, **settings) -> Visitor:
        key = (width, *sorted(settings.items()))
        if key not in visitors:
            visitors[key] = Visitor(browser, width, **settings)
        return visitors[key]

    yield visitor
    for one in visitors.values():
        one.context.close()


@pytest.mark.parametrize("name", [*CHAPTERS, "genindex", "search"])
def test_page_is_whole(visitors, name):
    visitor = visitors(WIDE)
    page = visitor.open(name)
    faults = page.evaluate("visit.look({narrow: false})")
    if (shifted := page.evaluate("visit.shifted()")) >= 0.1:
        faults.append(f"the page moves by {shifted:.2f} while it loads")
    faults += lost(page.evaluate("visit.links()"))
    page.evaluate(Axe().axe_script)
    for scheme, rules in (("light", None), ("dark", OF_COLOR)):
        visitor.theme(scheme)
        look = page.evaluate("scheme => visit.unlike(scheme)", scheme)
        look += page.evaluate("rules => visit.axe(rules)", rules)
        faults += [f"{scheme} theme: {fault}" for fault in look]
    visitor.resize(NARROW)
    look = page.evaluate("visit.look({narrow: true})")
    faults += [f"narrow: {fault}" for fault in look]
    source = (HTML / f"{name}.html").read_text(encoding="utf-8")
    charts = source.count('class="rope-chart"')
    faults += page.evaluate("charts => visit.still(charts)", charts)
    assert visitor.faults + faults == []


def lost(links: list[str]) -> list[str]:
    """Return the dead links within the book."""
    dead = []
    for link in sorted({*links}):
        place = urlsplit(link)
        path = Path(unquote(place.path))
        if place.scheme != "file" or (path.suffix != ".html" and path.is_file()):
            continue
        if not path.is_file() or (place.fragment and unquote(place.fragment) not in ids(path)):
            dead.append(f"a dead link: {link}")
    return dead


@cache
def ids(path: Path) -> set[str]:
    return {*re.findall(r'\sid="([^"]*)"', path.read_text(encoding="utf-8"))}


class Chart:
    """Move and read the first chart of a page the way a reader does."""

    def __init__(self, page: Page) -> None:
        self.box = page.locator(".rope-chart").first
        self.play = self.box.locator(".rope-play")

    def move(self, **values: float) -> None:
        for slider, value in values.items():
            self.box.locator(f'input[name="{slider}"]').fill(f"{value:g}")
        self.box.evaluate("async (box) => void (await box.ropeView.runAsync())")

    def value(self, slider: str) -> float:
        return float(self.box.locator(f'input[name="{slider}"]').input_value())

    def reading(self, name: str) -> str:
        text = self.box.locator(f".{name}_marks text").text_content()
        return (text or "").replace("\u2212", "-")


def test_score_follows_the_difference_alone(visitors, subtests):
    """Check both widths, and that turning a phone keeps the sliders' values."""
    visitor = visitors(WIDE)
    chart = Chart(visitor.open(TOC["root"]))
    q, k = np.array(Q), np.array(K)
    for width, turned in ((WIDE, NARROW), (NARROW, WIDE)):
        for m, n, shift in [(30, 3, 0), (30, 3, 2), (4, 9, 0), (4, 9, 21)]:
            with subtests.test(width=width, m=m, n=n, shift=shift):
                chart.move(m=m, n=n, shift=shift)
                expected = score(q, k, m, n, np.array([THETA]))
                assert chart.reading("score") == f"q · k = {expected:.3f}"
                where = f"q at {m + shift}, k at {n + shift}, n - m = {n - m}"
                assert chart.reading("positions") == where
        visitor.resize(turned)
        assert chart.reading("positions") == "q at 25, k at 30, n - m = 5"
        assert (chart.value("m"), chart.value("n"), chart.value("shift")) == (4, 9, 21)
        assert "Play" in chart.play.inner_text()
    assert visitor.faults == []


def test_play_moves_by_the_clock_and_stops(browser):
    visitor = Visitor(browser, WIDE)
    visitor.page.clock.install()
    page = visitor.open(TOC["root"])
    chart = Chart(page)
    spec = chart.box.locator("script").first.evaluate("node => JSON.parse(node.textContent)")
    play = spec["usermeta"]["play"]
    before, start = chart.reading("score"), chart.value("shift")
    page.clock.pause_at(page.evaluate("Date.now() + 1000"))
    chart.play.click()
    page.clock.run_for(1000)
    moved = (play["max"] - play.get("min", 0)) / play["seconds"]
    assert chart.value("shift") == pytest.approx(start + moved, abs=play.get("step", 0.5))
    assert chart.reading("score") == before
    chart.play.click()
    stopped = chart.value("shift")
    page.clock.run_for(1000)
    assert chart.value("shift") == stopped
    chart.play.click()
    page.clock.resume()
    visitor.resize(NARROW)
    assert "Pause" in chart.play.inner_text(), "turning a phone must not stop the animation"
    assert visitor.faults == []
    visitor.context.close()


def test_search_finds_the_question(visitors):
    visitor = visitors(WIDE)
    page = visitor.open(TOC["root"])
    page.keyboard.press("Control+k")
    page.locator('input[type="search"]:visible').first.fill("why is V not rotated")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=why*")
    page.locator(".search-summary").last.filter(has_text="finished").wait_for()
    result = page.locator("#search-results ul.search").last.locator("a").first
    assert "questions.html#why-is-v-not-rotated" in result.get_attribute("href")
    result.click()
    page.wait_for_url("**/chapters/questions.html#why-is-v-not-rotated")
    visitor.wait()
    assert page.locator("#why-is-v-not-rotated").bounding_box()["y"] < 300
    assert visitor.faults == []


def test_without_script_a_chart_is_described(visitors):
    page = visitors(WIDE, java_script_enabled=False).open(TOC["root"], wait=False)
    words = page.locator(".rope-chart noscript").first.inner_text()
    assert "needs JavaScript" in words and len(words) > 100


@pytest.mark.parametrize("script", [True, False])
def test_a_check_is_a_mark_that_a_key_opens(visitors, script):
    page = visitors(WIDE, java_script_enabled=script).open("chapters/why_rotation", wait=script)
    assert "importlib" not in page.locator("article").inner_text(), "set-up code must not show"
    for kind, name in ((".tag_check", "^Check: ."), (":has(figure)", "^code$")):
        fold = page.locator(f".cell{kind} > details").first
        summary, code = fold.locator("summary"), fold.locator(".cell_input")
        expect(summary).to_have_accessible_name(re.compile(name))
        assert summary.bounding_box()["width"] < 80
        for key, opened in (("Enter", True), (" ", False)):
            summary.press(key)
            assert code.is_visible() == opened


def test_the_link_of_a_theorem_shows_at_the_keyboard(visitors):
    page = visitors(WIDE).open("chapters/rotation_in_two_dimensions")
    link = page.locator("#thm-rope-2d > .admonition-title > a.headerlink")
    opacity = "link => getComputedStyle(link).opacity"
    link.scroll_into_view_if_needed()
    page.mouse.move(0, 0)
    assert link.evaluate(opacity) == "0"
    page.keyboard.press("Tab")  # so that the focus counts as set by the keyboard
    link.focus()
    page.wait_for_function("() => getComputedStyle(document.activeElement).opacity === '1'")
