"""What a trained model does with its planes, its distances and its base: "What the model uses".

Plane j has the wavelength 2 pi / theta_j positions; plane 0 has the highest frequency. Shapes:
P planes, L layers, H heads, S tokens or distances.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import altair as alt
import numpy as np

from rope.book.figures import Picture, chart, picture, shapes, subplots
from rope.book.figures.seeds import look, spreads
from rope.book.figures.style import BLUE, GREEN, MUTED, VERMILION

SIDE = 288  # pixels of a map: 32 cells of 9
SHOWN = {" ": "·", "\n": "↵", "\t": "⇥"}  # what leaves no mark gets one
NEAR, FAR = 16, 64  # a fall is the mean score at 0 ... NEAR-1 less that from FAR on

Grid = Sequence[Sequence[Sequence[float]]]


def by_plane(
    panels: Mapping[str, Sequence[Sequence[float]]], wavelengths: Sequence[float], context: int
) -> Picture:
    """What is measured of each plane: one panel each, a dot the mean over seeds.

    panels: by the words beside the panel, for each seed one number a plane; wavelengths: of the
    planes, in positions. A bar runs from the least to the greatest seed. A dotted line stands where
    the wavelength passes the trained length `context`.
    """
    lines = spreads(panels)
    planes = len(wavelengths)
    edge = float(np.interp(math.log(context), np.log(wavelengths), range(planes)))
    figure, _ = subplots(len(lines), 1, height=1.2 + 1.5 * len(lines), sharex=True)
    axes = figure.axes
    looks = cycle(((BLUE, "o"), (VERMILION, "s"), (GREEN, "D")))
    summaries = []
    for ax, (name, (mean, low, high)), (colour, shape) in zip(
        axes, lines.items(), looks, strict=False
    ):
        bars = np.subtract(mean, low), np.subtract(high, mean)
        marks: dict[str, Any] = {"linestyle": "none", "markersize": 5, "elinewidth": 1.5}
        ax.errorbar(range(planes), mean, bars, color=colour, fmt=shape, **marks)
        ax.axhline(0, color=MUTED, linewidth=1)
        shapes.mark(ax, edge, f"trained length {context:,}" if ax is axes[-1] else "")
        ax.set_ylabel(name)
        summaries.append(f"{name}: " + ", ".join(f"{value:.3f}" for value in mean))
    ticks = list(range(0, planes, max(1, planes // 8)))
    axes[-1].set(xlabel="plane $j$", xticks=ticks)
    top = axes[0].secondary_xaxis("top")
    top.set_xticks(ticks[::2], [f"{wavelengths[j]:,.0f}" for j in ticks[::2]])
    top.set_xlabel("wavelength, in positions")
    return picture(
        figure,
        alt=f"{len(lines)} panels over {planes} planes, highest frequency first; a dot for "
        "the mean over seeds, a bar from the least to the greatest seed. "
        f"Means, {'; '.join(summaries)}. Wavelengths run from {wavelengths[0]:,.1f} to "
        f"{wavelengths[-1]:,.0f} positions; those of the planes from {math.ceil(edge)} on are "
        f"longer than the trained {context:,}.",
    )


def fall_by_planes(parts: Sequence[Sequence[float]], first: int, last: int) -> Any:
    """The mean score against the distance, and the part of it that a range of planes makes.

    parts: `[P][S]`, what each plane adds to the mean score at each distance; first, last: the range
    that the sliders open on.
    """
    planes, size = len(parts), len(parts[0])
    rows = alt.Chart(alt.sequence(0, planes * size, as_="k")).transform_calculate(
        plane=f"floor(datum.k/{size})", distance=f"datum.k % {size}"
    )
    rows = rows.transform_calculate(part="parts[datum.plane][datum.distance]")
    inside = "datum.plane >= min(first, last) && datum.plane <= max(first, last)"
    places: dict[str, Any] = {
        "x": chart.x("distance:Q", "distance δ", (0, size - 1)),
        "y": chart.y("score:Q", "mean score"),
    }
    total: dict[str, Any] = {"score": "sum(part)", "groupby": ["distance"]}
    every, chosen = (
        kept.transform_aggregate(**total).encode(**places)
        for kept in (rows, rows.transform_filter(inside))
    )
    weight = (
        f"datum.distance < {NEAR} ? {1 / NEAR} : datum.distance < {FAR} ? 0 : {-1 / (size - FAR)}"
    )
    falls = rows.transform_calculate(
        fall=f"datum.part*({weight})", kept=f"{inside} ? 1 : 0"
    ).transform_calculate(inside="datum.fall*datum.kept")
    words = chart.reading(
        "'planes ' + min(first, last) + ' to ' + max(first, last) + ': '"
        " + format(datum.inside, '.2f') + ' of a fall of ' + format(datum.whole, '.2f')",
        y=10,
        x=4,
        size=14,
        of=falls.transform_aggregate(inside="sum(inside)", whole="sum(fall)"),
    ).properties(width=300, height=20)
    lines = alt.layer(
        every.mark_line(color=MUTED, strokeWidth=1.5, strokeDash=[4, 2]),
        chosen.mark_line(color=BLUE, strokeWidth=3, strokeDash=[1, 0]),
    ).properties(width=300, height=240)
    table = np.asarray(parts)
    fall = table[:, :NEAR].mean(axis=1) - table[:, FAR:].mean(axis=1)
    falls_by_plane = ", ".join(f"{value:.2f}" for value in fall)
    return chart.finish(
        alt.vconcat(words, lines, spacing=6).add_params(
            chart.slider("first", 0, planes - 1, 1, first, "first plane"),
            chart.slider("last", 0, planes - 1, 1, last, "last plane"),
            alt.param(name="parts", value=[[round(x, 3) for x in line] for line in table.tolist()]),
        ),
        alt_text=f"The mean score against distances 0 to {size - 1}, dashed, and the part of it "
        "that the chosen planes make, bold. The fall from the distances below "
        f"{NEAR} to those from {FAR} on is {fall.sum():.2f}; plane by plane, highest frequency "
        f"first: {falls_by_plane}.",
    )


def base_curve(
    bases: Sequence[float], losses: Mapping[str, Sequence[Sequence[float]]], *, bound: float
) -> Picture:
    """A loss against the base, logarithmic: one panel each, a dot a seed, a line through the means.

    losses: by the words above the panel ("within the trained length"), for each base its seeds.
    bound: a base to mark, as the least one that a paper recommends.
    """
    height = 0.5 + 1.8 * len(losses)
    figure, _ = subplots(len(losses), 1, height=height, sharex=True)
    panels, style, summaries = figure.axes, look("rope", ()), []
    dots = {"color": style["color"], "linestyle": "none", "alpha": 0.6, "markersize": 5}
    for ax, (title, groups) in zip(panels, losses.items(), strict=True):
        means = [math.fsum(seeds) / len(seeds) for seeds in groups]
        for base, seeds in zip(bases, groups, strict=True):
            ax.plot([base] * len(seeds), seeds, "o", markeredgewidth=0, **dots)
        ax.plot(bases, means, **style)
        ax.set_xscale("log")
        first = ax is panels[0]
        ax.set_title(title, loc="left", fontsize=10, pad=18 if first else 6)
        shapes.mark(ax, bound, f"bound {bound:,.0f}" if first else "")
        at = [f"{mean:.3f} at {base:,.0f}" for base, mean in zip(bases, means, strict=True)]
        summaries.append(f"{title}: {', '.join(at)}")
    ax.set_xticks(bases, [f"{base:,.0f}" for base in bases])
    ax.minorticks_off()
    ax.set_xlabel("base $b$")
    figure.supylabel("validation loss", fontsize=10)
    return picture(
        figure,
        alt="Validation loss against the base, a dot a seed, a line through the means. "
        f"{'; '.join(summaries)}. A dotted line marks the bound, {bound:,.0f}.",
    )


def attention_maps(weights: Sequence[Grid], text: str, *, layer: int = 0, head: int = 0) -> Any:
    """The map of one head over a short text, with sliders for the layer and the head.

    The chart carries the weights as text, two base-36 digits for a thousandth each and nothing
    above the diagonal; Vega reads the digits of the chosen head.

    weights: `[L][H][S][S]`, rows the queries, zero ahead of them; text: the S characters.
    layer, head: what it opens on. Raises ValueError for a text that does not fit the weights.
    """
    size, layers, heads = len(text), len(weights), len(weights[0])
    if size != len(weights[0][0]):
        raise ValueError(
            f"text has {size} characters for {len(weights[0][0])} rows of weights; it must have "
            "one a row: pass the stretch that was read"
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
    reading = (
        "'layer ' + layer + ', head ' + head + ': looks back ' + "
        "format(datum.part/datum.whole, '.1f') + ' on average'"
    )
    words = chart.reading(reading, y=10, size=14, of=means).properties(width=SIDE, height=20)
    shown = [SHOWN.get(character, character) for character in text]
    return chart.finish(
        alt.vconcat(words, _squares(cells, size), spacing=6).add_params(
            chart.slider("layer", 0, layers - 1, 1, layer, "layer"),
            chart.slider("head", 0, heads - 1, 1, head, "head"),
            alt.param(name="maps", value=[encode(grid) for grids in weights for grid in grids]),
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
    thousandths = [round(1000 * weight) for m, row in enumerate(weights) for weight in row[: m + 1]]
    return "".join(np.base_repr(value, 36).lower().zfill(2) for value in thousandths)


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
