"""A Chromium without a network, with the MathJax that the built pages bring."""

from __future__ import annotations

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
def offline_page(file: Path, width: int = 800) -> Iterator[Page]:
    """A file opened in Chromium, MathJax loaded, which must ask for nothing outside.

    Raises RuntimeError: an error in the page, or a request to a network.
    """
    faults: list[str] = []
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        try:
            context = browser.new_context(offline=True, viewport={"width": width, "height": 1000})
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
