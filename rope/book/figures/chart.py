"""Build animations as Altair charts, which run without a kernel or a network connection.

A chart is stored as Vega-Lite JSON, which the tests compare. Formulas in that JSON produce all
motion: sliders set named numbers, and Vega expressions compute positions and angles from them. The
built page redraws the chart in its own theme (see `rope/book/tools/static/charts.js`).
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np

from rope.book.figures.style import COLORS, GRID, INK, MUTED, PAPER, Dash

VEGA_LITE = "5.20"  # the version of the JSON that Altair 5.5 writes
MIME = "application/vnd.vegalite.v5+json"


def bundle(spec: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return a chart as a cell's output: its JSON and, for text-only viewers, its description."""
    return {MIME: spec, "text/plain": f"Figure: {spec.get('description', 'a chart')}"}


alt.renderers.register("rope", bundle)
# Keep Colab's own renderer, because Colab can't display the bare JSON.
if "google.colab" not in sys.modules:
    alt.renderers.enable("rope")

SIZE = 340  # pixels; a plane of this size fits on a page that is 390 pixels wide

# The SVG path of an arrowhead that points up at angle 0; its tip is at the vector's end.
HEAD = "M0,0L0.62,1.5L0,1.2L-0.62,1.5Z"


def slider(
    name: str, low: float, high: float, step: float, value: float, label: str
) -> alt.Parameter:
    """Return a parameter that a labeled slider sets; expressions refer to it by `name`."""
    bind = alt.binding_range(min=low, max=high, step=step, name=label)
    return alt.param(name=name, value=value, bind=bind)


def menu(name: str, options: Iterable[str | int], value: str | int, label: str) -> alt.Parameter:
    """Return a parameter that a labeled menu sets; expressions refer to it by `name`."""
    return alt.param(
        name=name, value=value, bind=alt.binding_select(options=[*options], name=label)
    )


def chosen(name: str, cases: Mapping[str, str]) -> str:
    """Return a Vega expression for the case chosen in the menu `name`, by default the last one."""
    *others, (_, last) = cases.items()
    return "".join(f"{name} == '{case}' ? {value} : " for case, value in others) + last


def derived(name: str, expression: str) -> alt.Parameter:
    """Return a parameter that a Vega expression computes from other parameters."""
    return alt.param(name=name, expr=expression)


def data(**columns: Any) -> alt.Data:
    """Return columns of equal length as chart data. Floats are rounded to six significant digits.

    >>> data(n=[0, 1], score=[1.0, 0.5403023058681398]).to_dict()
    {'values': [{'n': 0, 'score': 1.0}, {'n': 1, 'score': 0.540302}]}
    """
    lists = [np.asarray(column).tolist() for column in columns.values()]
    return table([*columns], zip(*lists, strict=True))


