"""Show keys that are moved one position at a time and rounded each time: chapter "Keys that move".

`hands` draws one row of dials per key, with one dial per plane. A dial's hand is the plane's pair
of coordinates, divided by the pair's norm before any move. `cells` draws a pair on the grid of the
numbers that its format can hold.

Shapes: F frames, K keys, P planes, S moves.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
from torch import Tensor

from rope.book.figures import Picture, chart, panels, picture
from rope.book.figures.style import BLUE, GRID, MUTED, VERMILION

DIAL = 56  # pixels
REACH = 0.44  # the length of a unit hand, in dial widths


def hands(
    moves: Sequence[int], planes: Sequence[int], once: Tensor, steps: Tensor, off: Tensor
) -> Any:
    """Show a cache as rows of dials, with a slider for the number of moves.

    moves: `[F]`, the number of moves in each frame. The numbers start at 0 and are evenly spaced.
    planes: `[P]`, the planes' indices.
    once, steps: complex `[F, K, P]`, the hands moved at once and one position at a time.
    off: `[F, 2]`, the relative errors of the keys moved at once and one position at a time.
    """
    spacing, count, height = moves[1] - moves[0], len(planes), once.shape[1]
    width = DIAL * count
    places = {
        "x": chart.bare(alt.X, "x:Q", 0, count),
        "y": chart.bare(alt.Y, "y:Q", height, 0),  # rows count from the top
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
    title = chart.reading("'planes'", y=8, size=13)
    names = chart.data(x=[p + 0.5 for p in range(count)], plane=[f"{plane}" for plane in planes])
    heads = alt.Chart(names).mark_text(fontSize=13).encode(x=places["x"], text="plane:N")
    apart = (once[-1] * steps[-1].conj()).angle().abs().rad2deg().mean(dim=0).tolist()
    last = ", ".join(f"plane {j} {angle:.0f}" for j, angle in zip(planes, apart, strict=True))
    return chart.finish(
        alt.vconcat(
            words.properties(width=width, height=40),
            title.properties(width=width, height=14),
            heads.properties(width=width, height=16),
            dials.properties(width=width, height=DIAL * height),
            spacing=4,
        ).add_params(chart.slider("s", 0, moves[-1], spacing, moves[-1], "moves by −1")),
        alt_text=f"{height} rows of dials, one row per key, one dial for each of {count} planes. "
        "Each dial has two hands: one moved to its place at once, and a dashed one moved there by "
        "one position at a time and rounded to the format each time. As the moves grow, solid "
        "hands turn; dashed hands of low-frequency planes stand still. Mean angle between the two "
        f"after {moves[-1]:,} moves, in degrees: {last}.",
        play={"signal": "s", "min": 0, "max": moves[-1], "step": spacing, "seconds": 14},
    )


def cells(spacing: float, moved: Mapping[int, tuple[Tensor, Tensor]]) -> Picture:
    """Draw a moving pair, exact and rounded after each move, on the grid of its format's numbers.

    spacing: the distance between neighboring numbers of the format near the pair. moved: maps
    each plane to the exact and the stored pair, complex `[S + 1]`, before the first move and after
    each move. Both start at the same pair, which the format holds exactly.
    """
    # Offsets from the first pair, in cells. All numbers in a cell round to the cell's center.
    scaled = {
        f"plane {plane}, {len(pairs[0]) - 1} moves": [
            (pair - pair[0]).numpy() / spacing for pair in pairs
        ]
        for plane, pairs in moved.items()
    }
    every = np.concatenate([pair for pairs in scaled.values() for pair in pairs])
    ends = [(part.min().round() - 1, part.max().round() + 1) for part in (every.real, every.imag)]
    figure, items = panels(scaled, columns=len(moved), height=3.2, sharex=True, sharey=True)
    summaries = []
    for ax, title, (exact, stored) in items:
        ax.fill_between([-0.5, 0.5], -0.5, 0.5, color=GRID, linewidth=0)
        ax.plot(exact.real, exact.imag, "-o", color=BLUE, markersize=3, linewidth=1, label="exact")
        ax.plot(stored.real, stored.imag, "--s", color=VERMILION, markersize=6, label="stored")
        ax.set_title(title)
        x, y = (np.arange(low, high) + 0.5 for low, high in ends)
        ax.set(xticks=x, yticks=y, xlim=ends[0], ylim=ends[1], aspect="equal")
        ax.tick_params(length=0, labelbottom=False, labelleft=False)
        ax.spines[:].set(visible=True, color=MUTED)
        exact_end, stored_end = (
            f"ends {pair[-1].real:.1f} cells to the right and {0 - pair[-1].imag:.1f} down"
            for pair in (exact, stored)
        )
        summaries.append(f"{title}: the exact pair {exact_end}; the stored pair {stored_end}.")
    figure.legend(*items[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    alt = "A grid of cells; the points in a cell round to its center. " + " ".join(summaries)
    return picture(figure, alt=alt)
