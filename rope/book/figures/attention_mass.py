"""Where the attention of trained models goes, by distance, as their texts grow.

Chapter "Beyond the trained length".
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from rope.book.figures import chart
from rope.book.figures.seeds import check_some, label
from rope.book.figures.style import BLUE, INK

WIDTH = 250
ROW = 20  # pixels of one range of distances

Shares = Mapping[int, Sequence[float]]  # by the length of the text, one a range of distances


def attention_by_distance(
    found: Mapping[str, Shares], distances: Sequence[int], context: int
) -> Any:
    """The share of attention that each range of distances gets, by method and by length of text.

    found: by method and length, the share of each range from one of `distances` to before the next,
    as many as the length holds; context: the trained length, the slider's first, each further one
    twice the last. A method that reads no such length has an empty chart there.
    Raises ValueError where there is nothing to draw, and for shares that are not one a range.
    """
    check_some(found)
    lengths = sorted({length for shares in found.values() for length in shares})
    columns: dict[str, list[Any]] = {
        key: [] for key in ("method", "step", "length", "range", "share", "equal", "far", "even")
    }
    ranges = [
        f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,}"
        for low, high in zip(distances, [*distances[1:], lengths[-1]], strict=True)
        if low < high
    ]
    for name, shares in found.items():
        for length, values in shares.items():
            ends = [*(edge for edge in distances if edge < length), length]
            if len(values) != len(ends) - 1:
                raise ValueError(
                    f"{name!r} has {len(values)} shares at length {length:,}; there must be "
                    f"{len(ends) - 1}, one for each range of distances: pass all of them"
                )
            equal = [(high - low) / length for low, high in pairwise(ends)]
            far, even = (
                sum(part for low, part in zip(ends, parts, strict=False) if low >= context)
                for parts in (values, equal)
            )
            for words, share, one in zip(ranges, values, equal, strict=False):
                row = label(name), lengths.index(length), length, words, share, one, far, even
                for key, value in zip(columns, row, strict=True):
                    columns[key].append(value)
    names = [label(name) for name in found]
    choice = alt.param(
        name="method", value=names[0], bind=alt.binding_select(options=names, name="method")
    )
    slider = chart.slider("step", 0, len(lengths) - 1, 1, len(lengths) - 1, "length of the text")
    whole = alt.vconcat(_said(columns, context), _bars(columns, ranges), spacing=8)
    return chart.finish(
        whole.add_params(choice, slider),
        alt_text="Bars: the share of a query's attention that keys at each range of distances get, "
        f"in the mean over heads, layers and seeds, for a text of {lengths[0]:,} to "
        f"{lengths[-1]:,} characters; models were trained on {context:,}. Ticks: the shares if all "
        "keys had equal weights. "
        + "; ".join(_words(name, shares, distances, context) for name, shares in found.items())
        + ".",
    )


def _words(name: str, shares: Shares, distances: Sequence[int], context: int) -> str:
    longest = max(shares)
    far = [
        part for low, part in zip(distances, shares[longest], strict=False) if low >= context
    ]  # none within the trained length
    return f"{label(name)}: {sum(far):.0%} from distance {context:,} on, at {longest:,} characters"


def _said(columns: Mapping[str, Any], context: int) -> alt.LayerChart:
    table = alt.Chart(chart.data(**columns)).transform_filter(
        "datum.method == method && datum.step == step"
    )
    one = table.transform_aggregate(
        length="min(length)", far="min(far)", even="min(even)", groupby=["method"]
    )
    far = f"'from distance {context:,} on: ' + format(datum.far, '.0%')"
    return alt.layer(
        chart.reading(
            "datum.method + ', ' + format(datum.length, ',') + ' characters'",
            y=8,
            size=14,
            of=one,
            fontWeight="bold",
        ),
        chart.reading(f"{far} + ' (of the keys: ' + format(datum.even, '.0%') + ')'",
                      y=30, size=14, of=one, name="far"),
    ).properties(width=WIDTH, height=42)  # fmt: skip


def _bars(columns: Mapping[str, Any], ranges: Sequence[str]) -> alt.LayerChart:
    table = alt.Chart(chart.data(**columns)).transform_filter(
        "datum.method == method && datum.step == step"
    )
    rows = alt.Y("range:N", title="distance", scale=alt.Scale(domain=list(ranges)))
    top = max(max(columns["share"]), max(columns["equal"])) * 1.04
    bars = table.mark_bar(color=BLUE, height={"band": 0.7}).encode(
        x=chart.x("share:Q", "share of the attention", [0, top], format="%", tickCount=4), y=rows
    )
    ticks = table.mark_tick(color=INK, thickness=2, size=ROW).encode(x="equal:Q", y=rows)
    return alt.layer(bars, ticks).properties(width=WIDTH, height=ROW * len(ranges))
