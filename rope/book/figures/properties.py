"""Show whether a score decays with distance: cosines, their mean, and the RoFormer bound.

Chapter "Properties". Let theta_j = b^(-2j/d), and let C_j be the sum of e^{i m theta_l} over l < j.
At distance m,

    mean(m) = (2/d) sum_j cos(m theta_j),     bound(m) = (2/d) sum_j |C_j|, j = 1 ... d/2.

`cost_against_length` plots the cost of attention against the sequence length.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import torch

from rope.book.figures import Picture, chart, panels, picture, shapes, subplots
from rope.book.figures.seeds import label, look
from rope.book.figures.style import BLUE, DASHES, GRID, INK, MUTED, VERMILION
from rope.frequencies import inverse_frequencies, rotary_tables

PLANES, STEPS, DECADES = 64, 180, 5
LENGTH, BASES = 4096, (10_000.0, 500_000.0, 1_000_000.0)  # the trained length, and bases to compare
SHOWN, LOWEST = (40, 50, 63), 14  # planes to draw; number of planes that only fall


def decay_chart() -> Any:
    """Show the mean and the bound against the distance. Sliders set the base, d, and a distance."""
    grid = alt.Chart(alt.sequence(0, STEPS * PLANES, as_="k"))
    rows = _mean_over_planes(grid, f"floor(pow(10, {DECADES}*floor(datum.k/{PLANES})/{STEPS}))")
    names: list[Any] = ["mean", "bound"]
    legend = alt.Legend(orient="top", title=None, symbolType="stroke", symbolSize=400)
    colors = alt.Scale(domain=names, range=[BLUE, VERMILION])
    dashes = alt.Scale(domain=names, range=[list(dash) for dash in DASHES[:2]])
    ticks = alt.Axis(values=[10**power for power in range(DECADES + 1)], grid=False)
    log, title = alt.Scale(type="log"), "distance δ (log scale)"
    folded = rows.transform_fold(names, as_=["curve", "value"])
    curves = folded.mark_line(strokeWidth=2).encode(
        x=alt.X("m:Q", scale=log, title=title, axis=ticks),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(domain=[-0.4, 1])),
        color=alt.Color("curve:N", scale=colors, legend=legend),
        strokeDash=alt.StrokeDash("curve:N", scale=dashes, legend=legend),
    )
    zero = alt.Chart(chart.data(value=[0])).mark_rule(color=MUTED).encode(y="value:Q")
    here = _mean_over_planes(alt.Chart(alt.sequence(0, PLANES, as_="k")), "distance")
    rule = chart.one(m="distance").mark_rule(color=GRID, strokeWidth=1.5).encode(x="m:Q")
    dot = here.mark_point(filled=True, size=80, color=BLUE, opacity=1)
    expression = "'mean at ' + format(distance, ',') + ': ' + format(datum.mean, '.3f')"
    words = chart.reading(expression, x=296, y=14, size=15, of=here, align="right")
    whole = alt.layer(zero, rule, curves, dot.encode(x="m:Q", y="mean:Q"), words)
    return chart.finish(
        whole.properties(width=300, height=260).add_params(
            chart.slider("logbase", 2, 7, 0.1, 4, "base, power of ten"),
            chart.slider("d", 16, 128, 16, 128, "head width d"),
            chart.slider("distance", 1, LENGTH, 1, 46, "distance to read"),
        ),
        alt_text="Two curves against the distance on a logarithmic axis. The mean over planes "
        "falls from 1 along a nearly straight line with many wiggles and then oscillates around "
        "zero. The bound, divided by its value at distance 0, falls too, with its own wiggles, "
        "and stays positive. A larger base moves both curves to the right; a smaller "
        "head width makes the wiggles larger.",
    )


def _mean_over_planes(rows: alt.Chart, m: str) -> alt.Chart:
    """Compute the columns m, mean, and bound (divided by its value at 0) from rows numbered k."""
    rotated = (
        rows.transform_calculate(m=m, j=f"datum.k%{PLANES}")
        .transform_filter("datum.j < d/2")
        .transform_calculate(angle="datum.m*pow(10, -logbase*2*datum.j/d)")
        .transform_calculate(c="cos(datum.angle)", s="sin(datum.angle)", group="datum.k - datum.j")
    )
    return (
        rotated.transform_window(
            C="sum(c)", S="sum(s)", frame=[None, 0], groupby=["group"], sort=[{"field": "j"}]
        )
        .transform_calculate(length="sqrt(datum.C*datum.C + datum.S*datum.S)")
        .transform_aggregate(mean="mean(c)", length="mean(length)", groupby=["group", "m"])
        .transform_calculate(bound="datum.length/((d/2 + 1)/2)")
    )


def falling() -> Picture:
    """Plot cos(m theta_j) for three planes, and the mean over all planes, up to distance LENGTH."""
    distances = torch.arange(0, LENGTH, 8)
    cos, _ = rotary_tables(distances, inverse_frequencies(2 * PLANES), dtype=torch.float64)
    figure, ax = subplots(height=3.3)
    ax.plot(distances, cos.mean(dim=-1), color=MUTED, linewidth=1, label=f"mean of all {PLANES}")
    for plane in SHOWN:
        ax.plot(distances, cos[:, plane], label=f"plane {plane}")
    ax.axhline(0, color=INK, linewidth=1, linestyle=":")
    ax.set(xlabel="distance δ", ylabel="cosine", ylim=(-1.05, 1.55), yticks=(-1, 0, 1))
    ax.legend(loc="upper center", ncols=2)
    ends = ", ".join(f"plane {plane} at {cos[-1, plane]:.2f}" for plane in SHOWN)
    return picture(
        figure,
        alt=f"Cosines against the distance, from 0 to {LENGTH:,}. Plane {SHOWN[0]} falls to -1 and "
        f"returns to 1 twice. Planes {SHOWN[1]} and {SHOWN[2]} fall all the way, as do all of the "
        f"lowest {LOWEST}. The mean of all {PLANES} falls fast, then wiggles near 0. At "
        f"the end: {ends}, the mean at {cos[-1].mean():.2f}.",
    )


def wavelengths() -> Picture:
    """Plot each plane's wavelength for three bases, and the trained length as a dotted line."""
    figure, ax = subplots(height=3.1)
    for base in BASES:
        waves = 2 * torch.pi / inverse_frequencies(2 * PLANES, base)
        ax.semilogy(range(PLANES), waves.numpy(), label=f"base {base:,.0f}")
    ax.axhline(LENGTH, color=INK, linewidth=1, linestyle=":")
    ax.text(0, LENGTH * 1.25, f"trained length {LENGTH:,}")
    ax.set(xlabel="plane $j$", ylabel="wavelength, in positions")
    ax.legend(loc="lower right")
    return picture(
        figure,
        alt=f"Wavelengths of the {PLANES} planes on a logarithmic axis: straight lines rising "
        "from 6.28 at plane 0, steeper for a larger base. The planes above the dotted line at "
        f"{LENGTH:,} never complete a turn within that length.",
    )


