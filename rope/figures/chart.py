"""Moving figures: the parts of an Altair chart that runs with no kernel and no network.

A chart is stored as Vega-Lite JSON, which the tests compare; its motion is formulas in that
JSON. Sliders turn by name; positions and angles are Vega expressions in those names.
The built page redraws the chart in its own theme (see `rope/book/static/charts.js`).
"""

from __future__ import annotations

import sys
from typing import Any, TypedDict

import altair as alt

from rope.figures.style import COLOURS, DASHES, GRID, INK, MUTED, PAPER

# Colab has a renderer of its own and would not show the bare JSON.
if "google.colab" not in sys.modules:
    alt.renderers.enable("mimetype")

SIZE = 340  # pixels: a plane that fits a page 390 pixels wide

# A head whose tip is at the vector's end, pointing up at angle 0.
HEAD = "M0,0L0.62,1.5L0,1.2L-0.62,1.5Z"

Number = float | int


class Play(TypedDict, total=False):
    """What a Play button does: `signal` runs from `min` to `max` in `seconds`, and again."""

    signal: str
    min: Number
    max: Number
    step: Number
    seconds: Number
    autoplay: bool


def slider(
    name: str, low: Number, high: Number, step: Number, value: Number, label: str
) -> alt.Parameter:
    """A named number set by a labelled slider; expressions use it by its name."""
    if not low <= value <= high:
        raise ValueError(f"value is {value}; slider {name!r} runs from {low} to {high}.")
    bind = alt.binding_range(min=low, max=high, step=step, name=label)
    return alt.param(name=name, value=value, bind=bind)


def derived(name: str, expression: str) -> alt.Parameter:
    """A named number computed from the sliders by a Vega expression."""
    return alt.param(name=name, expr=expression)


