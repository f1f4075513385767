"""The moving figure of "Images and video": two planes, each with a direction and a wavelength.

A plane with Theta_{.,j} = (2 pi / lambda) (cos phi, sin phi) adds cos(d_row Theta_{0,j} +
d_column Theta_{1,j}) to the score at displacement (d_row, d_column): a wave across the image.
"""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import torch
from torch import Tensor

from rope.figures import chart

REACH = 6
SIZE = 286  # pixels: 13 cells of 22
# The page swaps the roles of rope.figures.style for its theme's colours, and Vega cannot blend
# those; a scale that blends needs colours of its own.
LOW_TO_HIGH = ["#c75300", "#fbfaf6", "#00639c"]
START = {"direction_0": 0, "wave_0": 6, "direction_1": 90, "wave_1": 8}


def wave_frequencies(directions: tuple[float, float], waves: tuple[float, float]) -> Tensor:
    """Theta `[2, 2]` of two planes from directions in degrees and wavelengths in patches.

    >>> (wave_frequencies((0, 90), (4, 8)) / torch.pi).round(decimals=6).abs()
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]], dtype=torch.float64)
    """
    turns = torch.tensor(directions, dtype=torch.float64) * (math.pi / 180)
    return torch.stack((turns.cos(), turns.sin())) * (
        math.tau / torch.tensor(waves, dtype=torch.float64)
    )


def two_waves() -> Any:
    """The score over displacements, with sliders for both planes; it opens on an axial head."""
    sliders = []
    for j in (0, 1):
        turn, wave = f"direction_{j}", f"wave_{j}"
        sliders += [
            chart.slider(turn, 0, 175, 1, START[turn], f"plane {j}: direction (0 down, 90 right)"),
            chart.slider(wave, 2, 16, 0.5, START[wave], f"plane {j}: wavelength"),
        ]
    side = range(-REACH, REACH + 1)
    cells = [(row, column) for row in side for column in side]
    grid = chart.data(row=[row for row, _ in cells], column=[column for _, column in cells])
    scored = alt.Chart(grid).transform_calculate(score=_score("datum.row", "datum.column"))
    colours = alt.Scale(domain=[-2, 0, 2], range=LOW_TO_HIGH)
    minus = "replace(datum.label, '-', '−')"
    ticks = alt.Axis(values=[-6, -3, 0, 3, 6], grid=False, labelAngle=0, labelExpr=minus)
    squares = scored.mark_rect().encode(
        x=alt.X("column:O", title="columns to the right", axis=ticks),
        y=alt.Y("row:O", title="rows down", axis=ticks),
        color=alt.Color(
            "score:Q",
            scale=colours,
            legend=alt.Legend(
                orient="bottom", title="score", values=[-2, -1, 0, 1, 2], gradientLength=SIZE
            ),
        ),
    )
    # The query's own score is 2 whatever the waves, so its square has one colour in both themes.
    here = alt.Chart(chart.data(row=[0], column=[0])).mark_point(
        shape="cross", filled=True, size=120, color="white", opacity=1
    )
    image = alt.layer(squares, here.encode(x="column:O", y="row:O"))
    corners = f"{_score('1', '1')} - ({_score('1', '-1')}) - ({_score('-1', '1')})"
    mixed = chart.derived("mixed", f"{corners} + {_score('-1', '-1')}")
    words = chart.reading(
        "'mixed difference: ' + format(abs(mixed) < 5e-10 ? 0 : mixed, '.3f')",
        y=12,
        size=16,
        name="mixed",
    ).properties(width=SIZE, height=24)
    whole = alt.vconcat(words, image.properties(width=SIZE, height=SIZE), spacing=8)
    return chart.finish(
        whole.add_params(*sliders, mixed),
        alt_text=(
            f"A map of the score over displacements, up to {REACH} rows and columns from the "
            "query. Each of two planes is a wave across the map, with a direction and a "
            "wavelength set by sliders. At 0 and 90 degrees, as it opens, the waves follow the "
            "rows and the columns, their sum is a pattern of rectangles, and the mixed difference "
            "written above it is 0. In other directions the stripes are oblique, and the mixed "
            "difference is in general not 0."
        ),
        play={"signal": "direction_1", "min": 0, "max": 175, "step": 1, "seconds": 18},
    )


def _score(row: str, column: str) -> str:
    """The score at a displacement, as a Vega expression."""
    terms = []
    for j in (0, 1):
        across = f"({row})*cos(direction_{j}*PI/180) + ({column})*sin(direction_{j}*PI/180)"
        terms.append(f"cos(2*PI/wave_{j}*({across}))")
    return " + ".join(terms)
