"""The attention of a trained model, one head at a time: chapter "What the model uses".

The chart carries the weights as text, two base-36 digits for a thousandth each and nothing above
the diagonal; Vega reads the digits of the head that is chosen. Shapes: L layers, H heads, S tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from rope.figures import chart
from rope.figures.style import BLUE, INK

SIDE = 288  # pixels: 32 cells of 9
LONGEST = 48
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥"}


def attention_maps(
    weights: Sequence[Sequence[Sequence[Sequence[float]]]],
    text: str,
    *,
    layer: int = 0,
    head: int = 0,
) -> Any:
    """The map of one head over a short text, with sliders for the layer and the head.

    weights: `[L][H][S][S]`, rows the queries, zero ahead of them; text: the S characters.
    layer, head: what it opens on. Raises ValueError for a text that does not fit weights or page.
    """
    size, layers, heads = len(text), len(weights), len(weights[0])
    if size != len(weights[0][0]) or not 0 < size <= LONGEST:
        raise ValueError(
            f"text has {size} characters for {len(weights[0][0])} rows of weights; it must have "
            f"one a row and at most {LONGEST}, which fit a page: pass a shorter stretch of both"
        )
    sliders = (
        chart.slider("layer", 0, layers - 1, 1, layer, "layer"),
        chart.slider("head", 0, heads - 1, 1, head, "head"),
    )
    values = [encode(found) for part in weights for found in part]
    stored = (alt.param(name="maps", value=values), alt.param(name="shown", value=characters(text)))
    chosen = f"maps[{heads}*layer + head]"
    cells = (
        alt.Chart(alt.sequence(0, size * size, as_="cell"))
        .transform_calculate(m=f"floor(datum.cell/{size})", n=f"datum.cell % {size}")
        .transform_filter("datum.n <= datum.m")
        .transform_calculate(at="datum.m*(datum.m + 1)/2 + datum.n")
        .transform_calculate(
            weight=f"parseInt(slice({chosen}, 2*datum.at, 2*datum.at + 2), 36)/1000"
        )
    )
    step = SIDE / size
    squares = cells.mark_rect(color=BLUE).encode(
        x=_axis("x", "key", size),
        y=_axis("y", "query", size),
        opacity=alt.Opacity(
            "weight:Q",
            scale=alt.Scale(type="sqrt", domain=[0, 1], range=[0.03, 1]),
            legend=alt.Legend(
                title="weight",
                orient="bottom",
                symbolType="square",
                symbolFillColor=BLUE,
                symbolStrokeWidth=0,
                symbolSize=200,
                format="~g",
                values=[0.01, 0.1, 0.3, 0.6, 1],
            ),
        ),
    )
    reach = cells.transform_calculate(part="datum.weight*(datum.m - datum.n)")
    means = reach.transform_aggregate(part="sum(part)", whole="sum(weight)")
    said = means.transform_calculate(
        text="'layer ' + layer + ', head ' + head + ': looks back ' + "
        "format(datum.part/datum.whole, '.1f') + ' on average'"
    )
    words = (
        said.mark_text(align="left", baseline="middle", fontSize=14, color=INK)
        .encode(x=alt.value(0), y=alt.value(10), text="text:N")
        .properties(width=SIDE, height=20)
    )
    image = squares.properties(width={"step": step}, height={"step": step})
    whole = alt.vconcat(words, image, spacing=6).add_params(*sliders, *stored)
    return chart.finish(whole, alt_text=_said(weights, text))


def encode(weights: Sequence[Sequence[float]]) -> str:
    """The lower triangle in thousandths, row by row, two base-36 digits each.

    >>> encode([[1.0, 0.0], [0.25, 0.75]])  # 27*36 + 28 = 1000, 6*36 + 34 = 250
    'rs6yku'
    """
    found = [round(1000 * weight) for m, row in enumerate(weights) for weight in row[: m + 1]]
    return "".join(DIGITS[value // 36] + DIGITS[value % 36] for value in found)


def characters(text: str) -> list[str]:
    """The characters as labels; what leaves no mark gets one.

    >>> characters("a b")
    ['a', '␣', 'b']
    """
    return [SHOWN.get(character, character) for character in text]


def _axis(channel: str, title: str, size: int) -> Any:
    """Places 0 ... S-1 with the text's characters for labels."""
    axis = alt.Axis(
        labelExpr="shown[datum.value]",
        labelAngle=0,
        labelFont="monospace",
        labelFontSize=10,
        labelOverlap=False,
        labelPadding=2,
        titlePadding=6,
        ticks=False,
        domain=False,
        orient="top" if channel == "x" else "left",
    )
    kind = alt.X if channel == "x" else alt.Y
    field = "n:O" if channel == "x" else "m:O"
    scale = alt.Scale(domain=list(range(size)), paddingInner=0.06, paddingOuter=0)
    return kind(field, title=title, axis=axis, scale=scale)


def _said(weights: Sequence[Sequence[Sequence[Sequence[float]]]], text: str) -> str:
    """The nearest-sighted and the farthest-sighted head."""
    reach = {
        (layer, head): sum(
            weight * (m - n) for m, row in enumerate(found) for n, weight in enumerate(row)
        )
        / len(found)
        for layer, part in enumerate(weights)
        for head, found in enumerate(part)
    }
    near, far = min(reach, key=lambda key: reach[key]), max(reach, key=lambda key: reach[key])
    shown = "".join(characters(text))
    return (
        f"A triangular map of attention weights over the {len(text)} characters “{shown}”: a row "
        "for each query, a column for each key up to it, the fuller in colour the more weight. "
        f"Sliders choose one of {len(weights)} layers and one of {len(weights[0])} heads. "
        f"On average over the queries, head {near[1]} of layer {near[0]} looks back the least, by "
        f"{reach[near]:.1f} characters, and head {far[1]} of layer {far[0]} the most, by "
        f"{reach[far]:.1f}."
    )
