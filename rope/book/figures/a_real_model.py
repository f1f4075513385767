"""Show what changes of the rotation cost a language model, and what single heads attend to.

Chapter "A real model". Shapes: S tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
from torch import Tensor

from rope.book.figures import Picture, chart, panels, picture
from rope.book.figures.style import BLUE, INK, MUTED
from rope.book.measured.intervals import Interval

SIDE = 300  # the width of a map in pixels
VISIBLE = str.maketrans({"\n": "↵", "\t": "⇥"})


def price_list(groups: Mapping[str, Mapping[str, Interval]]) -> Picture:
    """Draw one row per change: a bar for the mean increase of the loss, and its 95% interval.

    groups: maps each panel's title to its rows; a row maps a change to the interval of the increase
    in nats per token.
    """
    sizes = [len(rows) for rows in groups.values()]
    height = 0.8 + 0.27 * sum(sizes) + 0.35 * (len(groups) - 1)
    figure, items = panels(groups, height=height, sharex=True, height_ratios=sizes)
    far = max(cost.high for rows in groups.values() for cost in rows.values())
    summaries = []
    for ax, title, rows in items:
        for place, (name, cost) in enumerate(rows.items()):
            ax.barh(place, cost.mean, height=0.62, color=BLUE, alpha=0.45)
            ax.plot([cost.low, cost.high], [place, place], color=INK, linestyle="-")
            words = f"{cost.mean:.2f}"
            ax.text(max(cost.high, 0) + 0.015 * far, place, words, va="center", fontsize=9)
            summaries.append(f"{title} {name} {words} ± {cost.half:.2f}".strip())
        ax.axvline(0, color=MUTED, linewidth=1)
        ax.set_yticks(range(len(rows)), [*rows])
        ax.set_title(title, loc="left", fontsize=10)
        ax.set_xlim(right=1.13 * far)
        ax.grid(axis="y", visible=False)
        ax.invert_yaxis()
    ax.set_xlabel("increase of the loss, nats per token")
    return picture(
        figure,
        alt="One bar per change for the increase of the loss in nats per token, and its 95% "
        f"interval. {'; '.join(summaries)}.",
    )


def head_maps(weights: Mapping[str, Tensor], tokens: Sequence[str], *, menu: str = "head") -> Any:
    """Return attention maps over a short text, with a menu that chooses the head.

    weights: maps each head's name to its weights `[S, S]`, one row per query. tokens: S pieces.
    """
    names, size = [*weights], len(tokens)
    # A map is a string: four digits per weight, in thousandths, for the keys up to each query. JSON
    # numbers would take four times the space.
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
        f"“{' '.join(visible)}”: one row per query, one column per key up to it, fuller in color "
        f"for more weight. A menu chooses one of {len(names)} heads: {', '.join(names)}.",
    )