def table(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> alt.Data:
    """Return rows as chart data with the given column names. Floats are rounded as in `data`."""
    rounded = (
        [float(f"{value:.6g}") if isinstance(value, float) else value for value in row]
        for row in rows
    )
    return alt.Data(values=[dict(zip(names, row, strict=True)) for row in rounded])


def one(**expressions: str) -> alt.Chart:
    """Return a chart whose data is a single row; Vega expressions compute its columns."""
    return alt.Chart(alt.Data(values=[{}])).transform_calculate(**expressions)


def _place(
    channel: Any, field: str, title: str | None, domain: Any = None, scale: Any = None, **axis: Any
) -> Any:
    """Return the encoding of a column on an axis, with fixed limits if a domain is given.

    scale: other arguments for `alt.Scale`, such as {"type": "log"}. axis: arguments for
    `alt.Axis`, such as `values` and `grid`.
    """
    encoding: dict[str, Any] = {"axis": alt.Axis(**axis)} if axis else {}
    if domain is not None:
        encoding["scale"] = alt.Scale(domain=list(domain), nice=False, **scale or {})
    return channel(field, title=title, **encoding)


x, y = partial(_place, alt.X), partial(_place, alt.Y)


def bare(channel: Any, field: str, low: float, high: float, **scale: Any) -> Any:
    """Return the encoding of a column on a scale from `low` to `high`, without an axis.

    channel: `alt.X` or `alt.Y`. scale: other arguments for `alt.Scale`.
    """
    return channel(field, axis=None, scale=alt.Scale(domain=[low, high], nice=False, **scale))


def coordinates(extent: float) -> dict[str, Any]:
    """Return encodings of the columns `x` and `y` on a fixed square plane without axes."""
    return {
        "x": bare(alt.X, "x:Q", -extent, extent, zero=False),
        "y": bare(alt.Y, "y:Q", -extent, extent, zero=False),
    }


def plane(extent: float) -> alt.LayerChart:
    """Return the background of a plane: two axes through the origin and the unit circle."""
    reach = extent * 0.97
    lines = data(x=[-reach, 0.0], y=[0.0, -reach], x2=[reach, 0.0], y2=[0.0, reach])
    cross = alt.Chart(lines).mark_rule(color=GRID, strokeWidth=1.5)
    cross = cross.encode(**coordinates(extent), x2="x2", y2="y2")
    return alt.layer(cross, arc("0", "2*PI", extent=extent, color=GRID))


def arc(start: str, end: str, *, extent: float, radius: str = "1", color: str = INK) -> alt.Chart:
    """Return an arc around the origin. start, end: Vega expressions for its angles in radians."""
    steps = alt.Chart(alt.sequence(0, 1.0001, 1 / 96, as_="part"))
    placed = steps.transform_calculate(
        turn=f"({start}) + datum.part*(({end}) - ({start}))"
    ).transform_calculate(x=f"({radius})*cos(datum.turn)", y=f"({radius})*sin(datum.turn)")
    line = placed.mark_line(color=color, strokeWidth=1.5, strokeDash=[1, 0])
    return line.encode(**coordinates(extent), order="part:Q")


def arrow(
    x: str,
    y: str,
    color: str,
    *,
    extent: float,
    label: str = "",
    dash: Dash = (1, 0),
    width: float = 3,
    opacity: float = 1,
) -> alt.LayerChart:
    """Return an arrow from the origin to (x, y), with a label beyond its tip.

    x, y: Vega expressions. The label is drawn in ink. If readers must tell arrows apart, give them
    different dashes or labels, not only different colors.
    """
    row = one(x=x, y=y).transform_calculate(
        turn="90 - atan2(datum.y, datum.x)*180/PI",
        reach="max(sqrt(datum.x*datum.x + datum.y*datum.y), 1e-9)",
    )
    xy = coordinates(extent)
    # End the shaft inside the head, so that the head's tip marks the vector's end.
    inside = f"max(0, 1 - {0.06 * extent:g}/datum.reach)"
    shaft = row.transform_calculate(x=f"datum.x*{inside}", y=f"datum.y*{inside}").mark_rule(
        color=color, strokeWidth=width, strokeDash=list(dash), opacity=opacity
    )
    head = row.mark_point(
        shape=HEAD, filled=True, color=color, size=90 * width, opacity=opacity, strokeWidth=0
    )
    layers = [
        shaft.encode(**xy, x2=alt.datum(0), y2=alt.datum(0)),
        head.encode(**xy, angle=alt.Angle("turn:Q", scale=None)),
    ]
    if label:
        up = "(datum.y < 0 ? -1 : 1)" if len(label) > 3 else "datum.y/datum.reach"
        beyond = row.transform_calculate(
            x=f"datum.x + {0.11 * extent:g}*datum.x/datum.reach",
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
    """Return a chart that shows text at pixel (x, y). A Vega expression computes the text.

    of: the one-row chart whose columns the expression reads, or None if it reads no columns.
    name: the prefix of the text's CSS class, `<name>_marks`, by which tests find the text.
    """
    text = {"align": "left", "baseline": "middle", "color": INK, "fontSize": size} | mark
    row = one(text=expression) if of is None else of.transform_calculate(text=expression)
    words = row.mark_text(**text).properties(**{"name": name} if name else {})
    return words.encode(x=alt.value(x), y=alt.value(y), text="text:N")


def readings(
    lines: Sequence[str], *, size: int, y: float, step: float, width: float, height: float
) -> alt.LayerChart:
    """Return a view with one line of text per expression, at pixels `y`, `y + step`, ..."""
    texts = (reading(line, y=y + step * row, size=size) for row, line in enumerate(lines))
    return alt.layer(*texts).properties(width=width, height=height)


def square(*layers: Any, size: int = SIZE) -> alt.LayerChart:
    """Combine layers into one square view, `size` pixels wide."""
    return alt.layer(*layers).properties(width=size, height=size)


def finish(chart: Any, *, alt_text: str, play: dict[str, Any] | None = None) -> Any:
    """Return the chart with alt text, the book's style, and a Play button if `play` is given.

    chart: any Altair chart. A narrow page stacks the panels of an `hconcat`.
    alt_text: what the chart looks like and what its controls change, stored as its description.
    play: settings for the page's Play button, which repeatedly moves the slider "signal" from
    "min" to "max" in "seconds". The settings "step" and "autoplay" are optional.
    """
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
        .configure_range(category=list(COLORS), ordinal=list(COLORS))
    )
