"""The loss at each position, within the trained length and up to many times it.

Chapter "Beyond the trained length": of all methods, and of one model read through extensions.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt
import numpy as np

from rope.figures import Picture, chart, picture, shapes, subplots
from rope.figures.seeds import Runs, Spread, check_some, draw, end_labels, label, look, spreads
from rope.figures.style import BLUE, INK, MUTED

Halves = Sequence[Sequence[float]]  # of the text: one value between each two edges
WIDTH = 290


def by_position(found: Mapping[str, Runs], edges: Sequence[int], context: int) -> Picture:
    """The loss against the position, logarithmic, one line a method, the trained length marked.

    found: by method, for each seed one value between each two `edges` (positions), None where a
    method has none: its line ends there in a cross. context: the trained length.
    Raises ValueError where there is nothing to draw, and for runs that have not one value between
    each two edges.
    """
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    lines = spreads(found, middles, "stretches between the edges")
    figure, ax = subplots(height=0.9 + max(2.6, 0.2 * len(lines) + 0.3))
    ends: list[tuple[float, float, str]] = []
    for name, line in lines.items():
        style, last, words = look(name, lines), _last(line), label(name)
        draw(ax, middles, line, style)
        if last + 1 < len(middles):
            words += f" (to {edges[last + 1]:,})"
            cross = {"color": style["color"], "markersize": 9, "markeredgewidth": 2.5}
            ax.plot([middles[last]], [line.mean[last]], "x", zorder=4, **cross)
        ends.append((middles[last], line.mean[last], words))
    shapes.mark(ax, context, f"trained length {context:,}")
    ticks = [float(context) * 4.0**power for power in range(-6, 7)]
    ticks = [tick for tick in ticks if edges[1] / 2 <= tick <= edges[-1] * 1.01]
    ax.set(xlim=(edges[1] / 2 * 0.95, edges[-1]), xlabel="position", xscale="log", ylabel="loss")
    ax.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    ax.minorticks_off()
    end_labels(ax, ends)
    return picture(figure, alt=f"Loss {_words(lines, edges, context)}")


def _last(line: Spread) -> int:
    """Where a line ends."""
    return max(place for place, value in enumerate(line.mean) if not math.isnan(value))


def _words(lines: Mapping[str, Spread], edges: Sequence[int], context: int) -> str:
    """Each line's value at the end of the trained length and where it ends."""
    within = max(place for place, high in enumerate(edges[1:]) if high <= max(context, edges[1]))
    each = []
    for name, line in lines.items():
        last = _last(line)
        text = f"{label(name)} {line.mean[within]:.2f}" if last >= within else label(name)
        text += f", {line.mean[last]:.2f} from {edges[last]:,} to {edges[last + 1]:,}"
        each.append(text + (", where it ends" if last + 1 < len(line.mean) else ""))
    return (
        f"against the position, on a logarithmic axis from {edges[0]:,} to "
        f"{edges[-1]:,}, mean of the seeds; the band runs from the least to the greatest seed; a "
        f"dotted line marks the trained length, {context:,}. From {edges[within]:,} to "
        f"{edges[within + 1]:,}, and then at the end of the line: " + "; ".join(each) + "."
    )


