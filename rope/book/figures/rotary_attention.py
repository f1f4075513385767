"""Show decoding with a cache, padded rows, and texts packed into one row.

Chapter "Rotary attention". A key is rotated once, to its own position. A rotary score depends on
the positions only through n - m.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import altair as alt
from torch import Tensor

from rope.attention import segment_ids
from rope.book.figures import Picture, chart, picture, shapes, subplots
from rope.book.figures.style import BLUE, GRID, INK, MUTED, VERMILION
from rope.positions import packed_position_ids

TOKENS = 12
THETA = 0.35


def decoding() -> Any:
    """Show cached keys that stay unchanged, and a query that rotates with each new token."""
    rows = alt.Chart(chart.data(n=range(TOKENS))).transform_filter("datum.n < tokens")
    step = chart.slider("tokens", 1, TOKENS, 1, 4, "tokens decoded")
    return chart.finish(
        alt.hconcat(_circle(rows), _scores(rows), spacing=30).add_params(step),
        alt_text="Left: a circle with one spoke for each key in the cache, numbered by position "
        "and each at the angle of its position, and a thick arrow for the query of the newest "
        "token, at the angle of its own. Right: the score of that query with each key, the "
        "cosine of the angle between them. Decoding one more token adds a spoke and turns "
        "the arrow; the older spokes stay where they are.",
        play={"signal": "tokens", "min": 1, "max": TOKENS, "step": 1, "seconds": 9},
    )


def _circle(rows: alt.Chart) -> alt.LayerChart:
    """Draw a circle with a numbered spoke for each key, and the query of the newest token."""
    xy = chart.coordinates(1.3)
    placed = rows.transform_calculate(
        x=f"cos(datum.n*{THETA:g})", y=f"sin(datum.n*{THETA:g})", weight="datum.n == tokens - 1"
    )
    spokes = placed.transform_calculate(x0="0", y0="0").mark_rule(color=BLUE, strokeWidth=1.5)
    dots = placed.mark_circle(color=BLUE, size=70, opacity=1)
    beyond = rows.transform_calculate(
        x=f"1.13*cos(datum.n*{THETA:g})", y=f"1.13*sin(datum.n*{THETA:g})"
    )
    angle = f"(tokens - 1)*{THETA:g}"
    return chart.square(
        chart.plane(1.3),
        spokes.encode(**xy, x2="x0:Q", y2="y0:Q"),
        dots.encode(**xy),
        beyond.mark_text(fontSize=12, color=INK).encode(**xy, text="n:Q"),
        chart.arrow(f"0.8*cos({angle})", f"0.8*sin({angle})", VERMILION, extent=1.3, width=4),
        size=300,
    )


def _scores(rows: alt.Chart) -> alt.LayerChart:
    places = alt.Scale(domain=list(range(TOKENS)))
    upright = alt.Axis(labelAngle=0)
    score = rows.transform_calculate(score=f"cos((datum.n - (tokens - 1))*{THETA:g})")
    bars = score.mark_bar(color=BLUE).encode(
        x=alt.X("n:O", title="key position n", axis=upright, scale=places),
        y=alt.Y("score:Q", title="score", scale=alt.Scale(domain=[-1.05, 1.05])),
    )
    zero = alt.Chart(chart.data(y=[0])).mark_rule(color=MUTED).encode(y="y:Q")
    return alt.layer(bars.properties(width=260, height=220), zero)


def padded_picture(positions: Tensor, mask: Tensor) -> Picture:
    """Draw the slots of a padded batch with their positions, and the attention mask below them.

    positions: integers `[B, T]`, with -1 for padding. The last column is the next token's; a frame
    marks it. mask: bool `[B, T, T]`.
    """
    rows, size = positions.shape
    figure, axes = subplots(1, rows, height=3.4, squeeze=False)
    frame: dict[str, Any] = {"fill": False, "clip_on": False}
    summaries = []
    for row, (ax, places, open_) in enumerate(zip(axes[0], positions.tolist(), mask, strict=True)):
        ax.set(xlim=(0, size), ylim=(size, -1.6), aspect="equal", title=f"row {row}: slots")
        ax.grid(False)
        ax.spines[:].set_visible(False)
        for slot, place in enumerate(places):
            ax.text(slot + 0.5, -0.95, f"{place}".replace("-", "−"), **shapes.CENTERED)
        shapes.box(ax, 0, -1.5, size - 1, edgecolor=MUTED, **frame)
        shapes.box(ax, size - 1, -1.5, edgecolor=VERMILION, lw=2, **frame)
        for m, n in open_.nonzero().tolist():
            shapes.box(ax, n, m, facecolor=BLUE, alpha=0.4, edgecolor=GRID)
        shapes.box(ax, 0, 0, size, size, fill=False, edgecolor=GRID)
        ax.xaxis.tick_top()
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_ticks([slot + 0.5 for slot in range(size)], range(size))
        ax.tick_params(length=0)
        blind = places.count(-1)
        summaries.append(
            f"Row {row}: slots 0 to {size - 1} hold positions {', '.join(map(str, places))}, the "
            f"last one the next token's. In its mask {int(open_.sum())} of {size**2} cells are "
            f"open, {blind**2} of them between {blind} slots of padding."
        )
    axes[0, 0].set(ylabel="slot of the query")
    return picture(figure, alt=" ".join(summaries))


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
