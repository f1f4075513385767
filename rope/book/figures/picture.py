"""Turn a Matplotlib figure into an SVG that is identical on every machine.

The tests compare the stored SVG as a string. The SVG therefore contains no date, version, or random
id, and its coordinates are rounded to a hundredth of a point.
"""

import io
import re
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from rope.book.figures.style import SETTINGS

FONTS = "'DejaVu Sans', Verdana, sans-serif"
NUMBER = re.compile(r"((?:matrix|scale)\([^)]*\))|(-?\d+\.\d+(?:e-?\d+)?)")
PIXELS_PER_POINT = 1.5  # makes ten-point text as large as the page's text


@dataclass(frozen=True, repr=False)
class Picture:
    """Hold a static figure: its SVG, and the alt text for readers who can't see the figure."""

    svg: str
    alt: str

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self.svg, "text/plain": repr(self)}


def picture(figure: Figure, *, alt: str) -> Picture:
    """Return a Matplotlib figure as a cell's output.

    figure: created by `rope.book.figures.subplots` or `panels`.
    alt: what the figure looks like and what it shows, for readers who can't see the figure.

    >>> from rope.book.figures import picture, subplots
    >>> fig, ax = subplots()
    >>> picture(fig, alt="Empty axes.")
    Figure: Empty axes.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context(SETTINGS):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    width, height = figure.get_size_inches() * 72
    return Picture(_settle(buffer.getvalue(), alt, width, height), alt)


def _settle(svg: str, alt: str, width: float, height: float) -> str:
    """Remove everything that differs between machines, and add a title and a size."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.S)
    svg = _short_ids(svg)
    svg = re.sub(r"<(?!svg)[^>]+>", lambda tag: NUMBER.sub(_round, tag[0]), svg)
    # The root element sets the font. A <style> element would apply to the entire page.
    svg = re.sub(r"<style.*?</style>|\s*<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.S)
    svg = re.sub(r"font-family: 'DejaVu Sans'[^;\"]*; ?", "", svg)
    svg = re.sub(r' transform="rotate\(-?0 [^"]*"', "", svg)
    svg = re.sub(r"\n(?=[MLQCz\"])", " ", svg).replace(' "', '"')
    looks = "stroke-linejoin: round; stroke-linecap: butt; font-family: " + FONTS
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {width:g} {height:g}" width="{width * PIXELS_PER_POINT:.0f}" '
        f'height="{height * PIXELS_PER_POINT:.0f}" role="img" '
        f'style="max-width: 100%; height: auto; {looks}">\n <title>{escape(alt)}</title>'
    )
    svg = re.sub(r"<svg[^>]*>", lambda _: head, svg, count=1)
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def _short_ids(svg: str) -> str:
    """Remove unused ids and number the remaining ids in order."""
    defines, refers = r'\s+id="([^"]*)"', r'(url\(#|href="#)([^)"]+)'
    used = {name for _, name in re.findall(refers, svg)}
    names = dict.fromkeys(name for name in re.findall(defines, svg) if name in used)
    short = {name: f"i{number}" for number, name in enumerate(names, start=1)}
    svg = re.sub(defines, lambda id: f' id="{short[id[1]]}"' if id[1] in used else "", svg)
    return re.sub(refers, lambda reference: reference[1] + short[reference[2]], svg)


def _round(match: re.Match[str]) -> str:
    """Round a number to two decimals, but leave the factors of a matrix or a scale unchanged."""
    return match[1] or f"{round(float(match[2]), 2) + 0:g}"
