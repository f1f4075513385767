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
from rope.book.figures.seeds import Runs, look, spread, spreads
from rope.book.figures.style import BLUE, GREEN, MUTED, VERMILION

SIDE = 288  # pixels of a map: 32 cells of 9
SHOWN = {" ": "·", "\n": "↵", "\t": "⇥"}  # what leaves no mark gets one

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


def drop_by_plane(
    panels: Mapping[str, tuple[Sequence[float], Runs, Runs]],
) -> Picture:
    """Each plane's share of a drop of the mean score, in percent: predictions, and seeds on them.

    panels: by the words above the panel, the shares with equal norms, and for each seed those with
    its mean norms, both without phases, and those of its model.
    """
    planes = np.arange(len(next(iter(panels.values()))[0]))
    figure, _ = subplots(len(panels), 1, height=1.1 + 2.2 * len(panels), sharex=True)
    summaries = []
    for ax, (title, (equal, norms, models)) in zip(figure.axes, panels.items(), strict=True):
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
    ax.lines[1].set_label("these models, a dot a seed")
    ax.set(xlabel="plane $j$", xticks=planes[::2])
    marks, words = ax.get_legend_handles_labels()  # lines come first
    figure.legend([marks[2], *marks[:2]], [words[2], *words[:2]], loc="outside upper left")
    figure.supylabel("share of the drop, %", fontsize=10)
    return picture(
        figure,
        alt=f"{len(panels)} panels over {len(planes)} planes, highest frequency first: bars for "
        "the share of a drop that geometry predicts, diamonds for that of the models' mean norms "
        "without phases, dots for that of each model. In percent, means over seeds. "
        f"{'; '.join(summaries)}.",
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
