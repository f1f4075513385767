"""Show whether a score decays with distance: cosines, their mean, and the RoFormer bound.

Chapter "Properties". Let theta_j = b^(-2j/d), and let C_j be the sum of e^{i m theta_l} over l < j.
At distance m,

    mean(m) = (2/d) sum_j cos(m theta_j),     bound(m) = (2/d) sum_j |C_j|, j = 1 ... d/2,

where |mean(m)| <= bound(m).

`scores_and_bounds` shows a language model's mean scores with the bounds on them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import torch

from rope.book.figures import Picture, chart, panels, picture, shapes, subplots
from rope.book.figures.style import BLUE, GRID, INK, MUTED, VERMILION
from rope.frequencies import inverse_frequencies, rotary_tables

PLANES, STEPS, DECADES = 64, 180, 5
LENGTH, BASES = 4096, (10_000.0, 500_000.0, 1_000_000.0)  # the trained length, and bases to compare
SHOWN, LOWEST = (40, 50, 63), 14  # planes to draw; number of planes that only fall


def decay_chart() -> Any:
    """Show the mean and the bound against the distance. Sliders set the base, d, and a distance."""
    grid = alt.Chart(alt.sequence(0, STEPS * PLANES, as_="k"))
    rows = _mean_over_planes(grid, f"floor(pow(10, {DECADES}*floor(datum.k/{PLANES})/{STEPS}))")
    ticks = alt.Axis(values=[10**power for power in range(DECADES + 1)], grid=False)
    log, title = alt.Scale(type="log"), "distance δ (log scale)"
    x = alt.X("m:Q", scale=log, title=title, axis=ticks)
    mean = chart.y("mean:Q", "mean cosine", [-0.4, 1])
    curve = rows.mark_line(strokeWidth=2, color=BLUE).encode(x=x, y=mean)
    bounds = rows.mark_line(strokeWidth=2, color=VERMILION, strokeDash=[6, 2]).encode(
        x=x, y=chart.y("bound:Q", "bound on its size", [0, PLANES / 2 + 1])
    )
    zero = alt.Chart(chart.data(value=[0])).mark_rule(color=MUTED).encode(y="value:Q")
    here = _mean_over_planes(alt.Chart(alt.sequence(0, PLANES, as_="k")), "distance")
    rule = chart.one(m="distance").mark_rule(color=GRID, strokeWidth=1.5).encode(x="m:Q")
    dot = here.mark_point(filled=True, size=80, color=BLUE, opacity=1)
    expression = "'mean at ' + format(distance, ',') + ': ' + format(datum.mean, '.3f')"
    words = chart.reading(expression, x=296, y=14, size=15, of=here, align="right")
    other = "'bound at ' + format(distance, ',') + ': ' + format(datum.bound, '.1f')"
    above = chart.reading(other, x=296, y=14, size=15, of=here, align="right")
    upper = alt.layer(zero, rule, curve, dot.encode(x="m:Q", y="mean:Q"), words)
    lower = alt.layer(rule, bounds, above)
    both = (
        layer.properties(width=300, height=high) for layer, high in ((upper, 220), (lower, 130))
    )
    return chart.finish(
        alt.vconcat(*both).add_params(
            chart.slider("logbase", 2, 7, 0.1, 4, "base, power of ten"),
            chart.slider("d", 16, 128, 16, 128, "head width d"),
            chart.slider("distance", 1, LENGTH, 1, 46, "distance to read"),
        ),
        alt_text="Two panels with a curve against the distance on a logarithmic axis. Above, the "
        "mean over planes falls from 1 along a nearly straight line with many wiggles and then "
        "oscillates around zero. Below, on an axis up to 33, the bound falls from 32.5, with its "
        "own wiggles, and stays far above the mean. A larger base moves both curves to the right; "
        "a smaller head width makes the wiggles larger and lowers the bound.",
    )


def _mean_over_planes(rows: alt.Chart, m: str) -> alt.Chart:
    """Compute the columns m, mean, and bound from rows numbered k."""
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
        .transform_aggregate(mean="mean(c)", bound="mean(length)", groupby=["group", "m"])
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


def scores_and_bounds(
    heads: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, ticks: Sequence[int]
) -> Picture:
    """Plot the size of a head's mean score and its bound against the distance, one panel per head.

    heads: maps each title to the scores and the bounds at the distances 0, 1, 2, ... The axes are
    logarithmic, so distance 0 is left out.
    """
    figure, items = panels(heads, height=0.9 + 2.1 * len(heads), sharex=True, sharey=True)
    summaries = []
    for ax, title, (scores, bounds) in items:
        distances = range(1, len(scores))
        ax.loglog(distances, bounds[1:], "--", color=VERMILION, label="bound")
        sizes = [abs(score) for score in scores]
        dots = {"color": BLUE, "linestyle": "none", "markersize": 3.5}
        ax.plot(distances, sizes[1:], "o", label="size of the mean score", **dots)
        ax.set_title(title, loc="left", fontsize=10)
        near = "; ".join(f"{scores[d]:.1f} and {bounds[d]:,.0f} at {d}" for d in ticks)
        summaries.append(f"{title}: {near}")
    shapes.x_ticks(ax, ticks)
    ax.set_xlabel("distance, in tokens (log scale)")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return picture(
        figure,
        alt="The size of the mean score and its bound against distance, one panel per head, both "
        "axes logarithmic. The bound lies far above the score everywhere. Score and bound: "
        f"{'. '.join(summaries)}.",
    )
