"""Figures that stand still: stored drawings in fixed colours, charts in their first state."""

from __future__ import annotations

import html
import re
from typing import Any

from rope.book.mime import described, fixed_colours


def still_drawing(box: str) -> str:
    """The SVG of a page's `.rope-picture`, with its description as its title.

    Raises ValueError: the box has no SVG with a description.
    """
    found = re.search(r'<svg aria-label="([^"]*)" (.*</svg>)', box, re.S)
    if found is None:
        raise ValueError(f"a picture without a described SVG: {box[:80]!r}")
    return described(f"<svg {fixed_colours(found[2])}", html.unescape(found[1]))


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
