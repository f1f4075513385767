"""How the built page shows a stored figure: SVG inlined, Vega-Lite as a box for charts.js.

Stored figures are dark ink on paper. On the page the roles of `rope.book.figures.style` become the
theme's colours, so that a figure is light on a dark page.
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
EXPLORER = '<div class="rope-explorer"'  # its colours are the theme's; the theme's tables' are not
ROLES = ("muted", "grid", "paper", "blue", "vermilion", "green", "purple", "ochre", "sky")
THEME_COLOURS = {style.INK: "currentColor"}
THEME_COLOURS |= {getattr(style, role.upper()): f"var(--rope-{role})" for role in ROLES}
# The page's charts have the page's own font; stills name one that is here to be measured.
FONT = "DejaVu Sans"
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
        if data.mime_type == MIME:
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
    svg = svg.replace(' target="_blank"', "")  # a link within the book stays in its tab
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


def still_chart(spec: dict[str, Any], own: str, *, narrow: bool = False) -> str:
    """The SVG of a Vega-Lite chart in the state that it is stored in.

    spec: the chart, as it is stored or, with the theme's colours, as the page holds it.
    own: goes before the SVG's ids, which must differ from those of every other chart.
    narrow: panels that stand side by side are stacked, as on a narrow page.
    """
    import vl_convert

    spec = json.loads(fixed_colours(json.dumps(spec)))
    spec["background"] = "transparent"
    spec["config"] = spec.get("config", {}) | {"font": FONT}
    if narrow and "hconcat" in spec:
        spec |= {"vconcat": spec.pop("hconcat"), "spacing": 24, "center": True}
    vl_convert.register_font_directory(str(fonts()))
    svg = vl_convert.vegalite_to_svg(spec, VEGA_LITE)
    svg = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{own}-", svg)
    return described(svg, str(spec.get("description", "")))


def described(svg: str, title: str) -> str:
    """The SVG as an image that has a description, and no second one of its maker's."""
    label = html.escape(title, quote=True)
    svg = re.sub(r'^<svg (?:(?:role|aria-label|aria-roledescription)="[^"]*" )*', "<svg ", svg)
    svg = re.sub(r'^(<svg [^>]*?) role="[^"]*"', r"\1", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def fixed_colours(text: str) -> str:
    """Text with the theme's colours as the stored ones: on paper there is one theme."""
    for stored, shown in THEME_COLOURS.items():
        text = text.replace(shown, stored)
    return text


def fonts() -> Path:
    """The folder of fonts that Matplotlib brings: the figures', and those of the printed text."""
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"
