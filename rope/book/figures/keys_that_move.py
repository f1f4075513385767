"""Show keys that are moved one position at a time and rounded each time, for "Keys that move".

`hands` draws one row of dials per key, with one dial per plane. A dial's hand shows the plane's
pair of coordinates, divided by the norm that the pair had before the first move.

Shapes: F frames, K keys, P planes.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
from torch import Tensor

from rope.book.figures import chart
from rope.book.figures.style import BLUE, GRID, VERMILION

DIAL = 56  # pixels
REACH = 0.44  # the length of a unit hand, in dial widths


def hands(
    moves: Sequence[int], planes: Sequence[int], once: Tensor, steps: Tensor, off: Tensor
) -> Any:
    """Show a cache as rows of dials, with a slider for the number of moves.

    moves: `[F]`, the number of moves in each frame. The numbers start at 0 and are evenly spaced.
    planes: `[P]`, the planes' indices.
    once, steps: complex `[F, K, P]`, the hands after one long move, and after moves by −1.
    off: `[F, 2]`, the relative errors of the keys in these two cases.
    """
    spacing, count, height = moves[1] - moves[0], len(planes), once.shape[1]
    width = DIAL * count
    places = {
        "x": chart.bare(alt.X, "x:Q", 0, count),
        "y": chart.bare(alt.Y, "y:Q", height, 0),  # row 0 is at the top
    }

    def hand(pairs: Tensor, **style: Any) -> alt.Chart:
        rows = []
        for (f, k, p), pair in np.ndenumerate(pairs.numpy() * REACH):
            x, y = p + 0.5, k + 0.5
            rows.append((moves[f], x, y, round(x + pair.real, 3), round(y - pair.imag, 3)))
        table = alt.Chart(chart.table(("s", "x", "y", "x2", "y2"), rows))
        line = table.transform_filter("datum.s == s").mark_rule(opacity=1, **style)
        return line.encode(**places, x2="x2:Q", y2="y2:Q")

    centers = ((p + 0.5, k + 0.5) for k in range(height) for p in range(count))
    circles = alt.Chart(chart.table(("x", "y"), centers)).mark_point(
        color=GRID, size=(2 * REACH * DIAL) ** 2, strokeWidth=1.5, fill=None, opacity=1
    )
    dials = alt.layer(
        circles.encode(**places),
        hand(once, color=BLUE, strokeWidth=5.0, strokeDash=[1, 0]),
        hand(steps, color=VERMILION, strokeWidth=2.5, strokeDash=[4, 2]),
    )
    errors = chart.data(s=moves, once=off[:, 0].tolist(), steps=off[:, 1].tolist())
    shown = alt.Chart(errors).transform_filter("datum.s == s")
    at_once = "'— moved once: off by ' + format(datum.once, '.1%')"
    one_by_one = "'- - one by one: off by ' + format(datum.steps, '.0%')"
    words = alt.layer(
        chart.reading(at_once, y=10, size=15, of=shown, color=BLUE),
        chart.reading(one_by_one, y=30, size=15, of=shown, color=VERMILION),
    )
    names = chart.data(x=[p + 0.5 for p in range(count)], plane=[f"plane {j}" for j in planes])
    heads = alt.Chart(names).mark_text(fontSize=12).encode(x=places["x"], text="plane:N")
    apart = (once[-1] * steps[-1].conj()).angle().abs().rad2deg().mean(dim=0).tolist()
    last = ", ".join(f"plane {j} {angle:.0f}" for j, angle in zip(planes, apart, strict=True))
    return chart.finish(
        alt.vconcat(
            words.properties(width=width, height=40),
            heads.properties(width=width, height=16),
            dials.properties(width=width, height=DIAL * height),
            spacing=4,
        ).add_params(chart.slider("s", 0, moves[-1], spacing, moves[-1], "moves by −1")),
        alt_text=f"{height} rows of dials, one row per key, one dial for each of {count} planes. "
        "Each dial has two hands: a solid one moved to its place at once, and a dashed one moved "
        "one position at a time and rounded each time. With more moves, the solid hands turn, but "
        "the dashed hands of low-frequency planes stand still. Mean angle between the two hands "
        f"after {moves[-1]:,} moves, in degrees: {last}.",
        play={"signal": "s", "min": 0, "max": moves[-1], "step": spacing, "seconds": 14},
    )
