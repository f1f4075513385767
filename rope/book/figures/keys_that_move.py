"""Keys moved one by one in their format: clocks whose hands stop, and the cells that hold a pair.

Chapter "Keys that move". A row of dials is a key, a dial one of its planes: the pair of coordinates
divided by its norm before any move. Everything that is drawn was computed by the package.

Shapes: F frames, K keys, P planes, S moves.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
from torch import Tensor

from rope.book.figures import Picture, chart, picture, subplots
from rope.book.figures.style import BLUE, GRID, MUTED, VERMILION, Dash

DIAL = 56  # pixels
REACH = 0.44  # of a hand of length 1, in dials


def hands(
    moves: Sequence[int], planes: Sequence[int], once: Tensor, steps: Tensor, off: Tensor
) -> Any:
    """A cache as rows of dials, under a slider of the moves made.

    moves: `[F]`, the frames, from 0, evenly spaced; planes: `[P]`, their numbers; once, steps:
    complex `[F, K, P]`, each hand moved there at once and one by one; off: `[F, 2]`, the relative
    error of the keys, at once and one by one.
    """
    spacing = moves[1] - moves[0]
    count, height = len(planes), once.shape[1]
    frame = "datum.s == s"
    errors = chart.data(s=moves, once=off[:, 0].tolist(), steps=off[:, 1].tolist())
    shown = alt.Chart(errors).transform_filter(frame)
    lines = (
        "'— moved once: off by ' + format(datum.once, '.1%')",
        "'- - one by one: off by ' + format(datum.steps, '.0%')",
    )
    words = [
        chart.reading(line, y=10 + 20 * row, size=15, of=shown, color=colour)
        for row, (line, colour) in enumerate(zip(lines, (BLUE, VERMILION), strict=True))
    ]
    size = {"width": DIAL * count, "height": DIAL * height}
    dials = alt.layer(
        _dials(count, height),
        _hand(moves, once, frame, BLUE, 5.0, (1, 0)),
        _hand(moves, steps, frame, VERMILION, 2.5, (4, 2)),
    ).properties(**size)
    names = chart.data(x=[p + 0.5 for p in range(count)], plane=[f"{plane}" for plane in planes])
    heads = alt.Chart(names).mark_text(fontSize=13)
    heads = heads.encode(x=chart.bare(alt.X, "x:Q", 0, count), text="plane:N")
    title = chart.reading("'hands of planes'", y=8, size=13)
    slider = chart.slider("s", 0, moves[-1], spacing, moves[-1], "moves by −1")
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


def _places(count: int, height: int) -> dict[str, Any]:
    """The encodings of places in dials, from the top left."""
    x, y = chart.bare(alt.X, "x:Q", 0, count), chart.bare(alt.Y, "y:Q", height, 0)
    return {"x": x, "y": y}


def _dials(count: int, height: int) -> alt.Chart:
    centres = ((p + 0.5, k + 0.5) for k in range(height) for p in range(count))
    circle = alt.Chart(chart.table(("x", "y"), centres)).mark_point(
        color=GRID, size=(2 * REACH * DIAL) ** 2, strokeWidth=1.5, fill=None, opacity=1
    )
    return circle.encode(**_places(count, height))


def _hand(
    moves: Sequence[int],
    pairs: Tensor,
    frame: str,
    colour: str,
    width: float,
    dash: Dash,
) -> alt.LayerChart:
    _, height, count = pairs.shape
    rows = []
    for (f, k, p), pair in np.ndenumerate(pairs.numpy() * REACH):
        x, y = p + 0.5, k + 0.5
        rows.append((moves[f], x, y, round(x + pair.real, 3), round(y - pair.imag, 3)))
    table = chart.table(("s", "x", "y", "x2", "y2"), rows)
    shown = alt.Chart(table).transform_filter(frame)
    line = shown.mark_rule(color=colour, strokeWidth=width, strokeDash=list(dash), opacity=1)
    return line.encode(**_places(count, height), x2="x2:Q", y2="y2:Q")


def cells(spacing: float, moved: Mapping[int, tuple[Tensor, Tensor]]) -> Picture:
    """A pair among the numbers of its format: exact, and rounded after every move; a panel a plane.

    spacing: of the format's numbers there. moved: by plane, the exact and the stored pair before
    and after each move, complex `[S + 1]`; both begin at one pair of the format.
    """
    # In cells from the first pair: a cell is what is rounded to the number in its middle.
    scaled = {plane: [(p - p[0]).numpy() / spacing for p in both] for plane, both in moved.items()}
    every = np.concatenate([pair for both in scaled.values() for pair in both])
    ends = [(part.min().round() - 1, part.max().round() + 1) for part in (every.real, every.imag)]
    figure, axes = subplots(1, len(moved), height=3.2, sharex=True, sharey=True)
    said = []
    for ax, (plane, (exact, stored)) in zip(axes, scaled.items(), strict=True):
        ax.fill_between([-0.5, 0.5], -0.5, 0.5, color=GRID, linewidth=0)
        ax.plot(exact.real, exact.imag, "-o", color=BLUE, markersize=3, linewidth=1, label="exact")
        ax.plot(stored.real, stored.imag, "--s", color=VERMILION, markersize=6, label="stored")
        ax.set_title(f"plane {plane}, {len(exact) - 1} moves")
        x, y = (np.arange(low, high) + 0.5 for low, high in ends)
        ax.set(xticks=x, yticks=y, xlim=ends[0], ylim=ends[1], aspect="equal")
        ax.tick_params(length=0, labelbottom=False, labelleft=False)
        ax.spines[:].set(visible=True, color=MUTED)
        visited = [len({(round(z.real), round(z.imag)) for z in way}) for way in (exact, stored)]
        said.append(
            f"Plane {plane}, {len(exact) - 1} moves: the exact pair is in {visited[0]} cells "
            f"and ends {_words(exact[-1])}; the stored one is in {visited[1]} and ends "
            f"{_words(stored[-1])}."
        )
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    alt = "A grid of cells, each of the points that round to its middle. " + " ".join(said)
    return picture(figure, alt=alt)


def _words(place: complex) -> str:
    """A place, in cells from the first."""
    return f"{place.real:.1f} cells right and {0 - place.imag:.1f} down"
