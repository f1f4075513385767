"""Show patches and heads with more than one axis, for the chapter "Images and video".

At position p, plane j rotates by sum_a p_a Theta_{a,j}. Theta is float64 `[A, R/2]`, in radians per
position. In `two_waves`, plane j has Theta_{.,j} = (2 pi / lambda) (cos phi, sin phi). At the
displacement (d_row, d_column), it adds cos(d_row Theta_{0,j} + d_column Theta_{1,j}) to the score.
These values form a wave across the image with direction phi and wavelength lambda.

Shapes: A axes, S tokens, R rotated width.
"""

import math
from typing import Any

import altair as alt
import numpy as np
import torch
from torch import Tensor

from rope.axes import axis_tables, grid_positions
from rope.book.figures import Picture, chart, panels, picture, shapes, subplots
from rope.book.figures.style import BLUE, GRID, MUTED, VERMILION

REACH = 6
SIZE = 286  # pixels: 13 cells of 22
# The page replaces the colors of rope.book.figures.style with CSS variables, which Vega cannot
# interpolate. A continuous color scale therefore needs its own colors.
LOW_TO_HIGH = ["#c75300", "#fbfaf6", "#00639c"]
START = {"direction_0": 0, "wave_0": 6, "direction_1": 90, "wave_1": 8}


def hands(frequencies: Tensor, rows: int, columns: int) -> Picture:
    """Draw a grid of patches, each with two dials that show the angles of planes 0 and 1.

    frequencies: `[2, 2]`, with one row per axis (row, column) and one column per plane (0, 1).
    """
    positions = grid_positions(rows, columns)
    cos, sin = axis_tables(positions, frequencies, dtype=torch.float64)
    figure, ax = subplots(height=5.2 * rows / columns)
    ax.set(xlim=(-0.04, columns + 0.04), ylim=(rows + 0.04, -0.04), aspect="equal")
    ax.set_axis_off()
    for place, (row, column) in enumerate(positions.T.tolist()):
        shapes.box(ax, column + 0.02, row + 0.02, 0.96, 0.96, fill=False, ec=MUTED)
        ax.text(column + 0.5, row + 0.16, f"({row}, {column})", **shapes.CENTERED)
        for plane, (color, dash) in enumerate(((BLUE, "-"), (VERMILION, (0, (4, 1.5))))):
            x, y = column + 0.26 + 0.48 * plane, row + 0.55
            ring = shapes.arc((x, y), (0.21, 0.21), 0, math.tau, steps=48)
            ax.plot(*ring, color=GRID, linewidth=1.2, linestyle="-")
            # The grid's y axis points down, so the sine is subtracted.
            tip = x + 0.21 * cos[place, plane].item(), y - 0.21 * sin[place, plane].item()
            ax.plot((x, tip[0]), (y, tip[1]), color=color, linewidth=2.4, linestyle=dash)
            ax.text(x, row + 0.89, f"plane {plane}", **shapes.CENTERED)
    return picture(
        figure,
        alt=f"A grid of {rows} rows and {columns} columns of patches, each with two dials. The "
        "hand of plane 0 is rotated further in each row and is the same along a row; the hand "
        "of plane 1 is rotated further in each column and is the same down a column.",
    )


