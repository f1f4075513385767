"""A fault seen at a glance: the position that each plane shows, against the position it was given.

Chapter "Is my RoPE right?". A plane of frequency theta that comes out at the angle a shows the
position a / theta. Planes that are wrong alike were given a wrong position; planes that differ have
wrong frequencies, or rounded tables.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from rope.book.figures import chart
from rope.book.figures.seeds import check_some
from rope.book.figures.style import BLUE, DASHES, GREEN, MUTED, VERMILION

WIDTH = 290
COLOURS = (BLUE, VERMILION, GREEN)

Shown = Mapping[str, Sequence[float]]


def position_shown(
    positions: Sequence[int], patients: Mapping[str, Shown], findings: Mapping[str, str]
) -> Any:
    """Positions as up to three planes show them, and how far off they are, under a menu.

    positions: those given; patients: by name, the positions that each plane shows, by the plane's
    name, which has no dot; findings: by name, what is written above. Raises ValueError where there
    is no patient.
    """
    check_some(patients)
    planes: list[Any] = list(next(iter(patients.values())))
    columns: dict[str, list[Any]] = {"patient": [], "m": [], **{plane: [] for plane in planes}}
    for name, shown in patients.items():
        columns["patient"] += [name] * len(positions)
        columns["m"] += positions
        for plane in planes:
            columns[plane] += shown[plane]
    chosen = "datum.patient == patient"
    curves = alt.Chart().transform_filter(chosen).transform_fold(planes, as_=["plane", "shown"])
    curves = curves.transform_calculate(off="datum.shown - datum.m")
    said = chart.data(patient=list(findings), finding=list(findings.values()))
    words = chart.reading(
        "'finding: ' + datum.finding", y=8, size=15, of=alt.Chart(said).transform_filter(chosen)
    )
    menu = alt.binding_select(options=list(patients), name="patient")
    return chart.finish(
        alt.vconcat(
            words.properties(width=WIDTH, height=16),
            _shown(curves, planes, positions[-1]),
            _off(curves, planes, positions[-1]),
            data=chart.data(**columns),
            spacing=14,
        ).add_params(alt.param(name="patient", value=list(patients)[1], bind=menu)),
        alt_text="Above, the position that three planes show against the position given, and the "
        "line on which both are equal; below, the first less the second. "
        f"Shown at {positions[-1]}, in {', '.join(planes)}: {_ends(patients)}.",
    )


def _ends(patients: Mapping[str, Shown]) -> str:
    """Each patient's last point, in words."""
    parts = []
    for name, shown in patients.items():
        ends = ", ".join(f"{values[-1]:.0f}" for values in shown.values())
        parts.append(f"{name} {ends}")
    return "; ".join(parts)


def _lines(curves: alt.Chart, planes: list[Any], legend: alt.Legend | None) -> alt.Chart:
    """Later planes are drawn thinner, so that those which agree are seen under each other."""
    number = len(planes)
    colours = alt.Scale(domain=planes, range=list(COLOURS[:number]))
    dashes = alt.Scale(domain=planes, range=[list(dash) for dash in DASHES[:number]])
    widths = alt.Scale(domain=planes, range=[4, 2.5, 1.5][:number])
    return curves.mark_line().encode(
        color=alt.Color("plane:N", scale=colours, legend=legend),
        strokeDash=alt.StrokeDash("plane:N", scale=dashes, legend=legend),
        strokeWidth=alt.StrokeWidth("plane:N", scale=widths, legend=legend),
    )


def _shown(curves: alt.Chart, planes: list[Any], last: int) -> alt.LayerChart:
    legend = alt.Legend(orient="top", title=None, symbolType="stroke", symbolSize=500)
    x, y = chart.x("m:Q", None, [0, last], grid=False), chart.y("shown:Q", "position shown")
    right = alt.Chart(chart.data(m=[0, last], shown=[0, last]))
    line = right.mark_line(color=MUTED, strokeWidth=1.5, strokeDash=[1, 3])
    whole = alt.layer(line.encode(x=x, y=y), _lines(curves, planes, legend).encode(x=x, y=y))
    return whole.properties(width=WIDTH, height=190, name="shown")


def _off(curves: alt.Chart, planes: list[Any], last: int) -> alt.LayerChart:
    x = chart.x("m:Q", "position given", [0, last], grid=False)
    y = chart.y("off:Q", "shown less given")
    zero = alt.Chart(chart.data(off=[0])).mark_rule(color=MUTED, strokeDash=[1, 3]).encode(y=y)
    # The axis is no shorter than this, or a right implementation would show its last digit.
    room = alt.Chart(chart.data(off=[-1, 1])).mark_point(opacity=0).encode(y=y)
    whole = alt.layer(room, zero, _lines(curves, planes, None).encode(x=x, y=y))
    return whole.properties(width=WIDTH, height=150, name="off")
