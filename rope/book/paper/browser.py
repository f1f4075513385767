"""A Chromium without a network, with the MathJax that the built pages bring."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"] + [
    f"/Applications/{name}.app/Contents/MacOS/{name}" for name in ("Chromium", "Google Chrome")
]
#: Formulas are set and nothing is added for a screen: a menu, a second form for screen readers.
MATHJAX = """<script>
window.MathJax = {
  startup: { typeset: false },
  tex: { packages: { "[-]": ["noundefined"] } }, // an unknown command is an error, not red text
  options: {
    enableMenu: false,
    renderActions: { assistiveMml: [] },
    ignoreHtmlClass: "chapter",
    processHtmlClass: "math",
  },
};
</script>
"""


#: A figure that is drawn by a script of its own, and says without it what it would show.
DRAWN_BY_SCRIPT = "[aria-label]:not(.rope-chart):has(> script):has(> noscript)"

# For a photo: no part of the page over the figure, and in it nothing to press or to be asked.
BARE = """header, .skip-link, .pst-skip-link, #pst-skip-link, .bd-header-article,
.guess, .pick, .strip { display: none !important }"""


def mathjax(html: Path) -> str:
    """The elements that load MathJax from the folder of the built pages."""
    script = html / "_static" / "mathjax" / "tex-chtml.js"
    return f'{MATHJAX}<script src="{script.resolve().as_uri()}"></script>'


def chromium() -> str:
    """The path of a Chromium: the one that CHROMIUM names, or the first that is found.

    Raises FileNotFoundError: there is none.
    """
    named = os.environ.get("CHROMIUM")
    found = next(filter(None, map(shutil.which, [named] if named else NAMES)), None)
    if found is None:
        raise FileNotFoundError(
            f"no Chromium found{f' at CHROMIUM={named}' if named else ''}: install one (Debian: "
            "`apt-get install chromium`; macOS: `brew install --cask chromium`) or set CHROMIUM "
            "to a browser's executable."
        )
    return found


@contextmanager
def offline_page(file: Path, width: int = 800, *, scale: int = 1) -> Iterator[Page]:
    """A file opened in Chromium, MathJax loaded, which must ask for nothing outside.

    Raises RuntimeError: an error in the page, or a request to a network.
    """
    faults: list[str] = []
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        try:
            context = browser.new_context(
                offline=True,
                viewport={"width": width, "height": 1000},
                device_scale_factor=scale,
                reduced_motion="reduce",
            )
            page = context.new_page()
            page.set_default_timeout(300_000)
            page.on("pageerror", lambda error: faults.append(f"error: {error}"))
            page.on("requestfailed", lambda request: faults.append(f"not found: {request.url}"))
            page.emulate_media(media="print", color_scheme="light")
            page.goto(file.resolve().as_uri())
            page.evaluate("MathJax.startup.promise")
            yield page
        finally:
            browser.close()
    if faults:
        raise RuntimeError(f"{file.name}: {'; '.join(faults[:5])}")


def photos(file: Path, number: int) -> list[str]:
    """The figures of a built page that scripts of their own draw, as PNGs in base 64.

    number: how many there are; for none no browser is opened.

    Raises RuntimeError: the page shows another number of them.
    """
    if not number:
        return []
    with offline_page(file, scale=2) as page:
        page.emulate_media(media="screen", color_scheme="light")
        page.add_style_tag(content=BARE)
        boxes = page.locator(DRAWN_BY_SCRIPT).all()
        if len(boxes) != number:
            raise RuntimeError(f"{file.name}: {len(boxes)} of {number} figures are drawn")
        return [base64.b64encode(box.screenshot()).decode() for box in boxes]
