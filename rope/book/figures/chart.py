"""Moving figures: the parts of an Altair chart that runs with no kernel and no network.

A chart is stored as Vega-Lite JSON, which the tests compare; its motion is formulas in that
JSON. Sliders set numbers by name; positions and angles are Vega expressions in those names.
The built page redraws the chart in its own theme (see `rope/book/tools/static/charts.js`).
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from rope.book.figures.style import COLOURS, GRID, INK, MUTED, PAPER, Dash

VEGA_LITE = "5.20"  # the version of the JSON that Altair 5.5 writes
MIME = "application/vnd.vegalite.v5+json"


def shown(spec: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A chart as a cell's output: its JSON, and for a plain viewer its description."""
    return {MIME: spec, "text/plain": f"Figure: {spec.get('description', 'a chart')}"}


alt.renderers.register("rope", shown)
# Colab has a renderer of its own and would not show the bare JSON.
if "google.colab" not in sys.modules:
    alt.renderers.enable("rope")

SIZE = 340  # pixels: a plane that fits a page 390 pixels wide

# A head whose tip is at the vector's end, pointing up at angle 0.
HEAD = "M0,0L0.62,1.5L0,1.2L-0.62,1.5Z"


def slider(
    name: str, low: float, high: float, step: float, value: float, label: str
) -> alt.Parameter:
    """A named number set by a labelled slider; expressions use it by its name."""
    if not low <= value <= high:
        raise ValueError(f"value is {value}; slider {name!r} runs from {low} to {high}.")
    bind = alt.binding_range(min=low, max=high, step=step, name=label)
    return alt.param(name=name, value=value, bind=bind)


def menu(name: str, options: Iterable[str | int], value: str | int, label: str) -> alt.Parameter:
    """A named value chosen from a labelled list; expressions use it by its name."""
    return alt.param(
        name=name, value=value, bind=alt.binding_select(options=[*options], name=label)
    )


def chosen(name: str, cases: Mapping[str, str]) -> str:
    """The expression of the case that a menu is at; the last one's where it is at no other."""
    *others, (_, last) = cases.items()
    return "".join(f"{name} == '{case}' ? {value} : " for case, value in others) + last


def derived(name: str, expression: str) -> alt.Parameter:
    """A named number computed from the sliders by a Vega expression."""
    return alt.param(name=name, expr=expression)


def data(**columns: Any) -> alt.Data:
    """Columns of equal length as chart data, numbers rounded to six significant digits.

    >>> data(n=[0, 1], score=[1.0, 0.5403023058681398]).to_dict()
    {'values': [{'n': 0, 'score': 1.0}, {'n': 1, 'score': 0.540302}]}
    """
    lists = {key: np.asarray(value).tolist() for key, value in columns.items()}
    rows = zip(*lists.values(), strict=True)
    return alt.Data(values=[dict(zip(lists, map(_short, row), strict=True)) for row in rows])


def table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> alt.Data:
    """Rows of equal length as chart data, their columns named, rounded as by `data`."""
    return data(**dict(zip(names, zip(*rows, strict=True), strict=True)))


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def one(**expressions: str) -> alt.Chart:
    """A chart of a single row whose columns are Vega expressions of the sliders."""
    return alt.Chart(alt.Data(values=[{}])).transform_calculate(**expressions)


def x(field: str, title: str | None, domain: Any = None, scale: Any = None, **axis: Any) -> alt.X:
    """The encoding of a horizontal place, its limits fixed where a domain is given.

    scale: more of `alt.Scale`, such as {"type": "log"}; axis: of `alt.Axis` (`values`, `grid`).
    """
    return alt.X(field, title=title, **_limits(domain, scale or {}, axis))


def y(field: str, title: str | None, domain: Any = None, scale: Any = None, **axis: Any) -> alt.Y:
    """The encoding of a height, as `x`."""
    return alt.Y(field, title=title, **_limits(domain, scale or {}, axis))


def _limits(domain: Any, scale: dict[str, Any], axis: dict[str, Any]) -> dict[str, Any]:
    encoding: dict[str, Any] = {"axis": alt.Axis(**axis)} if axis else {}
    if domain is not None:
        encoding["scale"] = alt.Scale(domain=list(domain), nice=False, **scale)
    return encoding


def bare(channel: Any, field: str, low: float, high: float) -> Any:
    """The encoding of a place between two limits, with no axis; channel: `alt.X` or `alt.Y`."""
    return channel(field, axis=None, scale=alt.Scale(domain=[low, high], nice=False))


def coordinates(extent: float) -> dict[str, Any]:
    """Encodings `x` and `y` for columns x, y on a fixed square plane without axes."""
    look: Any = {"scale": alt.Scale(domain=[-extent, extent], nice=False, zero=False), "axis": None}
    return {"x": alt.X("x:Q", **look), "y": alt.Y("y:Q", **look)}


def plane(extent: float) -> alt.LayerChart:
    """The background of a plane: two axes through the origin and the unit circle."""
    reach = extent * 0.97
    lines = data(x=[-reach, 0.0], y=[0.0, -reach], x2=[reach, 0.0], y2=[0.0, reach])
    cross = alt.Chart(lines).mark_rule(color=GRID, strokeWidth=1.5)
    cross = cross.encode(**coordinates(extent), x2="x2", y2="y2")
    return alt.layer(cross, arc("0", "2*PI", extent=extent, colour=GRID))


