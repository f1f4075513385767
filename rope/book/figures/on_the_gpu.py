"""The figures of "Bytes, kernels, launches": the roofline, the lines that a warp touches, times.

The roofline: a program does I operations for each byte that it moves; the machine does F operations
a second and moves W bytes a second. Then the program does at most

    min(F, I W)    operations a second, and a rotation has    I = 3 / (2 e moved),

with e bytes an element, and `moved` times the bytes that must be moved. The times are in units of
a plain copy of the same tensors, and the alternative texts made from the numbers that are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
from matplotlib.ticker import FuncFormatter, LogLocator

from rope.book.figures import Picture, chart, picture, style, subplots
from rope.book.figures.style import BLUE, COLOURS, GRID, INK, MUTED, VERMILION


def roofline() -> Any:
    """The roof and the rotation under it; sliders for F, W, bytes an element and bytes moved."""
    sliders = (
        chart.slider("arithmetic", 9, 14.5, 0.001, 13.826, "operations a second, power of ten"),
        chart.slider("memory", 9, 13.5, 0.001, 12.525, "bytes a second, power of ten"),
        chart.slider("e", 2, 4, 2, 2, "bytes an element"),
        chart.slider("moved", 1, 12, 0.1, 1, "bytes moved, over the least"),
    )
    formulas = (
        chart.derived("peak", "pow(10, arithmetic)"),
        chart.derived("rate", "pow(10, memory)"),
        chart.derived("ridge", "peak/rate"),
        chart.derived("intensity", "3/(2*e*moved)"),
        chart.derived("reached", "min(peak, intensity*rate)"),
    )
    steps = alt.Chart(alt.sequence(0, 121, as_="k")).transform_calculate(
        x="pow(10, -2 + 4*datum.k/120)", y="min(peak, datum.x*rate)"
    )
    log: dict[str, Any] = {"type": "log", "clamp": True}
    powers = {"values": [0.01, 0.1, 1, 10, 100], "format": "~g", "grid": False}
    x = chart.x("x:Q", "operations for each byte", [1e-2, 1e2], log, **powers)
    speeds = {"values": [1e9, 1e11, 1e13, 1e15], "format": "~s"}
    y = chart.y("y:Q", "operations a second", [1e9, 1e15], log, **speeds)
    roof = steps.mark_line(color=BLUE, strokeWidth=3).encode(x=x, y=y)
    here = chart.one(x="intensity", y="reached")
    stem = here.mark_rule(color=VERMILION, strokeDash=[6, 2], strokeWidth=2)
    dot = here.mark_point(filled=True, size=120, color=VERMILION, opacity=1)
    label = here.mark_text(text="rotation", align="left", dx=10, dy=8, color=INK)
    corner = chart.one(x="ridge").mark_rule(color=GRID, strokeWidth=1.5).encode(x="x:Q")
    lines = (
        "'machine: ' + format(peak, '.3s') + ' operations/s, ' + format(rate, '.3s') + ' bytes/s'",
        "'its ridge: ' + format(ridge, '.3g') + ' operations for each byte'",
        "'rotation: ' + format(intensity, '.3g') + ' for each byte, '"
        " + format(reached/peak, '.2%') + ' of the peak'",
    )
    words = alt.layer(
        *(chart.reading(line, y=10 + 20 * row, size=13) for row, line in enumerate(lines))
    ).properties(width=290, height=60)
    drawn = alt.layer(
        corner,
        roof,
        stem.encode(x="x:Q", y="y:Q", y2=alt.value(230)),
        dot.encode(x="x:Q", y="y:Q"),
        label.encode(x="x:Q", y="y:Q"),
    ).properties(width=290, height=230)
    return chart.finish(
        alt.vconcat(words, drawn, spacing=8).add_params(*sliders, *formulas),
        alt_text="A roof over operations for each byte, both axes logarithmic: it rises in "
        "proportion up to the ridge and is level from there. The rotation is a dot on the rising "
        "part, far left of the ridge. Moving more bytes than must be moved slides the dot down the "
        "slope; a higher level roof leaves it where it is, more bytes a second lift it.",
    )


LANES, LINE, ELEMENT = 32, 128, 4

#: By name, the loads: in each, the elements that each lane asks for.
LOADS: dict[str, list[list[list[int]]]] = {
    "half-split, one load for each half": [
        [[lane + half] for lane in range(LANES)] for half in (0, LANES)
    ],
    "interleaved, one load for each coordinate": [
        [[2 * lane + which] for lane in range(LANES)] for which in (0, 1)
    ],
    "interleaved, one load for both": [[[2 * lane, 2 * lane + 1] for lane in range(LANES)]],
}


def lines_touched(load: Sequence[Sequence[int]], line: int = LINE) -> int:
    """Lines of memory that the lanes of one load touch together.

    load: for each lane the elements it asks for; line: bytes in a line.

    >>> lines_touched([[lane] for lane in range(32)])
    1
    >>> lines_touched([[2 * lane] for lane in range(32)])
    2
    """
    return len({place * ELEMENT // line for lane in load for place in lane})


def coalescing() -> Picture:
    """A row of 64 elements for each way to load them, marked by the load that touches each."""
    figure, axes = subplots(len(LOADS), 1, height=3.9)
    counts = []
    for ax, (name, loads) in zip(axes, LOADS.items(), strict=True):
        total = f"{name}: {sum(map(lines_touched, loads))} lines"
        ax.text(0, 1.75, total, color=INK, fontsize=10)
        _row(ax, loads)
        counts.append(total + (" in one load" if len(loads) == 1 else f" in {len(loads)} loads"))
    return picture(
        figure,
        alt="Three rows of 64 elements, 256 bytes, in two lines of 128 bytes. Half-split: the "
        "first load takes the first line, the second load the second. Interleaved with a load "
        "for each coordinate: both loads take every other element of both lines. Interleaved "
        f"with one load: it takes everything. In all {', '.join(counts)}.",
    )


def _row(ax: Any, loads: Sequence[Sequence[Sequence[int]]]) -> None:
    """The elements as boxes, upper row for the first load and lower for the second."""
    ax.set_axis_off()
    ax.set(xlim=(-0.5, 2 * LANES + 0.5), ylim=(-1.3, 2.4))
    looks = ((BLUE, BLUE, ""), ("none", VERMILION, "///"))
    for number, (load, (face, colour, hatch)) in enumerate(zip(loads, looks, strict=False)):
        bottom = 0.7 - 0.75 * number
        places = [place + 0.5 for lane in load for place in lane]
        marks = {"facecolor": face, "edgecolor": colour, "hatch": hatch, "linewidth": 0.6}
        ax.bar(places, 0.6, 0.84, bottom, **marks)
        ax.text(2 * LANES + 0.4, bottom + 0.3, str(number + 1), color=INK, va="center", ha="left")
    for edge in (0, LANES, 2 * LANES):
        ax.plot([edge, edge], [-0.35, 1.45], color=MUTED, linewidth=1.2, linestyle="-")
    for start, word in ((0, "line 0: bytes 0 to 127"), (LANES, "line 1: bytes 128 to 255")):
        ax.text(start + LANES / 2, -0.95, word, color=INK, ha="center", va="center", fontsize=10)


#: By competitor and its marker, one look in every figure, with another dash at each return of a
#: colour. Six apart stand those that share one.
MARKERS = {
    "rope": "o",
    "transformers": "s",
    "rope without a compiler": "D",
    "rotary-embedding-torch": "^",
    "formula compiled": "v",
    "Liger": "P",
    "plain formula": "X",
    "transformers compiled": "<",
    "flash-attn": ">",
}
LOOKS: dict[str, dict[str, Any]] = {
    name: {
        "color": COLOURS[place % 6],
        "linestyle": style.line_style(style.DASHES[(place + place // 6) % 6]),
        "marker": marker,
    }
    for place, (name, marker) in enumerate(MARKERS.items())
}


def by_length(lengths: Sequence[int], curves: Mapping[str, Sequence[float]]) -> Picture:
    """Each competitor's time over a copy's against the sequence length, both logarithmic.

    curves: by name, one value a length, NaN where none was measured.
    """
    names = sorted(curves, key=list(LOOKS).index)
    figure, ax = subplots(height=3.2 + 0.26 * len(names) / 2)
    for name in names:
        ax.plot(lengths, curves[name], label=name, markersize=5, **LOOKS[name])
    ax.axhline(1.0, color=INK, linestyle=":", linewidth=1)
    ax.set(xlabel="sequence length", ylabel="time over that of a copy", xscale="log", yscale="log")
    ax.set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=45)
    ax.minorticks_off()
    # 1, 2, 5, 10, 20 ... instead of powers of ten.
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    figure.legend(loc="outside upper left", ncols=2)
    courses = " ".join(f"{name}: {_course(lengths, curves[name])}." for name in names)
    return picture(figure, alt=f"Time over that of a copy, by sequence length. {courses}")


def _course(lengths: Sequence[int], values: Sequence[float]) -> str:
    """Where a curve begins and where it ends."""
    known = [pair for pair in zip(lengths, values, strict=True) if not math.isnan(pair[1])]
    (first, start), (last, end) = known[0], known[-1]
    return f"{start:.2g} at {first:,}, {end:.2g} at {last:,}"