def against_window(
    found: Mapping[str, Mapping[int, Halves]], plain: Halves, edges: Sequence[int], context: int
) -> Any:
    """The loss less that of a window of `context` keys, under a choice of extension and ratio.

    found: by extension and by ratio s, for each half of the text one value between each two edges;
    plain: the model as it is. Raises ValueError where there is nothing to draw, or the values are
    not one between each two edges.
    """
    check_some(found)
    places = [math.sqrt(max(low, edges[1] / 4) * high) for low, high in pairwise(edges)]
    columns: dict[str, list[Any]] = {
        key: [] for key in ("method", "s", "text", "position", "excess", "said")
    }
    for name, s, halves in [
        ("", 0, plain),
        *((name, s, halves) for name, by_s in found.items() for s, halves in by_s.items()),
    ]:
        if any(len(half) != len(places) for half in halves):
            raise ValueError(
                f"{name or 'the model as it is'} has not one value between each two of the "
                f"{len(edges)} edges; pass {len(places)} for each half of the text"
            )
        mean = np.mean(halves, axis=0)
        first, last = (round(float(value), 2) + 0.0 for value in (mean[0], mean[-1]))  # no −0.00
        said = f"to {edges[1]:,}: {first:+.2f} nats · from {edges[-2]:,}: {last:+.2f}"
        for text, values in (("both", mean), *((f"half {i}", h) for i, h in enumerate(halves))):
            for key, value in zip(columns, (name, s, text), strict=False):
                columns[key] += [value] * len(places)
            columns["position"] += places
            columns["excess"] += [float(value) for value in values]
            columns["said"] += [said] * len(places)
    ratios = sorted({s for by_s in found.values() for s in by_s})
    parameters = [
        alt.param(
            name="method",
            value=next(iter(found)),
            bind=alt.binding_select(options=list(found), name="method"),
        ),
        alt.param(
            name="ratio",
            value=ratios[len(ratios) // 2],
            bind=alt.binding_select(options=ratios, name="factor s"),
        ),
    ]
    whole = alt.vconcat(_said(columns), _curves(columns, edges, context), spacing=10)
    return chart.finish(
        whole.add_params(*parameters),
        alt_text="Position on a logarithmic axis, and the loss of one rotary model there less that "
        f"of the same model with a window of the last {context:,} keys, which is the line at 0. A "
        f"dotted line marks the trained length, {context:,}. Grey and dashed: the model as it is, "
        f"at 0 up to there and rising beyond, to {np.mean(plain, axis=0)[-1]:+.2f} nats. Blue: the "
        "model read through the chosen extension at the chosen factor, thin lines for each half "
        "of the text.",
    )


def _said(columns: Mapping[str, Any]) -> alt.LayerChart:
    """The chosen line's first and last value in words, under the same of the model as it is."""
    table = alt.Chart(chart.data(**columns)).transform_filter("datum.text == 'both'")
    one = table.transform_aggregate(said="min(said)", groupby=["method", "s"])
    plain = one.transform_filter("datum.s == 0")
    chosen = one.transform_filter("datum.method == method && datum.s == ratio")
    return alt.layer(
        chart.reading("method + ', s = ' + ratio", y=8, size=14, of=chosen, fontWeight="bold"),
        chart.reading("datum.said", y=30, size=14, of=chosen),
        chart.reading("'as it is: ' + datum.said", y=52, size=14, of=plain, color=MUTED),
    ).properties(width=WIDTH, height=62)


def _curves(columns: Mapping[str, Any], edges: Sequence[int], context: int) -> alt.LayerChart:
    table = alt.Chart(chart.data(**columns))
    ticks = {"values": [context * 2**power for power in range(-2, 5)], "grid": False}
    extent = [edges[1] / 3, edges[-1]]
    excess = [value for value in columns["excess"] if math.isfinite(value)]
    x = chart.x("position:Q", "position", extent, {"type": "log"}, **ticks)
    y = chart.y(
        "excess:Q",
        "loss − loss with a window (nats)",
        [min(-0.2, *excess) - 0.02, max(excess) + 0.05],
    )
    chosen = table.transform_filter("datum.method == method && datum.s == ratio")
    plain = table.transform_filter("datum.s == 0 && datum.text == 'both'")
    length = chart.one(position=str(context)).mark_rule(color=INK, strokeDash=[1, 3])
    zero = chart.one(excess="0").mark_rule(color=INK, strokeWidth=1)
    halves = chosen.transform_filter("datum.text != 'both'")
    both = chosen.transform_filter("datum.text == 'both'")
    return alt.layer(
        zero.encode(y=y),
        length.encode(x=x),
        plain.mark_line(color=MUTED, strokeWidth=2, strokeDash=[5, 3]).encode(x=x, y=y),
        halves.mark_line(color=BLUE, strokeWidth=1, opacity=0.6).encode(x=x, y=y, detail="text:N"),
        both.mark_line(color=BLUE, strokeWidth=2.5, point={"size": 40, "color": BLUE}).encode(
            x=x, y=y
        ),
    ).properties(width=WIDTH, height=250)