def arc(start: str, end: str, *, extent: float, radius: str = "1", colour: str = INK) -> alt.Chart:
    """The arc around the origin between two angles in radians, given as Vega expressions."""
    steps = alt.Chart(alt.sequence(0, 1.0001, 1 / 96, as_="part"))
    placed = steps.transform_calculate(
        turn=f"({start}) + datum.part*(({end}) - ({start}))"
    ).transform_calculate(x=f"({radius})*cos(datum.turn)", y=f"({radius})*sin(datum.turn)")
    line = placed.mark_line(color=colour, strokeWidth=1.5, strokeDash=[1, 0])
    return line.encode(**coordinates(extent), order="part:Q")


def arrow(
    x: str,
    y: str,
    colour: str,
    *,
    extent: float,
    label: str | None = None,
    dash: Dash = (1, 0),
    width: float = 3,
    opacity: float = 1,
) -> alt.LayerChart:
    """An arrow from the origin to (x, y), Vega expressions, with a label beyond its tip.

    The label is text, drawn in ink. Give arrows that must be told apart different dashes or
    labels besides different colours.
    """
    row = one(x=x, y=y, x0="0", y0="0").transform_calculate(
        turn="90 - atan2(datum.y - datum.y0, datum.x - datum.x0)*180/PI",
        reach="sqrt(pow(datum.x - datum.x0, 2) + pow(datum.y - datum.y0, 2))",
    )
    xy = coordinates(extent)
    shaft = row.transform_calculate(
        # The shaft ends inside the head, whose tip is the vector's end.
        x=f"datum.x0 + (datum.x - datum.x0)*max(0, 1 - {0.06 * extent:g}/datum.reach)",
        y=f"datum.y0 + (datum.y - datum.y0)*max(0, 1 - {0.06 * extent:g}/datum.reach)",
    ).mark_rule(color=colour, strokeWidth=width, strokeDash=list(dash), opacity=opacity)
    head = row.mark_point(
        shape=HEAD, filled=True, color=colour, size=90 * width, opacity=opacity, strokeWidth=0
    )
    layers = [
        shaft.encode(**xy, x2="x0:Q", y2="y0:Q"),
        head.encode(**xy, angle=alt.Angle("turn:Q", scale=None)),
    ]
    if label is not None:
        up = "(datum.y - datum.y0)/max(datum.reach, 1e-9)"
        up = "(datum.y < datum.y0 ? -1 : 1)" if len(label) > 3 else up  # long: above or below
        beyond = row.transform_calculate(
            x=f"datum.x + {0.11 * extent:g}*(datum.x - datum.x0)/max(datum.reach, 1e-9)",
            y=f"datum.y + {0.11 * extent:g}*{up}",
        )
        text = beyond.mark_text(text=label, fontSize=16, fontWeight="bold", color=INK)
        layers.append(text.encode(**xy))
    return alt.layer(*layers)


def reading(
    expression: str,
    *,
    y: float,
    x: float = 0,
    size: int = 20,
    name: str = "",
    of: alt.Chart | None = None,
    **mark: Any,
) -> alt.Chart:
    """Text computed by a Vega expression, at pixel (x, y) of its view.

    of: the chart whose row the expression reads; without it, the sliders alone.
    A `name` becomes the class `name_marks` in the page, by which a test finds the text.
    """
    text = {"align": "left", "baseline": "middle", "color": INK, "fontSize": size} | mark
    row = one(text=expression) if of is None else of.transform_calculate(text=expression)
    words = row.mark_text(**text).properties(**{"name": name} if name else {})
    return words.encode(x=alt.value(x), y=alt.value(y), text="text:N")


def finish(chart: Any, *, alt_text: str, play: dict[str, Any] | None = None) -> Any:
    """The last touch: alt text, the book's look and, if asked for, a Play button.

    chart: any Altair chart. Panels of an `hconcat` are stacked on narrow pages.
    alt_text: what is seen and what moving it shows; stored as the chart's description.
    play: of the page's Play button, on which "signal" (a slider's name) runs from "min" to "max" in
    "seconds", and again; also "step" and "autoplay".
    """
    alt_text = " ".join(alt_text.split())
    if not alt_text:
        raise ValueError("alt_text is empty: say in a sentence what the chart shows.")
    meta = {} if play is None else {"usermeta": {"play": play}}
    ink = {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 13}
    lines = {"domainColor": MUTED, "tickColor": MUTED, "gridColor": GRID}
    return (
        chart.properties(description=alt_text, background=PAPER, padding=8, **meta)
        .configure(font="system-ui, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(**ink, **lines, titleFontWeight="normal")
        .configure_legend(**ink)
        .configure_title(color=INK, fontSize=14, fontWeight=600, anchor="start")
        .configure_text(color=INK, fontSize=13)
        .configure_range(category=list(COLOURS), ordinal=list(COLOURS))
    )
