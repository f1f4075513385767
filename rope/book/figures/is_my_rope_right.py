"""A fault seen at a glance: the position that each plane shows, against the position it was given.

Chapter "Is my RoPE right?". A plane of frequency theta that comes out at the angle a shows the
position a / theta. Planes that are wrong alike were given a wrong position; planes that differ have
wrong frequencies, or rounded tables.
"""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

import altair as alt

from rope.book.figures import chart
from rope.book.figures.style import COLOURS, DASHES, MUTED

WIDTH = 290
Shown = Mapping[str, Sequence[float]]


def position_shown(
    positions: Sequence[int], patients: Mapping[str, Shown], findings: Mapping[str, str]
) -> Any:
    """Positions as up to three planes show them, and how far off they are, under a menu.

    positions: those given; patients: by name, the positions that each plane shows, by the plane's
    name, which has no dot, NaN where none is drawn; findings: by name, what is written above.
    """
    planes: list[Any] = list(next(iter(patients.values())))
    rows = [
        (name, m, *places)
        for name, shown in patients.items()
        for m, *places in zip(positions, *shown.values(), strict=True)
        if not isnan(places[0])
    ]
    ends = "; ".join(
        f"{name} " + ", ".join(f"{places[-1]:.0f}" for places in shown.values())
        for name, shown in patients.items()
    )
    chosen = "datum.patient == patient"
    curves = alt.Chart().transform_filter(chosen).transform_fold(planes, as_=["plane", "shown"])
    curves = curves.transform_calculate(off="datum.shown - datum.m")
    sentences = chart.table(("patient", "finding"), findings.items())
    finding = alt.Chart(sentences).transform_filter(chosen)
    words = chart.reading("'finding: ' + datum.finding", y=8, size=15, of=finding)
    return chart.finish(
        alt.vconcat(
            words.properties(width=WIDTH, height=16),
            _shown(curves, planes, positions[-1]),
            _off(curves, planes, positions[-1]),
            data=chart.table(("patient", "m", *planes), rows),
            spacing=14,
        ).add_params(chart.menu("patient", patients, list(patients)[1], "patient")),
        alt_text="Above, the position that three planes show against the position given, and the "
        "line on which both are equal; below, the first less the second. "
        f"Shown at {positions[-1]}, in {', '.join(planes)}: {ends}.",
    )


def _lines(curves: alt.Chart, planes: list[Any], legend: alt.Legend | None) -> alt.Chart:
    """Later planes are drawn thinner, so that those which agree are seen under each other."""
    colours = alt.Scale(domain=planes, range=list(COLOURS[: len(planes)]))
    dashes = alt.Scale(domain=planes, range=[list(dash) for dash in DASHES[: len(planes)]])
    widths = alt.Scale(domain=planes, range=[4, 2.5, 1.5][: len(planes)])
    return curves.mark_line().encode(
        color=alt.Color("plane:N", scale=colours, legend=legend),
        strokeDash=alt.StrokeDash("plane:N", scale=dashes, legend=legend),
        strokeWidth=alt.StrokeWidth("plane:N", scale=widths, legend=legend),
    )


def _shown(curves: alt.Chart, planes: list[Any], last: int) -> alt.LayerChart:
    legend = alt.Legend(orient="top", title=None, symbolType="stroke", symbolSize=500)
    x, y = chart.x("m:Q", None, [0, last], grid=False), chart.y("shown:Q", "position shown")
    right = alt.Chart(chart.data(m=[0, last], shown=[0, last]))
    line = right.mark_line(color=MUTED, strokeWidth=1, strokeDash=[1, 0])
    whole = alt.layer(line.encode(x=x, y=y), _lines(curves, planes, legend).encode(x=x, y=y))
    return whole.properties(width=WIDTH, height=190, name="shown")


def _off(curves: alt.Chart, planes: list[Any], last: int) -> alt.LayerChart:
    x = chart.x("m:Q", "position given", [0, last], grid=False)
    y = chart.y("off:Q", "shown less given")
    zero = alt.Chart(chart.data(off=[0])).mark_rule(color=MUTED).encode(y=y)
    # The axis is no shorter than this, or a right implementation would show its last digit.
    room = alt.Chart(chart.data(off=[-1, 1])).mark_point(opacity=0).encode(y=y)
    whole = alt.layer(room, zero, _lines(curves, planes, None).encode(x=x, y=y))
    return whole.properties(width=WIDTH, height=150, name="off")
