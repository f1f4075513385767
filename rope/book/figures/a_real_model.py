"""Show the cost of changes to the rotation, and what heads attend to, for "A real model".

Shapes: S tokens.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import altair as alt
from torch import Tensor

from rope.book.figures import Picture, chart, picture, subplots
from rope.book.figures.style import BLUE, GREEN, MUTED, VERMILION
from rope.book.measured.intervals import stratified

SIDE = 300  # the width of a map in pixels
#: The name, mark, and color of each text that was measured.
MARKS = (("story", "o", BLUE), ("essays", "s", VERMILION), ("code", "D", GREEN))
VISIBLE = str.maketrans({"\n": "↵", "\t": "⇥"})


def price_list(rows: Mapping[str, Sequence[Sequence[float]]]) -> Picture:
    """Draw one row per change, with a bar for the mean increase in loss and one mark per text.

    rows: maps each change's name to one list per text. A list has one number per passage: the
    increase in loss, in nats per token. Each row ends with its mean and 95% interval.
    """
    figure, ax = subplots(height=1.1 + 0.27 * len(rows))
    far = max(max(map(fmean, texts)) for texts in rows.values())
    summaries = []
    for place, (name, texts) in enumerate(rows.items()):
        means, whole = [fmean(text) for text in texts], stratified(texts)
        ax.barh(place, whole.mean, height=0.62, color=BLUE, alpha=0.3)
        for mean, (text, shape, color) in zip(means, MARKS, strict=True):
            label = text if place == 0 else None
            ax.plot(mean, place, shape, color=color, markersize=5, label=label)
        price = f"{whole.mean:.2f} ± {whole.half:.2f}"
        ax.text(1.62 * far, place, price, va="center", ha="right")
        each = ", ".join(f"{mean:.2f}" for mean in means)
        summaries.append(f"{name} {price} ({each})")
    ax.axvline(0, color=MUTED, linewidth=1)
    ax.set_yticks(range(len(rows)), [*rows])
    ax.set_xlim(right=1.63 * far)
    ax.grid(axis="y", visible=False)
    ax.invert_yaxis()
    ax.set_xlabel("increase of the loss, nats per token")
    figure.legend(loc="outside upper center", ncols=3)
    return picture(
        figure,
        alt="Each bar shows a change's mean increase of the loss in nats per token, with its 95% "
        f"interval. Each mark shows one text (story, essays, code). {'; '.join(summaries)}.",
    )


def head_maps(weights: Mapping[str, Tensor], tokens: Sequence[str], *, menu: str = "head") -> Any:
    """Return an attention map over a short text, with a menu for choosing the head.

    weights: maps each head's name to its weights `[S, S]`, one row per query. tokens: S strings.
    """
    names, size = [*weights], len(tokens)
    # Store a map as one string with four digits per weight, in thousandths. A query has weights
    # only for the keys up to it. JSON numbers would need four times the space.
    maps = [
        "".join(f"{1000 * w:04.0f}" for m, row in enumerate(grid.tolist()) for w in row[: m + 1])
        for grid in weights.values()
    ]
    digits = "slice(maps[indexof(names, head)], 4*datum.at, 4*datum.at + 4)"
    cells = (
        alt.Chart(alt.sequence(0, size * size, as_="cell"))
        .transform_calculate(m=f"floor(datum.cell/{size})", n=f"datum.cell % {size}")
        .transform_filter("datum.n <= datum.m")
        .transform_calculate(at="datum.m*(datum.m + 1)/2 + datum.n")
        .transform_calculate(weight=f"parseInt({digits}, 10)/1000")
        .transform_calculate(query="shown[datum.m]", key="shown[datum.n]")
    )
    visible = [token.translate(VISIBLE).strip(" ") or "·" for token in tokens]
    axis: dict[str, Any] = {
        "labelExpr": "shown[datum.value]",
        "labelFontSize": 10,
        "labelOverlap": False,
        "labelPadding": 2,
        "ticks": False,
        "domain": False,
    }
    places = alt.Scale(domain=list(range(size)), paddingInner=0.06, paddingOuter=0)
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
    opacity = alt.Scale(type="sqrt", domain=[0, 1], range=[0.03, 1])
    columns = alt.Axis(orient="top", labelAngle=-90, **axis)
    squares = cells.mark_rect(color=BLUE).encode(
        x=alt.X("n:O", title="key", axis=columns, scale=places),
        y=alt.Y("m:O", title="query", axis=alt.Axis(orient="left", **axis), scale=places),
        opacity=alt.Opacity("weight:Q", scale=opacity, legend=legend),
        tooltip=["query:N", "key:N", alt.Tooltip("weight:Q", format=".2f")],
    )
    step = {"step": SIDE / size}
    return chart.finish(
        squares.properties(width=step, height=step).add_params(
            chart.menu("head", names, names[0], menu),
            alt.param(name="names", value=names),
            alt.param(name="maps", value=maps),
            alt.param(name="shown", value=visible),
        ),
        alt_text=f"A triangular map of attention weights over the {size} tokens "
        f"“{' '.join(visible)}”. A query's row has a square per key up to it, in a stronger color "
        f"for more weight. A menu chooses one of {len(names)} heads: {', '.join(names)}.",
    )
