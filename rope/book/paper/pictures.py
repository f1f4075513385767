"""Figures that stand still: stored drawings in fixed colours, charts in their first state."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from rope.book.mime import THEME_COLOURS
from rope.book.tools.sphinx_extension import VEGA_LITE

# The page's charts have the page's own font; these name one that is here to be measured.
FONT = "DejaVu Sans"


def fonts() -> Path:
    """The folder of fonts that Matplotlib brings: the figures', and those of the printed text."""
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def fixed_colours(text: str) -> str:
    """Text with the theme's colours as the stored ones: on paper there is one theme."""
    for stored, shown in THEME_COLOURS.items():
        text = text.replace(shown, stored)
    return text


def still_drawing(box: str) -> str:
    """The SVG of a page's `.rope-picture`, with its description as its title.

    Raises ValueError: the box has no SVG with a description.
    """
    found = re.search(r'<svg aria-label="([^"]*)" (.*</svg>)', box, re.S)
    if found is None:
        raise ValueError(f"a picture without a described SVG: {box[:80]!r}")
    return described(f"<svg {fixed_colours(found[2])}", html.unescape(found[1]))


def still_chart(spec: dict[str, Any], own: str, *, narrow: bool = False) -> str:
    """The SVG of a Vega-Lite chart in the state that it is stored in.

    spec: the chart, with the theme's colours, as the page holds it.
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


def controls(spec: dict[str, Any]) -> str:
    """One line of HTML: what moves the chart on the page, and the state that it is drawn in.

    Raises ValueError: the chart has no control.
    """
    set_here = [
        f"<em>{html.escape(one['bind']['name'])}</em> {shown(one['bind'], one['value'])}"
        for one in spec.get("params", [])
        if isinstance(one.get("bind"), dict)
    ]
    if not set_here:
        raise ValueError("a chart without a control; a still figure is drawn with `picture`")
    noun = "controls" if len(set_here) > 1 else "control"
    return f"In the browser this figure moves. Its {noun}, as set here: {'; '.join(set_here)}."


def shown(bind: dict[str, Any], value: Any) -> str:
    """A control's value as the page writes it: with the decimals of the slider's own step."""
    if bind["input"] != "range":
        return html.escape(str(value))
    decimals = len(str(bind.get("step", 1)).partition(".")[2])
    return f"{value:.{decimals}f}".replace("-", "−")
