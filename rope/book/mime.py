"""Show stored figures on the built pages: SVG pictures inline, and Vega-Lite charts in boxes.

Stored figures are drawn in dark ink on light paper. A page replaces the colors of
`rope.book.figures.style` with the theme's colors, so a figure on a dark page has light ink.
On the page, charts.js draws the charts in their boxes.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_nb.core.render import NbElementRenderer

from rope.book.figures import style
from rope.book.figures.chart import MIME, VEGA_LITE

SVG = "image/svg+xml"
EXPLORER = '<div class="rope-explorer"'  # uses the theme's colors, unlike other HTML outputs
ROLES = ("muted", "grid", "paper", "blue", "vermilion", "green", "purple", "ochre", "sky")
THEME_COLORS = {style.INK: "currentColor"}
THEME_COLORS |= {getattr(style, role.upper()): f"var(--rope-{role})" for role in ROLES}
# Charts on a page use the page's font. A still image needs a font that can be measured here.
FONT = "DejaVu Sans"
SMALLEST_TEXT = 9  # pixels; if the page is too narrow for this size, the figure scrolls in its box


class BookRenderer(NbElementRenderer):
    """Render the book's figures, and leave all other outputs to MyST-NB.

    `_config.yml` selects this class with `nb_render_plugin`; pyproject.toml declares it.
    """

    def render_mime_type(self, data: Any) -> list[nodes.Element]:
        """Return raw HTML nodes for the book's figures, or MyST-NB's nodes for other outputs."""
        if data.mime_type == SVG and 'role="img"' in data.string:
            place = f"{data.cell_index}-{data.output_index}"
            text = inline_svg(data.string, place)
            return [nodes.raw(text=text, format="html", classes=["output"])]
        if data.mime_type == MIME:
            for key, name in (("rope-vega", "vega.js"), ("rope-charts", "charts.js")):
                self.add_js_file(key, name, {"defer": "defer"})
            return [nodes.raw(text=chart_box(data.content), format="html", classes=["output"])]
        if data.mime_type == "text/html" and data.string.startswith(EXPLORER):
            return [nodes.raw(text=data.string, format="html", classes=["output"])]
        return super().render_mime_type(data)


def inline_svg(svg: str, place: str = "") -> str:
    """Return a picture's SVG for a page, with the theme's colors, unique ids, and alt text.

    svg: the text that `rope.book.figures.picture` stores.
    place: distinguishes the picture from an identical picture elsewhere on the page.
    Raises ValueError if the SVG lacks a title or a size.
    """
    title = re.search(r"<title>(.*?)</title>", svg, re.S)
    size = re.search(r'viewBox="0 0 ([\d.]+) [\d.]+" width="(\d+)"', svg)
    if title is None or size is None:
        raise ValueError("an SVG with role img lacks a title or a size; create it with picture()")
    own = hashlib.sha256((place + svg).encode()).hexdigest()[:8]
    svg = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>f{own}-", svg)
    for stored, shown in THEME_COLORS.items():
        svg = svg.replace(stored, shown)
    svg = re.sub(r"\s*<title>.*?</title>", "", svg, count=1, flags=re.S)
    svg = svg.replace(' target="_blank"', "")  # links within the book open in the same tab
    narrowest = round(SMALLEST_TEXT / style.SETTINGS["font.size"] * float(size[1]))
    label = html.escape(html.unescape(title[1]), quote=True)
    head = f'<svg aria-label="{label}" '
    widths = f'style="--rope-width: {size[2]}px; --rope-narrowest: {narrowest}px"'
    return f'<div class="rope-picture" {widths}>{svg.replace("<svg ", head, 1)}</div>'


def chart_box(spec: Any) -> str:
    """Return the box that charts.js fills; it holds the chart's JSON and its description."""
    label = html.escape(str(spec.get("description", "")), quote=True)
    # A string in the JSON must not end the script element.
    text = json.dumps(spec, ensure_ascii=False).replace("<", "\\u003c")
    box = (
        f'<div class="rope-chart" role="group" aria-label="{label}">'
        f'<script type="application/json">{text}</script>'
        f"<noscript><p>This interactive figure needs JavaScript. {label}</p></noscript></div>"
    )
    for stored, shown in THEME_COLORS.items():
        box = box.replace(stored, shown)
    return box


def still_chart(spec: dict[str, Any], own: str) -> str:
    """Return the SVG of a Vega-Lite chart in its stored state.

    spec: the chart's JSON, with either the stored colors or the theme's colors.
    own: a prefix for the SVG's ids, which must be different for every chart.
    """
    import vl_convert

    text = json.dumps(spec)
    for stored, shown in THEME_COLORS.items():
        text = text.replace(shown, stored)
    spec = json.loads(text)
    spec["background"] = "transparent"
    spec["config"] = spec.get("config", {}) | {"font": FONT}
    vl_convert.register_font_directory(str(fonts()))
    svg = vl_convert.vegalite_to_svg(spec, VEGA_LITE)
    svg = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{own}-", svg)
    # Vega-Lite adds its own role and labels to the SVG: replace them with our description.
    label = html.escape(str(spec.get("description", "")), quote=True)
    svg = re.sub(r'^<svg (?:(?:role|aria-label|aria-roledescription)="[^"]*" )*', "<svg ", svg)
    svg = re.sub(r'^(<svg [^>]*?) role="[^"]*"', r"\1", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def fonts() -> Path:
    """Return the folder of Matplotlib's fonts, which figures and still images use."""
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"
