"""Draw the figures for "Bytes and kernels": the roofline, a decoding step, and measured times.

A program performs I operations per byte that it moves. The machine performs at most F operations
per second and moves at most W bytes per second. By the roofline model, the program reaches at most

    min(F, I W)    operations per second. For a rotation,    I = 3 / (2 e moved),

where e is the number of bytes per element, and `moved` is the number of bytes moved divided by the
least possible number. Times are divided by the time of a plain copy of the same tensors.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator

from rope.book.figures import Picture, chart, panels, picture, shapes, style, subplots
from rope.book.figures.style import BLUE, COLORS, GRID, INK, MUTED, OCHRE, VERMILION


def roofline() -> Any:
    """Show the roofline and the rotation below it, with sliders for F, W, e, and `moved`."""
    parameters = (
        chart.slider("arithmetic", 0.1, 400, 0.1, 67, "trillion operations per second"),
        chart.slider("memory", 0.01, 10, 0.01, 3.35, "trillion bytes per second"),
        chart.slider("e", 2, 4, 2, 2, "bytes per element"),
        chart.slider("moved", 1, 12, 0.1, 1, "bytes moved / least possible"),
        chart.derived("peak", "1e12*arithmetic"),
        chart.derived("rate", "1e12*memory"),
        chart.derived("ridge", "peak/rate"),
        chart.derived("intensity", "3/(2*e*moved)"),
        chart.derived("reached", "min(peak, intensity*rate)"),
    )
    steps = alt.Chart(alt.sequence(0, 121, as_="k")).transform_calculate(
        x="pow(10, -2 + 4*datum.k/120)", y="min(peak, datum.x*rate)"
    )
    log: dict[str, Any] = {"type": "log", "clamp": True}
    powers = {"values": [0.01, 0.1, 1, 10, 100], "format": "~g", "grid": False}
    x = chart.x("x:Q", "operations per byte", [1e-2, 1e2], log, **powers)
    speeds = {"values": [1e9, 1e11, 1e13, 1e15], "format": "~s"}
    y = chart.y("y:Q", "operations per second", [1e9, 1e15], log, **speeds)
    here = chart.one(x="intensity", y="reached").encode(x="x:Q", y="y:Q")
    stem = here.mark_rule(color=VERMILION, strokeDash=[6, 2], strokeWidth=2)
    lines = (
        "'machine: ' + format(peak, '.3s') + ' operations/s, ' + format(rate, '.3s') + ' bytes/s'",
        "'its ridge: ' + format(ridge, '.3g') + ' operations per byte'",
        "'rotation: ' + format(intensity, '.3g') + ' per byte, '"
        " + format(reached/peak, '.2%') + ' of the peak'",
    )
    words = chart.readings(lines, size=13, y=10, step=20, width=290, height=60)
    drawn = alt.layer(
        chart.one(x="ridge").mark_rule(color=GRID, strokeWidth=1.5).encode(x="x:Q"),
        steps.mark_line(color=BLUE, strokeWidth=3).encode(x=x, y=y),
        stem.encode(y2=alt.value(230)),
        here.mark_point(filled=True, size=120, color=VERMILION, opacity=1),
        here.mark_text(text="rotation", align="left", dx=10, dy=8, color=INK),
    ).properties(width=290, height=230)
    return chart.finish(
        alt.vconcat(words, drawn, spacing=8).add_params(*parameters),
        alt_text="A roof over operations per byte, both axes logarithmic: it rises in "
        "proportion up to the ridge and is level beyond it. The rotation is a dot on the rising "
        "part, far left of the ridge. Moving more bytes than must be moved slides the dot down the "
        "slope; a higher flat roof leaves it in place; more bytes per second lift it.",
    )


#: Durations in the diagram, chosen for visibility: a launch takes longer than a kernel.
LAUNCH, GAP = 1.0, 0.2
KERNELS = {"neighbor": 0.7, "rotation": 0.3}


def decoding(operations: int) -> Picture:
    """Draw a decoding step on host and device: eager, fused, and replayed as a graph.

    A kernel starts once it has been launched and the previous kernel has ended.
    operations: the number of kernels in an eager rotation.
    """
    ways = {
        f"eager: {operations + 2} launches": operations,
        "fused: 3 launches": 1,
        "fused, recorded as a graph: 1 launch": 1,
    }
    looks = {
        "neighbor": ("projection, attention", MUTED, MUTED, ""),
        "rotation": ("rotation", "none", OCHRE, "///"),
        "graph": ("the whole graph", "none", BLUE, "xxx"),
    }
    boxes: dict[str, dict[str, Any]] = {
        kind: {"label": label, "facecolor": face, "edgecolor": edge, "hatch": hatch}
        for kind, (label, face, edge, hatch) in looks.items()
    }
    figure, items = panels(ways, height=4.2, sharex=True)
    for ax, words, rotations in items:
        ax.set(ylim=(1.5, -0.5), xticks=(), xmargin=0.01)
        ax.set_yticks((0, 1), ("host", "device"))
        ax.tick_params(length=0)
        ax.set_title(words, loc="left", fontsize=10)
        ax.grid(visible=False)
        kinds = ["neighbor", *["rotation"] * rotations, "neighbor"]
        launches = ["graph"] if "graph" in words else kinds
        for number, kind in enumerate(launches):
            ax.barh(0, LAUNCH - 0.06, 0.6, number * LAUNCH, **boxes[kind])
        end = 0.0
        for number, kind in enumerate(kinds, 1):
            start = max(end, LAUNCH * min(number, len(launches))) + GAP
            end = start + KERNELS[kind]
            ax.barh(1, KERNELS[kind] - 0.06, 0.6, start, **boxes[kind])
    handles = [Patch(**box) for box in boxes.values()]
    figure.legend(handles=handles, loc="outside upper left", ncols=3, columnspacing=1)
    ax.set_xlabel("time (schematic, not to scale)")
    return picture(
        figure,
        alt="A schematic of three ways to run a projection, a rotation and an attention, a lane of "
        f"boxes for the host above one for the device. Eager: the host launches {operations + 2} "
        f"kernels one after another, {operations} of them the rotation's, and the device waits "
        "for the next launch after each. Fused: three launches, one of them the rotation's, and "
        "the device still waits for each. As a graph: the host launches once, and the device runs "
        "the three kernels one right after the other.",
    )


#: Each competitor's marker. Figures list the competitors in this order. If two competitors share a
#: color, their dashes differ.
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
        "color": COLORS[place % 6],
        "linestyle": style.line_style(style.DASHES[(place + place // 6) % 6]),
        "marker": marker,
    }
    for place, (name, marker) in enumerate(MARKERS.items())
}


def by_length(lengths: Sequence[int], curves: Mapping[str, Sequence[float]]) -> Picture:
    """Plot each competitor's time, as a multiple of a plain copy's, against the sequence length.

    curves: maps each name to one relative time per length, or NaN where none was measured.
    """
    figure, ax = subplots(height=3.2 + 0.26 * len(curves) / 2)
    courses = []
    for look, (name, curve) in zip(LOOKS.values(), curves.items(), strict=False):
        ax.plot(lengths, curve, label=name, markersize=5, **look)
        known = [pair for pair in zip(lengths, curve, strict=True) if pair[1] == pair[1]]
        (first, start), (last, end) = known[0], known[-1]
        courses.append(f"{name}: {start:.2g} at {first:,}, {end:.2g} at {last:,}.")
    ax.axhline(1.0, color=INK, linestyle=":", linewidth=1)
    ax.set(xlabel="sequence length", ylabel="time / time of a copy", xscale="log", yscale="log")
    shapes.x_ticks(ax, lengths, rotation=45)
    # Label 1, 2, 5, 10, 20 ... instead of only the powers of ten.
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    figure.legend(loc="outside upper left", ncols=2)
    return picture(figure, alt=f"Time divided by a copy's time, by length. {' '.join(courses)}")
