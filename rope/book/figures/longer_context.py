"""Show how context extensions change the frequencies: chapter "Longer than the training text".

`loss_curves` plots a model's loss along a text. `angles_met` draws the angles that a longer text
adds in one plane. `spectrum` shows each plane's ratio theta'_j / theta_j and the turns that it
makes within the trained length L and within s L. Vega evaluates the formulas of `rope.extensions`
for the sliders' values. A test compares the results for each plane and method with the package.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from rope.book.figures import Picture, chart, panels, picture, shapes, subplots
from rope.book.figures.style import BLUE, GRID, INK, MUTED, VERMILION

DIM = 128
KEPT = 0.75  # the share of planes that p-RoPE rotates
WIDTH = 300

PI, NTK, DYNAMIC, YARN = "position interpolation", "NTK-aware", "dynamic NTK", "YaRN"
LLAMA3, LONGROPE, PROPORTIONAL = "Llama 3", "LongRoPE (Phi-3)", "p-RoPE, p = 0.75"

#: For each method, the Vega expression for theta'_j / theta_j.
RATIOS = {
    PI: "1/s",
    NTK: "pow(s, -2*datum.j/(d - 2))",
    DYNAMIC: "pow(s*s - s + 1, -2*datum.j/(d - 2))",  # s n/L - (s - 1) at the text length n = s L
    YARN: "datum.ramp/s + 1 - datum.ramp",
    LLAMA3: "(1 - datum.smooth)/s + datum.smooth",
    LONGROPE: "1/datum.searched",
    PROPORTIONAL: f"(datum.j < floor({KEPT}*d/2) ? 1 : 0)",
}


def loss_curves(losses: Mapping[str, Sequence[float]], *, trained: int, block: int) -> Picture:
    """Plot a text's loss in each block against the number of tokens read, one line per method.

    losses: maps each method to one loss per block, in nats. trained, block: lengths in tokens.
    """
    figure, ax = subplots(height=3.0)
    for (name, values), color, mark in zip(losses.items(), (VERMILION, BLUE), "os", strict=True):
        read = range(block, block * len(values) + 1, block)
        ax.plot(read, values, "-", marker=mark, color=color, markersize=5, label=name)
    shapes.mark(ax, trained, f"trained length {trained:,}")
    shapes.x_ticks(ax, read[3::4])
    ax.set(xlabel="tokens read", ylabel="loss (nats per token)")
    ax.legend(loc="upper left")
    ends = (f"{name} from {values[7]:.2f} to {values[-1]:.2f}" for name, values in losses.items())
    return picture(figure, alt=f"Loss from {read[7]:,} tokens to {read[-1]:,}: {', '.join(ends)}.")


def angles_met(theta: float, changed: Mapping[str, float], *, trained: int, length: int) -> Picture:
    """Draw one circle per method, with the angles met in training and the new angles beyond them.

    theta: the plane's frequency in training, in radians per position. changed: maps each method to
    the plane's frequency in the longer text. trained, length: the number of tokens in training and
    in the longer text. Dots mark the multiples of `trained` and the largest distance.
    """
    seen, farthest = (trained - 1) * theta, length - 1
    figure, items = panels(changed, columns=len(changed), height=2.0)
    summaries = []
    for ax, name, rate in items:
        reached, first = farthest * rate, trained * theta  # new angles begin one step beyond `seen`
        sectors = [(0.0, seen, BLUE), (first, min(reached, math.tau), VERMILION)]
        new = f"new from {first:.2f}" if reached >= first else "none new"
        summaries.append(f"{name}: to {reached:.2f}, {new}")
        ax.plot(*shapes.arc((0, 0), (1, 1), 0, math.tau), color=GRID)
        for start, end, color in sectors[: 1 + (reached >= first)]:
            arc_x, arc_y = shapes.arc((0, 0), (1, 1), start, end)
            ax.fill([0, *arc_x], [0, *arc_y], color=color, alpha=0.45, linewidth=0)
            ax.plot(arc_x, arc_y, color=color, linestyle="-", linewidth=3)
        for distance in (*range(0, length, trained), farthest):
            x, y = math.cos(distance * rate), math.sin(distance * rate)
            ax.plot([x], [y], "o", color=INK, markersize=4)
            if distance in (trained, farthest):
                side = "left" if x > 0.3 else "right" if x < -0.3 else "center"
                ax.text(1.15 * x, 1.2 * y, f"{distance}", ha=side, va="center")
        ax.set(title=name, xlim=(-1.75, 1.75), ylim=(-1.45, 1.45), aspect="equal")
        ax.text(0, -1.4, f"up to {reached:.2f}", ha="center", va="bottom")
        ax.axis("off")
    alt = f"A circle per method. Blue, to {seen:.2f} radians: {trained} tokens. Orange: new angles"
    return picture(figure, alt=f"{alt} in a text of {length} tokens. {'; '.join(summaries)}.")


def spectrum(long_factor: tuple[float, ...], *, base: float, length: int, factor: float) -> Any:
    """Show each plane's new frequency divided by its old one, with controls for the settings.

    long_factor: LongRoPE's factors, one per plane, which a search found for one model.
    base, length, factor: that model's settings, which the sliders don't change.
    """
    searched = f"method == '{LONGROPE}'"
    parameters = [
        chart.menu("method", RATIOS, NTK, "method"),
        chart.slider("factor", 1, 32, 1, 8, "factor s"),
        chart.slider("loglength", 9, 17, 1, 12, "length L, power of two"),
        chart.slider("logbase", 3, 7, 0.1, 4, "base, power of ten"),
        chart.slider("plane", 0, DIM // 2 - 1, 1, 32, "plane to read"),
        chart.derived("d", f"{searched} ? {2 * len(long_factor)} : {DIM}"),
        chart.derived("s", f"{searched} ? {factor:g} : factor"),
        chart.derived("L", f"{searched} ? {length} : pow(2, loglength)"),
        chart.derived("b", f"{searched} ? {base:g} : pow(10, logbase)"),
        chart.derived("low", "max(floor(d*log(L/(32*2*PI))/(2*log(b))), 0)"),
        chart.derived("high", "min(ceil(d*log(L/(2*PI))/(2*log(b))), d - 1)"),
    ]
    padding = [1.0] * (DIM // 2 - len(long_factor))
    rows = (
        alt.Chart(chart.data(j=range(DIM // 2), searched=[*long_factor, *padding]))
        .transform_filter("datum.j < d/2")
        .transform_calculate(turns="L*pow(b, -2*datum.j/d)/(2*PI)")
        .transform_calculate(
            ramp="clamp((datum.j - low)/max(high - low, 0.001), 0, 1)",
            smooth="clamp((datum.turns - 1)/(4 - 1), 0, 1)",
        )
        .transform_calculate(ratio=chart.chosen("method", RATIOS))
        .transform_calculate(reached="datum.ratio*datum.turns*s")
        # A plane that makes no full turn within L reaches new angles beyond L.
        .transform_calculate(new="datum.turns < 1 && datum.reached > 1.000001*datum.turns")
    )
    here = rows.transform_filter("datum.j == min(plane, d/2 - 1)")
    count = rows.transform_aggregate(unseen="sum(new)")
    share = "'plane ' + datum.j + ' has ' + format(datum.ratio, '.3f') + ' of its frequency'"
    angles = "'within ' + format(s*L, ',') + ' tokens: new angles in ' + datum.unseen + ' planes'"
    words = alt.layer(
        chart.reading(share, y=12, size=15, of=here), chart.reading(angles, y=36, size=15, of=count)
    ).properties(width=WIDTH, height=44)
    marker = chart.one(j="min(plane, d/2 - 1)").mark_rule(color=GRID, strokeWidth=2)
    marker = marker.encode(x=_axis(None))
    return chart.finish(
        alt.vconcat(words, _ratios(rows, marker), _turns(rows, marker), spacing=14).add_params(
            *parameters
        ),
        alt_text="Above, a dot for each plane, the highest frequency on the left: its new "
        "frequency divided by its old one. Below, on a logarithmic axis: its turns within L "
        "(dashed line) and, with the new frequency, within s L (dots). Orange triangles mark "
        "planes of less than one turn within L that pass the trained angles.",
    )


def _axis(title: str | None) -> alt.X:
    return chart.x("j:Q", title, [-1, DIM // 2], values=[0, 16, 32, 48, 63], grid=False)


def _ratios(rows: alt.Chart, marker: alt.Chart) -> alt.LayerChart:
    # Setting the axis's `format` would also round the dots' own labels.
    axis = {"values": [0, 0.25, 0.5, 0.75, 1], "labelExpr": "format(datum.value, '.2f')"}
    y = chart.y("ratio:Q", "θ′ / θ", [0, 1.05], **axis)
    dots = rows.mark_point(filled=True, size=26, color=BLUE, opacity=1).encode(x=_axis(None), y=y)
    return alt.layer(marker, dots).properties(width=WIDTH, height=150, name="ratios")


def _turns(rows: alt.Chart, marker: alt.Chart) -> alt.LayerChart:
    ticks = {"values": [1e-4, 1e-2, 1, 1e2, 1e4, 1e6], "format": "~g", "grid": False}
    ticks["labelExpr"] = "datum.value < 1 ? datum.label : format(datum.value, ',')"
    log = {"type": "log", "clamp": True}
    turns, reached = (
        chart.y(field, "turns (log scale)", [1e-4, 1e6], log, **ticks)
        for field in ("turns:Q", "reached:Q")
    )
    colors = alt.Scale(domain=[False, True], range=[BLUE, VERMILION])
    marks = alt.Scale(domain=[False, True], range=["circle", "triangle-up"])
    one = chart.one(turns="1").mark_rule(color=MUTED, strokeWidth=1).encode(y=turns)
    seen = rows.mark_line(color=MUTED, strokeWidth=2, strokeDash=[5, 3])
    dots = rows.mark_point(filled=True, size=26, opacity=1).encode(
        x=_axis("plane j"),
        y=reached,
        color=alt.Color("new:N", scale=colors, legend=None),
        shape=alt.Shape("new:N", scale=marks, legend=None),
    )
    whole = alt.layer(marker, one, seen.encode(x=_axis("plane j"), y=turns), dots)
    return whole.properties(width=WIDTH, height=150)
