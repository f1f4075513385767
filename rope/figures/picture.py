"""Static figures: a Matplotlib figure as one SVG that is the same on every machine.

The tests compare the stored SVG as a string, so it carries no date, no version and no random
id, and its coordinates are rounded to a hundredth of a point.
"""

import io
import re
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from rope.figures.style import SETTINGS

FONTS = "'DejaVu Sans', Verdana, sans-serif"
PIXELS_PER_POINT = 1.5  # ten-point text is shown at the size of the page's text


class Picture:
    """A static figure: its SVG, and the sentence that stands for it where it is not seen."""

    def __init__(self, svg: str, alt: str) -> None:
        self.svg = svg
        self.alt = alt

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self.svg, "text/plain": repr(self)}


def picture(figure: Figure, *, alt: str) -> Picture:
    """A Matplotlib figure, best made by `rope.figures.subplots`, as the picture that a cell shows.

    alt: what is seen and what it shows, for readers who do not see it.
    Raises ValueError where `alt` is empty.

    >>> from rope.figures import picture, subplots
    >>> fig, ax = subplots()
    >>> picture(fig, alt="Empty axes.")
    Figure: Empty axes.
    """
    alt = " ".join(alt.split())
    if not alt:
        raise ValueError("alt is empty: say in a sentence what the figure shows.")
    buffer = io.StringIO()
    with matplotlib.rc_context(SETTINGS):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    return Picture(_settle(buffer.getvalue(), alt), alt)


def _settle(svg: str, alt: str) -> str:
    """Matplotlib's SVG without what differs between machines, with a title and a size."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.S)
    svg = _short_ids(svg)
    svg = re.sub(r"<(?!svg)[^>]+>", lambda tag: _round(tag[0]), svg)
    # Said once at the root instead of at each text, and never in a <style>, which would rule
    # the whole page that the SVG stands in.
    svg = re.sub(r"<style.*?</style>|\s*<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.S)
    svg = re.sub(r"font-family: 'DejaVu Sans'[^;\"]*; ?", "", svg)
    svg = re.sub(r' transform="rotate\(-?0 [^"]*"', "", svg)
    svg = re.sub(r"\n(?=[MLQCz\"])", " ", svg).replace(' "', '"')
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    if box is None:
        raise RuntimeError("Matplotlib wrote an SVG without a viewBox.")
    width, height = float(box[1]), float(box[2])
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
    """Drop the ids that nothing refers to and number the others in order."""
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", svg))
    names: dict[str, str] = {}

    def define(match: re.Match[str]) -> str:
        if match[1] not in used:
            return ""
        return f' id="{names.setdefault(match[1], f"i{len(names) + 1}")}"'

    svg = re.sub(r'\s+id="([^"]*)"', define, svg)

    def refer(match: re.Match[str]) -> str:
        return match[1] + names.get(match[2], match[2])

    return re.sub(r"(url\(#|href=\"#)([^)\"]+)", refer, svg)


def _round(tag: str) -> str:
    """Round the numbers of one tag to two decimals, the factors of a matrix or scale excepted."""

    def one(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        text = f"{float(match[2]):.2f}".rstrip("0").rstrip(".")
        return "0" if text in ("-0", "") else text

    return re.sub(r"((?:matrix|scale)\([^)]*\))|(-?\d+\.\d+(?:e-?\d+)?)", one, tag)
