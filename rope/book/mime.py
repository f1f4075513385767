"""How the built page shows a stored figure: SVG inlined, Vega-Lite as a box for charts.js.

Stored figures are dark ink on paper. On the page the roles of `rope.book.figures.style` become the
theme's colours, so that a figure is light on a dark page.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from typing import Any

from docutils import nodes
from myst_nb.core.render import NbElementRenderer

from rope.book.figures import style
from rope.book.figures.chart import VEGA_LITE

SVG = "image/svg+xml"
EXPLORER = '<div class="rope-explorer"'  # its colours are the theme's; the theme's tables' are not
ROLES = ("muted", "grid", "paper", "blue", "vermilion", "green", "purple", "ochre", "sky")
THEME_COLOURS = {style.INK: "currentColor"}
THEME_COLOURS |= {getattr(style, role.upper()): f"var(--rope-{role})" for role in ROLES}
SMALLEST_TEXT = 9  # pixels; a page too narrow for that scrolls the figure in its own box


class BookRenderer(NbElementRenderer):
    """MyST-NB's renderer with the figures of this book, for a project whose settings name it.

    `_config.yml` does, by `nb_render_plugin`; the name is an entry point in `pyproject.toml`.
    """

    def render_mime_type(self, data: Any) -> list[nodes.Element]:
        """Nodes for the figures of this book, and MyST-NB's own for the rest."""
        if data.mime_type == SVG and 'role="img"' in data.string:
            place = f"{data.cell_index}-{data.output_index}"
            text = inline_svg(data.string, place)
            return [nodes.raw(text=text, format="html", classes=["output"])]
        if data.mime_type == VEGA_LITE:
            for key, name in (("rope-vega", "vega.js"), ("rope-charts", "charts.js")):
                self.add_js_file(key, name, {"defer": "defer"})
            return [nodes.raw(text=chart_box(data.content), format="html", classes=["output"])]
        if data.mime_type == "text/html" and data.string.startswith(EXPLORER):
            return [nodes.raw(text=data.string, format="html", classes=["output"])]
        return super().render_mime_type(data)


def inline_svg(svg: str, place: str = "") -> str:
    """A picture's SVG as part of a page: its theme's colours, ids of its own, alt text.

    svg: as `rope.book.figures.picture` stores it.
    place: tells it from an equal picture elsewhere on the page.

    Raises ValueError: it has no title, or no size.
    """
    title = re.search(r"<title>(.*?)</title>", svg, re.S)
    size = re.search(r'viewBox="0 0 ([\d.]+) [\d.]+" width="(\d+)"', svg)
    if title is None or size is None:
        raise ValueError("an SVG with role img has no title or no size; was it made by picture()?")
    own = hashlib.sha256((place + svg).encode()).hexdigest()[:8]
    svg = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>f{own}-", svg)
    for stored, shown in THEME_COLOURS.items():
        svg = svg.replace(stored, shown)
    svg = re.sub(r"\s*<title>.*?</title>", "", svg, count=1, flags=re.S)
    narrowest = round(SMALLEST_TEXT / style.SETTINGS["font.size"] * float(size[1]))
    label = html.escape(html.unescape(title[1]), quote=True)
    head = f'<svg aria-label="{label}" '
    widths = f'style="--rope-width: {size[2]}px; --rope-narrowest: {narrowest}px"'
    return f'<div class="rope-picture" {widths}>{svg.replace("<svg ", head, 1)}</div>'


def chart_box(spec: Any) -> str:
    """The box that charts.js fills: the chart's JSON, and without script its description and still.

    The still shows the state that the chart is stored in, in the page's font, its panels stacked,
    so that its words can be read on a phone.
    """
    from rope.book.paper.pictures import still_chart  # which takes its colours from here

    label = html.escape(str(spec.get("description", "")), quote=True)
    own = hashlib.sha256(json.dumps(spec).encode()).hexdigest()[:8]
    still = re.sub(r' font-family="[^"]*"', "", still_chart(spec, f"f{own}", narrow=True))
    still = still.replace("<svg ", '<svg style="max-width: 100%; height: auto" ', 1)
    # No string of the JSON may end the script element.
    text = json.dumps(spec, ensure_ascii=False).replace("<", "\\u003c")
    box = (
        f'<div class="rope-chart" role="group" aria-label="{label}">'
        f'<script type="application/json">{text}</script>'
        f"<noscript>{still}<p>This figure moves, which needs JavaScript.</p></noscript></div>"
    )
    for stored, shown in THEME_COLOURS.items():
        box = box.replace(stored, shown)
    return box
