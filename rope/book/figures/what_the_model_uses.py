"""Show how a trained model uses its planes, its distances, and its base.

Chapter "What the model uses". Plane j has the wavelength 2 pi / theta_j positions; plane 0 has the
highest frequency. Shapes: P planes, L layers, H heads, S tokens or distances.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import altair as alt
import numpy as np

from rope.book.figures import Picture, chart, panels, picture, shapes
from rope.book.figures.seeds import Runs, look, spread
from rope.book.figures.style import BLUE, GREEN, MUTED, VERMILION

SIDE = 288  # the width of a map in pixels: 32 cells of 9
VISIBLE = {" ": "·", "\n": "↵", "\t": "⇥"}  # visible symbols for white space


def by_plane(quantities: Mapping[str, Runs], wavelengths: Sequence[float], context: int) -> Picture:
    """Plot measured quantities against the plane, with one panel per quantity.

    quantities: maps each label to one list per seed, with one number per plane. wavelengths: one
    wavelength per plane, in positions. A mark shows the mean over seeds, and a bar runs from the
    minimum to the maximum. A dotted line marks the wavelength `context`, the trained length.
    """
    planes = len(wavelengths)
    edge = float(np.interp(math.log(context), np.log(wavelengths), range(planes)))
    figure, items = panels(quantities, height=1.2 + 1.5 * len(quantities), sharex=True)
    looks = cycle(((BLUE, "o"), (VERMILION, "s"), (GREEN, "D")))
    summaries = []
    for (ax, name, runs), (color, shape) in zip(items, looks, strict=False):
        mean, low, high = spread(runs)
        bars = np.subtract(mean, low), np.subtract(high, mean)
        marks: dict[str, Any] = {"linestyle": "none", "markersize": 5, "elinewidth": 1.5}
        ax.errorbar(range(planes), mean, bars, color=color, fmt=shape, **marks)
        ax.axhline(0, color=MUTED, linewidth=1)
        shapes.mark(ax, edge, f"trained length {context:,}" if ax is items[-1][0] else "")
        ax.set_ylabel(name)
        summaries.append(f"{name}: " + ", ".join(f"{value:.3f}" for value in mean))
    ticks = list(range(0, planes, max(1, planes // 8)))
    ax.set(xlabel="plane $j$", xticks=ticks)
    top = items[0][0].secondary_xaxis("top")
    top.set_xticks(ticks[::2], [f"{wavelengths[j]:,.0f}" for j in ticks[::2]])
    top.set_xlabel("wavelength, in positions")
    return picture(
        figure,
        alt=f"{len(items)} panels over {planes} planes, highest frequency first; a dot for "
        "the mean over seeds, a bar from the minimum over seeds to the maximum. "
        f"Means, {'; '.join(summaries)}. Wavelengths run from {wavelengths[0]:,.1f} to "
        f"{wavelengths[-1]:,.0f} positions; those of the planes from {math.ceil(edge)} on are "
        f"longer than the trained {context:,}.",
    )


def drop_by_plane(drops: Mapping[str, tuple[Sequence[float], Runs, Runs]]) -> Picture:
    """Plot each plane's predicted and measured share of a drop in the mean score, in percent.

    drops: maps each title to three items: the shares predicted from equal norms, and each seed's
    predicted (from its model's mean norms) and measured shares. The predictions use phases of 0.
    """
    planes = np.arange(len(next(iter(drops.values()))[0]))
    figure, items = panels(drops, height=1.1 + 2.2 * len(drops), sharex=True)
    summaries = []
    for ax, title, (equal, norms, models) in items:
        bar: dict[str, Any] = {"color": MUTED, "alpha": 0.35, "width": 0.8}
        ax.bar(planes, equal, label="geometry: equal norms, no phases", **bar)
        dot: dict[str, Any] = {"linestyle": "none", "markeredgewidth": 0}
        means = np.array(spread(norms).mean)
        ax.plot(planes - 0.22, means, "D", color=VERMILION, markersize=5, **dot)
        for seed in np.array(models, dtype=float):
            ax.plot(planes + 0.16, seed, "o", color=BLUE, markersize=4.5, alpha=0.7, **dot)
        ax.axhline(0, color=MUTED, linewidth=1)
        ax.set_title(title, loc="left", fontsize=10)
        shown = {"geometry": equal, "mean norms": means, "models": spread(models).mean}
        summaries += [
            f"{title}, {name}: " + ", ".join(f"{value:.0f}" for value in values)
            for name, values in shown.items()
        ]
    ax.lines[0].set_label("their mean norms, no phases (mean)")
    ax.lines[1].set_label("these models, one dot per seed")
    ax.set(xlabel="plane $j$", xticks=planes[::2])
    marks, words = ax.get_legend_handles_labels()  # lines come first
    figure.legend([marks[2], *marks[:2]], [words[2], *words[:2]], loc="outside upper left")
    figure.supylabel("share of the drop, %", fontsize=10)
    return picture(
        figure,
        alt=f"{len(drops)} panels over {len(planes)} planes, highest frequency first: bars for "
        "the shares of a drop that geometry predicts, diamonds for the shares predicted from the "
        "models' mean norms without phases, dots for each model's shares. Means over seeds, in %. "
        f"{'; '.join(summaries)}.",
    )


def base_curve(
    bases: Sequence[float], losses: Mapping[str, Sequence[Sequence[float]]], *, bound: float
) -> Picture:
    """Plot a loss against the base, with a line through the means in each panel.

    losses: maps each title ("within the trained length") to one loss per seed for each base.
    bound: a base to mark, such as the smallest base that a paper recommends.
    """
    figure, items = panels(losses, height=0.5 + 1.8 * len(losses), sharex=True)
    style, summaries = look("rope", ()), []
    dots = {"color": style["color"], "linestyle": "none", "alpha": 0.6, "markersize": 5}
    for ax, title, groups in items:
        means = [math.fsum(seeds) / len(seeds) for seeds in groups]
        for base, seeds in zip(bases, groups, strict=True):
            ax.plot([base] * len(seeds), seeds, "o", markeredgewidth=0, **dots)
        ax.plot(bases, means, **style)
        ax.set_xscale("log")
        first = ax is items[0][0]
        ax.set_title(title, loc="left", fontsize=10, pad=18 if first else 6)
        shapes.mark(ax, bound, f"bound {bound:,.0f}" if first else "")
        at = [f"{mean:.3f} at {base:,.0f}" for base, mean in zip(bases, means, strict=True)]
        summaries.append(f"{title}: {', '.join(at)}")
    shapes.x_ticks(ax, bases)
    ax.set_xlabel("base $b$")
    figure.supylabel("validation loss", fontsize=10)
    return picture(
        figure,
        alt="Validation loss against the base, one dot per seed, a line through the means. "
        f"{'; '.join(summaries)}. A dotted line marks the bound, {bound:,.0f}.",
    )


def attention_maps(
    weights: Sequence[Sequence[Sequence[Sequence[float]]]], text: str, *, layer: int, head: int
) -> Any:
    """Show one head's attention weights over a short text, with sliders for the layer and the head.

    weights: `[L][H][S][S]`, with one row per query, and 0 for later keys. text: S characters.
    layer, head: the layer and head that the figure shows first.
    """
    size, layers, heads = len(text), len(weights), len(weights[0])
    # A map is a string: four digits per weight, in thousandths, for the keys up to each query. JSON
    # numbers would take four times the space.
    maps = [
        "".join(f"{1000 * w:04.0f}" for m, row in enumerate(grid) for w in row[: m + 1])
        for grids in weights
        for grid in grids
    ]
    digits = f"slice(maps[{heads}*layer + head], 4*datum.at, 4*datum.at + 4)"
    cells = (
        alt.Chart(alt.sequence(0, size * size, as_="cell"))
        .transform_calculate(m=f"floor(datum.cell/{size})", n=f"datum.cell % {size}")
        .transform_filter("datum.n <= datum.m")
        .transform_calculate(at="datum.m*(datum.m + 1)/2 + datum.n")
        .transform_calculate(weight=f"parseInt({digits}, 10)/1000")
    )
    reach = cells.transform_calculate(part="datum.weight*(datum.m - datum.n)")
    means = reach.transform_aggregate(part="sum(part)", whole="sum(weight)")
    reading = (
        "'layer ' + layer + ', head ' + head + ': looks back ' + "
        "format(datum.part/datum.whole, '.1f') + ' on average'"
    )
    words = chart.reading(reading, y=10, size=14, of=means).properties(width=SIDE, height=20)
    visible = [VISIBLE.get(character, character) for character in text]
    return chart.finish(
        alt.vconcat(words, _squares(cells, size), spacing=6).add_params(
            chart.slider("layer", 0, layers - 1, 1, layer, "layer"),
            chart.slider("head", 0, heads - 1, 1, head, "head"),
            alt.param(name="maps", value=maps),
            alt.param(name="shown", value=visible),
        ),
        alt_text=f"A triangular map of attention weights over the {size} characters "
        f"“{''.join(visible)}”: one row per query, one column per key up to it, fuller in color "
        f"for more weight. Sliders choose one of {layers} layers and one of {heads} heads.",
    )


def _squares(cells: alt.Chart, size: int) -> alt.Chart:
    """Draw one square per cell, the more opaque the larger its weight, and text along two sides."""
    places = alt.Scale(domain=list(range(size)), paddingInner=0.06, paddingOuter=0)
    axis: dict[str, Any] = {
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
        x=alt.X("n:O", title="key", axis=alt.Axis(orient="top", **axis), scale=places),
        y=alt.Y("m:O", title="query", axis=alt.Axis(orient="left", **axis), scale=places),
        opacity=alt.Opacity("weight:Q", scale=full, legend=legend),
    )
    return squares.properties(width=step, height=step)