def data(**columns: Any) -> alt.Data:
    """Columns of equal length as chart data, numbers rounded to six significant digits.

    Example:
        >>> data(n=[0, 1], score=[1.0, 0.5403023058681398]).to_dict()
        {'values': [{'n': 0, 'score': 1.0}, {'n': 1, 'score': 0.540302}]}
    """
    lists = {key: _plain(value) for key, value in columns.items()}
    lengths = {key: len(value) for key, value in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns differ in length: {lengths}.")
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    return alt.Data(values=rows)


def _plain(column: Any) -> list[Any]:
    """A list of Python numbers or strings, from a tensor, an array or a sequence."""
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    return [float(f"{v:.6g}") if isinstance(v, float) else v for v in values]


def one(**expressions: str) -> alt.Chart:
    """A chart of a single row whose columns are Vega expressions of the sliders."""
    chart = alt.Chart(alt.Data(values=[{}]))
    return chart.transform_calculate(**expressions) if expressions else chart


def coordinates(extent: float = 1.25) -> dict[str, Any]:
    """Encodings `x` and `y` for columns x, y on a fixed square plane without axes."""
    scale = alt.Scale(domain=[-extent, extent], nice=False, zero=False)
    return {
        "x": alt.X("x:Q", scale=scale, axis=None),
        "y": alt.Y("y:Q", scale=scale, axis=None),
    }


def plane(extent: float = 1.25, *, circle: float | None = 1.0) -> alt.LayerChart:
    """The background of a plane: two axes through the origin and, unless None, a circle."""
    reach = extent * 0.97
    lines = data(x=[-reach, 0.0], y=[0.0, -reach], x2=[reach, 0.0], y2=[0.0, reach])
    cross = alt.Chart(lines).mark_rule(color=GRID, strokeWidth=1.5)
    layers = [cross.encode(**coordinates(extent), x2="x2", y2="y2")]
    if circle is not None:
        layers.append(arc("0", "2*PI", extent=extent, radius=f"{circle:g}", colour=GRID))
    return alt.layer(*layers)


def arc(
    start: str,
    end: str,
    *,
    extent: float = 1.25,
    radius: str = "1",
    colour: str = INK,
    width: float = 1.5,
    dash: tuple[int, ...] | None = None,
) -> alt.Chart:
    """The arc around the origin between two angles in radians, given as Vega expressions."""
    steps = alt.Chart(alt.sequence(0, 1.0001, 1 / 96, as_="part"))
    turned = steps.transform_calculate(turn=f"({start}) + datum.part*(({end}) - ({start}))")
    placed = turned.transform_calculate(
        x=f"({radius})*cos(datum.turn)", y=f"({radius})*sin(datum.turn)"
    )
    line = placed.mark_line(color=colour, strokeWidth=width, strokeDash=list(dash or (1, 0)))
    return line.encode(**coordinates(extent), order="part:Q")


def arrow(
    x: str,
    y: str,
    colour: str,
    *,
    extent: float = 1.25,
    label: str | None = None,
    start: tuple[str, str] = ("0", "0"),
    dash: tuple[int, ...] | None = None,
    width: float = 3,
    opacity: float = 1,
) -> alt.LayerChart:
    """An arrow from `start` to (x, y), Vega expressions, with a label beyond its tip.

    The label is text, drawn in ink. Give arrows that must be told apart different dashes or
    labels besides different colours.
    """
    row = one(x=x, y=y, x0=start[0], y0=start[1]).transform_calculate(
        turn="90 - atan2(datum.y - datum.y0, datum.x - datum.x0)*180/PI",
        reach="sqrt(pow(datum.x - datum.x0, 2) + pow(datum.y - datum.y0, 2))",
    )
    xy = coordinates(extent)
    shaft = row.transform_calculate(
        # The shaft ends inside the head, whose tip is the vector's end.
        x=f"datum.x0 + (datum.x - datum.x0)*max(0, 1 - {0.06 * extent:g}/datum.reach)",
        y=f"datum.y0 + (datum.y - datum.y0)*max(0, 1 - {0.06 * extent:g}/datum.reach)",
    ).mark_rule(color=colour, strokeWidth=width, strokeDash=list(dash or (1, 0)), opacity=opacity)
    head = row.mark_point(
        shape=HEAD, filled=True, color=colour, size=90 * width, opacity=opacity, strokeWidth=0
    )
    layers = [
        shaft.encode(**xy, x2="x0:Q", y2="y0:Q"),
        head.encode(**xy, angle=alt.Angle("turn:Q", scale=None)),
    ]
    if label is not None:
        beyond = row.transform_calculate(
            x=f"datum.x + {0.11 * extent:g}*(datum.x - datum.x0)/max(datum.reach, 1e-9)",
            y=f"datum.y + {0.11 * extent:g}*(datum.y - datum.y0)/max(datum.reach, 1e-9)",
        )
        text = beyond.mark_text(text=label, fontSize=16, fontWeight="bold", color=INK)
        layers.append(text.encode(**xy))
    return alt.layer(*layers)


def reading(
    expression: str, *, y: float, x: float = 0, size: int = 20, name: str = "", **mark: Any
) -> alt.Chart:
    """Text computed by a Vega expression, at pixel (x, y) of its view.

    A `name` becomes the class `name_marks` in the page, by which a test finds the text.
    """
    text = {"align": "left", "baseline": "middle", "color": INK, "fontSize": size} | mark
    row = one(text=expression).mark_text(**text)
    row = row.properties(name=name) if name else row
    return row.encode(x=alt.value(x), y=alt.value(y), text="text:N")


def finish(chart: Any, *, alt_text: str, title: str | None = None, play: Play | None = None) -> Any:
    """The last touch: alt text, title, the book's look and, if asked for, a Play button.

    Args:
        chart: any Altair chart. Panels of an `hconcat` are stacked on narrow pages.
        alt_text: what is seen and what moving it shows; stored as the chart's description.
        title: set above the chart; most charts need none, for the cell has a caption.
        play: the signal (a slider's name) that the page's Play button advances.
    """
    alt_text = " ".join(alt_text.split())
    if not alt_text:
        raise ValueError("alt_text is empty: say in a sentence what the chart shows.")
    properties: dict[str, Any] = {"description": alt_text, "background": PAPER, "padding": 8}
    if title is not None:
        properties["title"] = title
    if play is not None:
        properties["usermeta"] = {"play": dict(play)}
    return (
        chart.properties(**properties)
        .configure(font="system-ui, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=INK,
            titleColor=INK,
            domainColor=MUTED,
            tickColor=MUTED,
            gridColor=GRID,
            labelFontSize=12,
            titleFontSize=13,
            titleFontWeight="normal",
        )
        .configure_legend(labelColor=INK, titleColor=INK, labelFontSize=12, titleFontSize=13)
        .configure_title(color=INK, fontSize=14, fontWeight=600, anchor="start")
        .configure_text(color=INK, fontSize=13)
        .configure_range(category=list(COLOURS), ordinal=list(COLOURS))
    )


def dashes(count: int) -> alt.Scale:
    """A scale for `strokeDash`: the dash that goes with each of the first `count` colours."""
    return alt.Scale(range=[list(dash) for dash in DASHES[:count]])
