"""Show decoding with a cache, and texts packed into one row, for "Rotary attention".

A key is rotated once, to its own position. A rotary score depends on the positions only through
n - m.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import altair as alt

from rope.attention import segment_ids
from rope.book.figures import Picture, chart, picture, shapes, subplots
from rope.book.figures.style import BLUE, GRID, INK, VERMILION
from rope.positions import packed_position_ids

TOKENS = 12
THETA = 0.35


def decoding() -> Any:
    """Show cached keys that stay unchanged, and a query that rotates with each new token."""
    rows = alt.Chart(chart.data(n=range(TOKENS))).transform_filter("datum.n < tokens")
    xy = chart.coordinates(1.3)
    placed = rows.transform_calculate(
        x=f"cos(datum.n*{THETA:g})", y=f"sin(datum.n*{THETA:g})", x0="0", y0="0"
    )
    beyond = rows.transform_calculate(
        x=f"1.13*cos(datum.n*{THETA:g})", y=f"1.13*sin(datum.n*{THETA:g})"
    )
    angle = f"(tokens - 1)*{THETA:g}"
    circle = chart.square(
        chart.plane(1.3),
        placed.mark_rule(color=BLUE, strokeWidth=1.5).encode(**xy, x2="x0:Q", y2="y0:Q"),
        placed.mark_circle(color=BLUE, size=70, opacity=1).encode(**xy),
        beyond.mark_text(fontSize=12, color=INK).encode(**xy, text="n:Q"),
        chart.arrow(f"0.8*cos({angle})", f"0.8*sin({angle})", VERMILION, extent=1.3, width=4),
        size=300,
    )
    step = chart.slider("tokens", 1, TOKENS, 1, 4, "tokens decoded")
    return chart.finish(
        circle.add_params(step),
        alt_text="A circle with one spoke for each key in the cache, numbered by position "
        "and each at the angle of its position, and a thick arrow for the query of the newest "
        "token, at the angle of its own. Decoding one more token adds a spoke and turns "
        "the arrow; the older spokes stay where they are.",
        play={"signal": "tokens", "min": 1, "max": TOKENS, "step": 1, "seconds": 9},
    )


def packed_picture(lengths: Sequence[int]) -> Picture:
    """Draw the mask of packed texts, with the distance m - n in each unmasked cell."""
    segments = segment_ids(lengths)
    mask = (segments[:, None] == segments).tril()
    positions = packed_position_ids(lengths).tolist()
    size = len(positions)
    figure, ax = subplots(height=5.0)
    ax.set(xlim=(0, size), ylim=(size, 0), aspect="equal")
    ax.grid(False)
    for m, n in mask.nonzero().tolist():
        shapes.box(ax, n, m, facecolor=BLUE, alpha=0.22, linewidth=0)
        ax.text(n + 0.5, m + 0.55, positions[m] - positions[n], **shapes.CENTERED)
    for edge in accumulate(lengths[:-1]):
        ax.axhline(edge, color=GRID, linewidth=1.2)
        ax.axvline(edge, color=GRID, linewidth=1.2)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks([place + 0.5 for place in range(size)], positions)
    ax.tick_params(length=0)
    ax.set(xlabel="position of the key, within its text")
    ax.set(ylabel="position of the query, within its text")
    return picture(
        figure,
        alt=f"A square of {size} queries by {size} keys. {len(lengths)} triangles lie along the "
        "diagonal, one per text; each cell of a triangle holds the distance from query to key, "
        "0 on the diagonal and growing to the left. All cells between texts are empty.",
    )