def cost_against_length(
    lengths: Sequence[int], costs: Mapping[str, Mapping[str, Sequence[float | None]]]
) -> Picture:
    """Plot the cost of attention against the length (log-log), with one panel per quantity.

    costs: maps each quantity, named by its unit (such as "seconds"), and each method to one value
    per length, which is None where none was measured.
    """
    names = list(dict.fromkeys(name for lines in costs.values() for name in lines))
    height = 0.8 + 2.1 * len(costs) + 0.1 * len(names)
    figure, items = panels(costs, height=height, sharex=True)
    growths = []
    for ax, title, lines in items:
        for name, values in lines.items():
            known = [pair for pair in zip(lengths, values, strict=True) if pair[1]]
            x, y = zip(*known, strict=True)
            ax.plot(x, y, marker="o", markersize=4, label=label(name), **look(name, names))
            power = math.log(y[-1] / y[-2]) / math.log(x[-1] / x[-2])  # between the last two points
            ends = f"{y[0]:.2g} at {x[0]:,}, {y[-1]:.2g} at {x[-1]:,}, at the end growing"
            growths.append(f"{title} of {label(name)}: {ends} as S to the power {power:.1f}")
        ax.set(xscale="log", yscale="log", ylabel=title)
    shapes.x_ticks(ax, lengths, rotation=45)
    ax.set_xlabel("sequence length $S$")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return picture(figure, alt=f"Costs against the sequence length. {'; '.join(growths)}.")
