"""A trained model's attention, a head at a time: "What the model uses".

The moving chart carries the weights as text, two base-36 digits for a thousandth each and nothing
above the diagonal; Vega reads the digits of the head that is chosen. Shapes: L layers, H heads, S
tokens.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from rope.book.figures import chart
from rope.book.figures.style import BLUE

SIDE = 288  # pixels: 32 cells of 9
LONGEST = 48
SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥"}  # what leaves no mark gets one

Grid = Sequence[Sequence[Sequence[float]]]


def attention_maps(weights: Sequence[Grid], text: str, *, layer: int = 0, head: int = 0) -> Any:
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
    reach = cells.transform_calculate(part="datum.weight*(datum.m - datum.n)")
    means = reach.transform_aggregate(part="sum(part)", whole="sum(weight)")
    said = (
        "'layer ' + layer + ', head ' + head + ': looks back ' + "
        "format(datum.part/datum.whole, '.1f') + ' on average'"
    )
    words = chart.reading(said, y=10, size=14, of=means).properties(width=SIDE, height=20)
    shown = [SHOWN.get(character, character) for character in text]
    return chart.finish(
        alt.vconcat(words, _squares(cells, size), spacing=6).add_params(
            chart.slider("layer", 0, layers - 1, 1, layer, "layer"),
            chart.slider("head", 0, heads - 1, 1, head, "head"),
            alt.param(name="maps", value=[encode(found) for part in weights for found in part]),
            alt.param(name="shown", value=shown),
        ),
        alt_text=f"A triangular map of attention weights over the {size} characters "
        f"“{''.join(shown)}”: a row for each query, a column for each key up to it, the fuller in "
        f"colour the more weight. Sliders choose one of {layers} layers and one of {heads} heads. "
        f"On average over the queries, {_near_and_far(weights)}.",
    )


def _squares(cells: alt.Chart, size: int) -> alt.Chart:
    """A square a cell, the fuller in colour the more weight, the text along both sides."""
    places = alt.Scale(domain=list(range(size)), paddingInner=0.06, paddingOuter=0)
    look: dict[str, Any] = {
        "labelExpr": "shown[datum.value]",
        "labelAngle": 0,
        "labelFont": "monospace",
        "labelFontSize": 10,
        "labelOverlap": False,
        "labelPadding": 2,
        "titlePadding": 6,
        "ticks": False,
        "domain": False,
    }
    legend = alt.Legend(
        title="weight",
        orient="bottom",
        symbolType="square",
        symbolFillColor=BLUE,
        symbolStrokeWidth=0,
        symbolSize=200,
        format="~g",
        values=[0.01, 0.1, 0.3, 0.6, 1],
    )
    full = alt.Scale(type="sqrt", domain=[0, 1], range=[0.03, 1])
    step = {"step": SIDE / size}
    squares = cells.mark_rect(color=BLUE).encode(
        x=alt.X("n:O", title="key", axis=alt.Axis(orient="top", **look), scale=places),
        y=alt.Y("m:O", title="query", axis=alt.Axis(orient="left", **look), scale=places),
        opacity=alt.Opacity("weight:Q", scale=full, legend=legend),
    )
    return squares.properties(width=step, height=step)


def encode(weights: Sequence[Sequence[float]]) -> str:
    """The lower triangle in thousandths, row by row, two base-36 digits each.

    >>> encode([[1.0, 0.0], [0.25, 0.75]])  # 27*36 + 28 = 1000, 6*36 + 34 = 250
    'rs6yku'
    """
    found = [round(1000 * weight) for m, row in enumerate(weights) for weight in row[: m + 1]]
    return "".join(np.base_repr(value, 36).lower().zfill(2) for value in found)


def _near_and_far(weights: Sequence[Grid]) -> str:
    """The nearest-sighted and the farthest-sighted head."""
    maps = np.array(weights)
    places = np.arange(maps.shape[-1])
    reach = (maps * (places[:, None] - places)).sum(axis=(2, 3)) / len(places)
    near, far = (np.unravel_index(at, reach.shape) for at in (reach.argmin(), reach.argmax()))
    return (
        f"head {near[1]} of layer {near[0]} looks back the least, by {reach[near]:.1f} characters, "
        f"and head {far[1]} of layer {far[0]} the most, by {reach[far]:.1f}"
    )
