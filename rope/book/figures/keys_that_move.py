"""Keys moved one by one in their format, beside keys moved once: hands of clocks that stop.

Chapter "Keys that move". A row of dials is a key, a dial one of its planes: the pair of coordinates
divided by its norm before any move. Everything that is drawn was computed by the package.

Shapes: F frames, K keys, P planes.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt
from torch import Tensor

from rope.book.figures import chart
from rope.book.figures.seeds import check_some
from rope.book.figures.style import BLUE, GRID, VERMILION

DIAL = 56  # pixels
REACH = 0.44  # of a hand of length 1, in dials


def hands(
    moves: Sequence[int], planes: Sequence[int], once: Tensor, steps: Tensor, off: Tensor
) -> Any:
    """A cache as rows of dials, under a slider of the moves made.

    moves: `[F]`, the frames, from 0, evenly spaced; planes: `[P]`, their numbers; once, steps:
    complex `[F, K, P]`, each hand moved there at once and one by one; off: `[F, 2]`, the relative
    error of the keys, at once and one by one. Raises ValueError where there are no moves.
    """
    check_some(f"{s}" for s in moves)
    spacing = moves[1] - moves[0]
    count, height = len(planes), once.shape[1]
    frame = "datum.s == s"
    said = chart.data(s=moves, once=off[:, 0].tolist(), steps=off[:, 1].tolist())
    lines = (
        "'— moved once: off by ' + format(datum.once, '.1%')",
        "'- - one by one: off by ' + format(datum.steps, '.0%')",
    )
    words = [
        chart.reading(
            line, y=10 + 20 * row, size=15, of=alt.Chart(said).transform_filter(frame), color=colour
        )
        for row, (line, colour) in enumerate(zip(lines, (BLUE, VERMILION), strict=True))
    ]
    size = {"width": DIAL * count, "height": DIAL * height}
    dials = alt.layer(
        _dials(count, height),
        _hand(moves, once, frame, BLUE, 5.0, (1, 0)),
        _hand(moves, steps, frame, VERMILION, 2.5, (4, 2)),
    ).properties(**size)
    names = chart.data(x=[p + 0.5 for p in range(count)], plane=[f"{plane}" for plane in planes])
    heads = alt.Chart(names).mark_text(fontSize=13).encode(x=_x(count), text="plane:N")
    title = chart.reading("'hands of planes'", y=8, size=13)
    slider = chart.slider("s", 0, moves[-1], spacing, moves[len(moves) // 2], "moves by −1")
    last = ", ".join(
        f"plane {plane} {_apart(once[-1, :, p], steps[-1, :, p]):.0f}"
        for p, plane in enumerate(planes)
    )
    return chart.finish(
        alt.vconcat(
            alt.layer(*words).properties(width=size["width"], height=40),
            title.properties(width=size["width"], height=14),
            heads.properties(width=size["width"], height=16),
            dials,
            spacing=4,
        ).add_params(slider),
        alt_text=f"{height} rows of dials, a key each, a dial for each of {count} planes. In every "
        "dial two hands: one moved to its place at once, and a dashed one moved there by one "
        "position at a time and rounded to the format each time. As the moves grow, solid hands "
        "turn; dashed ones of low-frequency planes stand still. Mean angle between the two after "
        f"{moves[-1]:,} moves, in degrees: {last}.",
        play={"signal": "s", "min": 0, "max": moves[-1], "step": spacing, "seconds": 14},
    )


def _apart(one: Tensor, other: Tensor) -> float:
    """The mean angle between hands, in degrees."""
    return float((one * other.conj()).angle().abs().rad2deg().mean())


def _x(count: int) -> alt.X:
    return alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, count], nice=False))


def _y(height: int) -> alt.Y:
    return alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[height, 0], nice=False))


def _dials(count: int, height: int) -> alt.Chart:
    centres = [(p + 0.5, k + 0.5) for k in range(height) for p in range(count)]
    places = chart.data(x=[x for x, _ in centres], y=[y for _, y in centres])
    circle = alt.Chart(places).mark_point(
        color=GRID, size=(2 * REACH * DIAL) ** 2, strokeWidth=1.5, fill=None, opacity=1
    )
    return circle.encode(x=_x(count), y=_y(height))


def _hand(
    moves: Sequence[int],
    pairs: Tensor,
    frame: str,
    colour: str,
    width: float,
    dash: tuple[int, int],
) -> alt.LayerChart:
    _, height, count = pairs.shape
    rows: dict[str, list[Any]] = {"s": [], "x": [], "y": [], "x2": [], "y2": []}
    for f, s in enumerate(moves):
        for k in range(height):
            for p in range(count):
                at = complex(pairs[f, k, p]) * REACH
                rows["s"].append(s)
                rows["x"].append(p + 0.5)
                rows["y"].append(k + 0.5)
                rows["x2"].append(round(p + 0.5 + at.real, 3))
                rows["y2"].append(round(k + 0.5 - at.imag, 3))
    shown = alt.Chart(chart.data(**rows)).transform_filter(frame)
    line = shown.mark_rule(color=colour, strokeWidth=width, strokeDash=list(dash), opacity=1)
    return line.encode(x=_x(count), y=_y(height), x2="x2:Q", y2="y2:Q")