def strips_and_grid(at: tuple[int, int], **heads: Tensor) -> Picture:
    """Draw the attention weights of the patch in row and column `at`, one map per head.

    heads: maps each title (with _ for spaces) to weights `[rows, columns]`. The area of a square
    is proportional to its weight. Weights of at most 1% of the largest are not drawn. The query's
    own square is orange.
    """
    figure, items = panels(heads, columns=len(heads), height=3.1, sharey=True)
    for ax, name, weights in items:
        rows, columns = weights.shape
        shapes.box(ax, -0.5, -0.5, columns, rows, fill=False, ec=MUTED)
        for row, column in (weights > 0.01 * weights.max()).nonzero().tolist():
            side = math.sqrt(weights[row, column] / weights.max())
            color = VERMILION if (row, column) == at else BLUE
            shapes.box(ax, column - side / 2, row - side / 2, side, side, facecolor=color)
        ax.set(title=name.replace("_", " "), xlabel="column", aspect="equal")
        ax.set(xlim=(-0.7, columns - 0.3), ylim=(rows - 0.3, -0.7))
        ax.set(xticks=range(0, columns, 4), yticks=range(0, rows, 4))
        ax.grid(False)
    figure.axes[0].set_ylabel("row")
    return picture(
        figure,
        alt="Two maps of attention weights on 14 by 14 patches, for a query near the right edge. "
        "Numbered row by row, the query attends to its own row and, at the opposite edge of the "
        "image, to the start of the next row; the patches above and below it get nothing. With a "
        "row and a column, its attention falls off in all directions and ends at the edge.",
    )


def two_waves() -> Any:
    """Show the score of an axial head at all displacements. Sliders change its two planes."""
    sliders = []
    for j in (0, 1):
        turn, wave = f"direction_{j}", f"wave_{j}"
        sliders += [
            chart.slider(turn, 0, 175, 1, START[turn], f"plane {j}: direction (0 down, 90 right)"),
            chart.slider(wave, 2, 16, 0.5, START[wave], f"plane {j}: wavelength"),
        ]
    corners = f"{_score('1', '1')} - ({_score('1', '-1')}) - ({_score('-1', '1')})"
    mixed = chart.derived("mixed", f"{corners} + {_score('-1', '-1')}")
    expression = "'mixed difference: ' + format(abs(mixed) < 5e-10 ? 0 : mixed, '.3f')"
    words = chart.reading(expression, y=12, size=16, name="mixed").properties(width=SIZE, height=24)

    row, column = np.mgrid[-REACH : REACH + 1, -REACH : REACH + 1].reshape(2, -1)
    cells = alt.Chart(chart.data(row=row, column=column))
    scored = cells.transform_calculate(score=_score("datum.row", "datum.column"))
    minus = "replace(datum.label, '-', '−')"
    ticks = {"values": [-6, -3, 0, 3, 6], "grid": False, "labelAngle": 0, "labelExpr": minus}
    numbers: dict[str, Any] = {"values": [-2, -1, 0, 1, 2], "gradientLength": SIZE}
    squares = scored.mark_rect().encode(
        x=chart.x("column:O", "columns to the right", **ticks),
        y=chart.y("row:O", "rows down", **ticks),
        color=alt.Color(
            "score:Q",
            scale=alt.Scale(domain=[-2, 0, 2], range=LOW_TO_HIGH),
            legend=alt.Legend(orient="bottom", title="score", **numbers),
        ),
    )
    # The query's own score is always 2, so its square has the same color in both themes.
    here = alt.Chart(chart.data(row=[0], column=[0])).mark_point(
        shape="cross", filled=True, size=120, color="white", opacity=1
    )
    waves = chart.square(squares, here.encode(x="column:O", y="row:O"), size=SIZE)
    return chart.finish(
        alt.vconcat(words, waves, spacing=8).add_params(*sliders, mixed),
        alt_text=f"A map of the score over displacements, up to {REACH} rows and columns from the "
        "query. Each of two planes is a wave across the map, with a direction and a "
        "wavelength set by sliders. At 0 and 90 degrees, as it opens, the waves follow the "
        "rows and the columns, their sum is a pattern of rectangles, and the mixed difference "
        "written above it is 0. In other directions the stripes are oblique, and the mixed "
        "difference is in general not 0.",
        play={"signal": "direction_1", "min": 0, "max": 175, "step": 1, "seconds": 18},
    )


def _score(row: str, column: str) -> str:
    """Return the score at a displacement, as a Vega expression."""
    terms = []
    for j in (0, 1):
        across = f"({row})*cos(direction_{j}*PI/180) + ({column})*sin(direction_{j}*PI/180)"
        terms.append(f"cos(2*PI/wave_{j}*({across}))")
    return " + ".join(terms)
