"""Plot the loss and the attention of trained models far beyond the trained length.

Chapter "Beyond the trained length". The figures show the loss at each position, how attention is
spread over distances, and how much of the loss increase disappears when far distances are replaced.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt
from matplotlib.ticker import PercentFormatter

from rope.book.figures import Picture, chart, picture, shapes, subplots
from rope.book.figures.seeds import Runs, draw_runs, end_labels, interval_row, label
from rope.book.figures.style import BLUE, INK, MUTED, VERMILION

WIDTH = 250  # pixels, of the interactive chart
ROW = 20  # pixels per range of distances

WAYS = ((BLUE, "o"), (VERMILION, "s"))  # color and marker for each way to replace a distance

Shares = Mapping[int, Sequence[float]]  # by text length, one share per range of distances


def by_position(runs: Mapping[str, Runs], edges: Sequence[int], context: int) -> Picture:
    """Plot the loss against the position on a logarithmic axis, with the trained length marked.

    runs: maps each method to one list of losses per seed. A list has one loss for each interval
    between neighboring positions in `edges`, or None where the method has no loss. A line that
    ends early ends in a cross. context: the trained length.
    """
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    figure, ax = subplots(height=0.9 + max(2.6, 0.2 * len(runs) + 0.3))
    ends = draw_runs(ax, middles, runs, 46, lambda last: f" (to {edges[last + 1]:,})")
    shapes.mark(ax, context, f"trained length {context:,}")
    ticks = [float(context) * 4.0**power for power in range(-6, 7)]
    ticks = [tick for tick in ticks if edges[1] / 2 <= tick <= edges[-1] * 1.01]
    ax.set(xlim=(edges[1] / 2 * 0.95, edges[-1]), xlabel="position", xscale="log", ylabel="loss")
    shapes.x_ticks(ax, ticks)
    end_labels(ax, ends)
    losses = (f"{words} {loss:.2f} at {position:,.0f}" for position, loss, words in ends)
    return picture(
        figure,
        alt=f"Loss against the position, on a logarithmic axis up to {edges[-1]:,}, mean over "
        "seeds in a band from minimum to maximum; a dotted line marks the trained length, "
        f"{context:,}. At the end of each line: {'; '.join(losses)}.",
    )


def undone(
    shares: Mapping[str, Mapping[str, Sequence[float]]], predicted: Mapping[str, float]
) -> Picture:
    """Plot the share of the loss increase that each way to replace distances undoes.

    Each group of planes has its own rows. A mark is a seed, a bar is a 95% t interval, and a broad
    line is the share that a theory predicts.
    shares: maps each group of planes and each way (at most two) to one share per seed.
    predicted: maps each group of planes to one share. Raises ValueError for a single seed.
    """
    rows = [(group, way, seeds) for group, ways in shares.items() for way, seeds in ways.items()]
    figure, ax = subplots(height=1.2 + 0.36 * len(rows))
    summaries, places = [], iter(range(len(rows)))
    for group, ways in shares.items():
        summaries.append(f"{group}: expected {predicted[group]:.0%}")
        for (way, seeds), (color, marker) in zip(ways.items(), WAYS, strict=False):
            place = next(places)
            line = interval_row(ax, seeds, place, color, marker)
            summaries[-1] += f", {way} {line.mean:.0%} ± {line.half:.0%}"
        top = place - len(ways) + 0.6
        ax.vlines(predicted[group], top, place + 0.4, INK, linewidth=4, alpha=0.3)
        ax.axhline(place + 0.5, color=MUTED, linewidth=0.7)
    ax.set_yticks(range(len(rows)), [f"{group}: {way}" for group, way, _ in rows])
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel="share of the rise undone")
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    return picture(
        figure,
        alt="Share of the rise undone, one row per group of planes and way to replace far "
        "distances, one mark per seed, a bar for the 95% t interval of the mean, a broad line at "
        f"the share to expect if only new angles break the model. {'; '.join(summaries)}.",
    )


def attention_by_distance(
    attention: Mapping[str, Shares], distances: Sequence[int], context: int
) -> Any:
    """Show the share of attention in each range of distances, for a chosen method and length.

    attention: maps each method and text length to one share for each range of distances that begins
    within the text. distances: the start of each range. context: the trained length. The chart is
    empty for a text length that the method cannot read.
    """
    lengths = sorted({length for shares in attention.values() for length in shares})
    ranges = [
        f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,}"
        for low, high in zip(distances, [*distances[1:], lengths[-1]], strict=True)
        if low < high
    ]
    rows = []
    for name, shares in attention.items():
        for length, values in shares.items():
            edges = [edge for edge in distances if edge < length]
            equal = [(high - low) / length for low, high in pairwise([*edges, length])]
            triples = list(zip(ranges[: len(edges)], values, equal, strict=True))
            far, even = (_far(parts, distances, context) for parts in (values, equal))
            rows += [(label(name), length, *triple, far, even) for triple in triples]
    names = ("method", "length", "range", "share", "equal", "far", "even")
    shown = alt.Chart(chart.table(names, rows)).transform_filter(
        "datum.method == method && format(datum.length, ',') == read"
    )
    methods, texts = [label(name) for name in attention], [f"{length:,}" for length in lengths]
    top = max(part for row in rows for part in row[3:5]) * 1.04
    far_shares = "; ".join(
        f"{label(name)}: {_far(shares[max(shares)], distances, context):.0%} from distance "
        f"{context:,} on, at {max(shares):,} characters"
        for name, shares in attention.items()
    )
    row = shown.transform_aggregate(
        length="min(length)", far="min(far)", even="min(even)", groupby=["method"]
    )
    title = "datum.method + ', ' + format(datum.length, ',') + ' characters'"
    far_share = (
        f"'from distance {context:,} on: ' + format(datum.far, '.0%')"
        " + ' (of the keys: ' + format(datum.even, '.0%') + ')'"
    )
    words = alt.layer(
        chart.reading(title, y=8, size=14, of=row, fontWeight="bold"),
        chart.reading(far_share, y=30, size=14, of=row, name="far"),
    ).properties(width=WIDTH, height=42)
    return chart.finish(
        alt.vconcat(words, _bars(shown, ranges, top), spacing=8).add_params(
            chart.menu("method", methods, methods[0], "method"),
            chart.menu("read", texts, texts[-1], "characters read"),
        ),
        alt_text="Bars: the share of a query's attention that keys at each range of distances get, "
        f"in the mean over heads, layers and seeds, for a text of {lengths[0]:,} to "
        f"{lengths[-1]:,} characters; models were trained on {context:,}. Ticks: the shares if the "
        f"last query gave all its keys equal weights. {far_shares}.",
    )


def _far(shares: Sequence[float], distances: Sequence[int], context: int) -> float:
    """Return the total share of the ranges that begin at or beyond the trained length."""
    return sum(share for low, share in zip(distances, shares, strict=False) if low >= context)


def _bars(shown: alt.Chart, ranges: Sequence[str], top: float) -> alt.LayerChart:
    y = alt.Y("range:N", title="distance", scale=alt.Scale(domain=list(ranges)))
    x = chart.x("share:Q", "share of the attention", [0, top], format="%", tickCount=4)
    bars = shown.mark_bar(color=BLUE, height={"band": 0.7}).encode(x=x, y=y)
    ticks = shown.mark_tick(color=INK, thickness=2, size=ROW).encode(x="equal:Q", y=y)
    return alt.layer(bars, ticks).properties(width=WIDTH, height=ROW * len(ranges))
