"""Show whether scores decay with distance, and which angles are new, for the chapter "Properties".

Let theta_j = b^(-2j/d). At the distance delta, the mean over the planes is

    mean(delta) = (2/d) sum_j cos(delta theta_j),

and its trend is (ln b - ln delta - gamma) / ln b, where gamma is Euler's constant.

`scores_and_bounds` shows the mean scores of a language model's head with the bounds on them.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt
import torch

from rope.book.figures import Picture, chart, picture, shapes, subplots
from rope.book.figures.style import BLUE, GRID, MUTED, VERMILION
from rope.frequencies import inverse_frequencies

PLANES, STEPS, DECADES = 64, 180, 5
LENGTH = 4096  # the trained length
READ = (1, 2, 5, 10, 20, 50, 100, 255)  # distances that get a tick and are in the alt text


def decay_chart() -> Any:
    """Plot the mean and its trend against the distance, with sliders for base, d, and distance."""
    grid = alt.Chart(alt.sequence(0, STEPS * PLANES, as_="k"))
    rows = _mean_over_planes(grid, f"floor(pow(10, {DECADES}*floor(datum.k/{PLANES})/{STEPS}))")
    ticks = alt.Axis(values=[10**power for power in range(DECADES + 1)], grid=False)
    log, title = alt.Scale(type="log"), "distance δ (log scale)"
    x = alt.X("m:Q", scale=log, title=title, axis=ticks)
    mean = chart.y("mean:Q", "mean cosine", [-0.4, 1])
    curve = rows.mark_line(strokeWidth=2, color=BLUE).encode(x=x, y=mean)
    line = rows.transform_calculate(
        mean="1 - (log(datum.m) + 0.5772156649) / (logbase * LN10)"
    ).transform_filter("datum.mean >= 0")
    trend = line.mark_line(strokeWidth=2, color=VERMILION, strokeDash=[6, 2]).encode(x=x, y=mean)
    zero = alt.Chart(chart.data(value=[0])).mark_rule(color=MUTED).encode(y="value:Q")
    here = _mean_over_planes(alt.Chart(alt.sequence(0, PLANES, as_="k")), "distance")
    rule = chart.one(m="distance").mark_rule(color=GRID, strokeWidth=1.5).encode(x="m:Q")
    dot = here.mark_point(filled=True, size=80, color=BLUE, opacity=1)
    expression = "'mean at ' + format(distance, ',') + ': ' + format(datum.mean, '.3f')"
    words = chart.reading(expression, x=296, y=14, size=15, of=here, align="right")
    whole = alt.layer(zero, rule, curve, trend, dot.encode(x="m:Q", y="mean:Q"), words)
    return chart.finish(
        whole.properties(width=300, height=240).add_params(
            chart.slider("logbase", 2, 7, 0.1, 4, "base, power of ten"),
            chart.slider("d", 16, 128, 16, 128, "head width d"),
            chart.slider("distance", 1, LENGTH, 1, 46, "distance to read"),
        ),
        alt_text="The mean over planes against the distance on a logarithmic axis. It falls from 1 "
        "along a dashed straight line with many wiggles and then oscillates around zero. A larger "
        "base moves the curve to the right; a smaller head width makes the wiggles larger.",
    )


def _mean_over_planes(rows: alt.Chart, m: str) -> alt.Chart:
    """Return the mean cosine at each distance. m: a Vega expression for the distance of row k."""
    planes = rows.transform_calculate(m=m, j=f"datum.k%{PLANES}").transform_filter("datum.j < d/2")
    cosines = planes.transform_calculate(c="cos(datum.m*pow(10, -logbase*2*datum.j/d))")
    return cosines.transform_aggregate(mean="mean(c)", groupby=["m"])


def new_angles(*, farthest: int, marked: Sequence[int]) -> Picture:
    """Draw, for each plane, the distances whose angles lie beyond the angles met in training.

    farthest: the right end of the axis. marked: distances at which to count the new angles.
    """
    waves = 2 * torch.pi / inverse_frequencies(2 * PLANES)
    slow = [j for j, wave in enumerate(waves.tolist()) if wave > LENGTH]
    figure, ax = subplots(height=3.4)
    for j in slow:
        starts = torch.arange(0, farthest, waves[j].item()) + LENGTH - 1
        ax.broken_barh([(at.item(), waves[j] - LENGTH) for at in starts], (j - 0.4, 0.8))
    counts = [int((at % waves > LENGTH - 1).sum()) for at in marked]
    for at, count in zip(marked, counts, strict=True):
        shapes.mark(ax, at, f"{count} new")
    ticks = range(0, farthest, 2 * LENGTH)
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.set(xlim=(0, farthest), ylim=(slow[0] - 1, PLANES), yticks=[*slow[::6], slow[-1]])
    ax.set(xlabel="distance δ, in tokens", ylabel="plane $j$")
    found = ", ".join(f"{count} at {at:,}" for at, count in zip(marked, counts, strict=True))
    return picture(
        figure,
        alt=f"One row for each of the planes {slow[0]} to {slow[-1]}, against the distance from 0 "
        f"to {farthest:,}. Bars show where a plane's angle is new. All begin at {LENGTH:,}. The "
        "fast planes have many short bars with gaps between them, and the slowest plane has one "
        f"long bar. The number of planes with a new angle: {found}.",
    )


def scores_and_bounds(scores: Sequence[float], bounds: Sequence[float]) -> Picture:
    """Plot a head's mean scores against the distance, first by themselves and then with bounds.

    scores, bounds: the values at distances 0, 1, 2, ... Distance 0 is not plotted, because the axis
    is logarithmic.
    """
    figure, (upper, lower) = subplots(2, height=4.6, sharex=True)
    distances = range(1, len(scores))
    for ax in (upper, lower):
        ax.plot(distances, scores[1:], color=BLUE, label="mean score")
    lower.plot(distances, bounds[1:], color=VERMILION, linestyle="--", label="bound")
    upper.set_title("Mean scores", loc="left")
    lower.set_title("The same scores and their bounds", loc="left")
    lower.set_yticks(range(0, 12_000, 4000), ["0", "4,000", "8,000"])
    lower.set(xscale="log", xlabel="distance δ, in tokens (log scale)")
    shapes.x_ticks(lower, READ)
    lower.legend(loc="upper right")
    near = "; ".join(f"{scores[d]:.1f} and {bounds[d]:,.0f} at {d}" for d in READ)
    return picture(
        figure,
        alt="Two panels against distance on a logarithmic axis. Above, the mean scores of a head "
        "wiggle below 4. Below, on an axis up to 11,000, the same scores lie flat at zero and the "
        f"bounds fall unevenly, far above them. Score and bound: {near}.",
    )
