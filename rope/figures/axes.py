"""Pictures of "Images and video": patches, heads and position ids with more than one axis.

Plane j turns by sum_a p_a Theta_{a,j}; Theta is `[A, R/2]`, float64, radians per position.
Shapes: A axes, S tokens, R rotated width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rope.axes import axis_tables, grid_positions, mrope_position_ids, section_frequencies
from rope.figures.picture import Picture, picture
from rope.figures.style import BLUE, GREEN, GRID, INK, MUTED, VERMILION, subplots
from rope.frequencies import inverse_frequencies

AXES = (("time", BLUE, "o"), ("height", VERMILION, "s"), ("width", GREEN, "^"))


def hands(frequencies: Tensor, rows: int, columns: int) -> Picture:
    """A grid of patches; in each, two dials whose hands stand at the angles of planes 0 and 1.

    frequencies: `[2, 2]`, axes row and column.
    """
    positions = grid_positions(rows, columns)
    cos, sin = axis_tables(positions, frequencies, dtype=torch.float64)
    figure, ax = subplots(height=5.2 * rows / columns)
    ax.set(xlim=(-0.04, columns + 0.04), ylim=(rows + 0.04, -0.04), aspect="equal")
    ax.set_axis_off()
    for place, (row, column) in enumerate(positions.T.tolist()):
        ax.add_patch(_box(column, row))
        ax.text(column + 0.5, row + 0.16, f"({row}, {column})", color=INK, ha="center", va="center")
        for plane, (colour, dash) in enumerate(((BLUE, "-"), (VERMILION, (0, (4, 1.5))))):
            centre = (column + 0.26 + 0.48 * plane, row + 0.55)
            _dial(ax, centre, (cos[place, plane].item(), sin[place, plane].item()), colour, dash)
            ax.text(centre[0], row + 0.89, f"plane {plane}", color=INK, ha="center", va="center")
    return picture(
        figure,
        alt=f"A grid of {rows} rows and {columns} columns of patches, each with two dials. The "
        "hand of plane 0 is turned further in each row and is the same along a row; the hand of "
        "plane 1 is turned further in each column and is the same down a column.",
    )


def _box(column: float, row: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column + 0.02, row + 0.02), 0.96, 0.96, fill=False, edgecolor=MUTED)


def _dial(
    ax: Any, centre: tuple[float, float], hand: tuple[float, float], colour: str, dash: Any
) -> None:
    """A circle and a hand; the y axis of the grid points down, so the sine is subtracted."""
    x, y = centre
    turn = [math.tau * step / 48 for step in range(49)]
    ring = ([x + 0.21 * math.cos(t) for t in turn], [y + 0.21 * math.sin(t) for t in turn])
    ax.plot(*ring, color=GRID, linewidth=1.2, linestyle="-")
    tip = (x + 0.21 * hand[0], y - 0.21 * hand[1])
    ax.plot((x, tip[0]), (y, tip[1]), color=colour, linewidth=2.4, linestyle=dash)


def attention_maps(**heads: Tensor) -> Picture:
    """Attention weights over displacements, one map a head: `[2r+1, 2r+1]`, the query's patch in
    the middle; weights above 0.1 are drawn as squares of that area, with their numbers beside them.

    The keywords are the titles, an underscore for a space.
    """
    figure, axes = subplots(1, len(heads), height=3.2, sharey=True)
    for ax, (name, weights) in zip(axes, heads.items(), strict=True):
        reach = len(weights) // 2
        for row, column in (weights > 0.1).nonzero().tolist():
            weight = weights[row, column].item()
            x, y = column - reach, row - reach
            # The area says it, not the shade: one colour is seen in both of the page's themes.
            ax.add_patch(_square(x, y, math.sqrt(weight)))
            text = f"{weight:.2f}".lstrip("0")  # on the side away from the query
            ax.text(1.9 * x, y, text, ha="center", va="center", fontsize=10, color=INK)
        limits = (-reach - 0.5, reach + 0.5)
        ax.set(xlim=limits, ylim=limits)
        ax.plot([0], [0], marker="+", color=INK, markersize=8)
        ax.set(title=name.replace("_", " "), xlabel="columns to the right", aspect="equal")
        ax.set(xticks=range(-reach, reach + 1), yticks=range(-reach, reach + 1))
        ax.grid(False)
    axes[0].set_ylabel("rows down")
    axes[0].invert_yaxis()
    return picture(
        figure,
        alt="Two maps of attention weights over the displacement from the query, seven by seven. "
        "The axial head has a quarter on each of the four diagonal neighbours. The mixed head has "
        "a half, a square of twice the area, on the neighbour above to the left and on the one "
        "below to the right.",
    )


def _square(x: float, y: float, side: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - side / 2, y - side / 2), side, side, facecolor=BLUE)


def section_map(base: float, **orders: tuple[Sequence[int], bool]) -> Picture:
    """The wavelength of each plane and the axis that turns it, one panel an order of sections.

    The keywords are the titles, an underscore for a space; the values (sections, interleaved).
    """
    figure, grid = subplots(len(orders), 1, height=4.6, sharex=True, squeeze=False)
    panels = grid[:, 0]
    for ax, (name, (sections, interleaved)) in zip(panels, orders.items(), strict=True):
        inv_freq = inverse_frequencies(2 * sum(sections), base)
        theta = section_frequencies(inv_freq, sections, interleaved_sections=interleaved)
        for axis, (label, colour, marker) in enumerate(AXES):
            planes = theta[axis].nonzero().flatten()
            waves = (math.tau / theta[axis, planes]).tolist()
            style = {"linestyle": "none", "marker": marker, "markersize": 4, "color": colour}
            ax.semilogy(planes.tolist(), waves, label=label, **style)
        ax.set(title=name.replace("_", " "), ylabel="wavelength")
        ax.set_yticks([10, 1000, 100_000])
    panels[-1].set_xlabel("plane $j$")
    panels[0].legend(loc="upper left", handletextpad=0.2)
    return picture(
        figure,
        alt="Two panels of wavelengths against the plane, on a logarithmic axis. In contiguous "
        "order time has the planes with the shortest wavelengths, height the middle ones, width "
        "the longest. In interleaved order the three axes alternate along nearly the whole line.",
    )


def mrope_ids(segments: Sequence[int | tuple[int, int, int]]) -> Picture:
    """The three position ids of each token of a mixed sequence, one panel an axis."""
    ids = mrope_position_ids(segments)
    size = ids.shape[1]
    figure, panels = subplots(3, 1, height=4.6, sharex=True, sharey=True)
    edges, place = [], 0
    for segment in segments:
        length = segment if isinstance(segment, int) else math.prod(segment)
        kind = "text" if isinstance(segment, int) else "image" if segment[0] == 1 else "video"
        panels[0].text(
            place + (length - 1) / 2, ids.max().item() + 2, kind, ha="center", va="center"
        )
        place += length
        edges.append(place - 0.5)
    for axis, (ax, (label, colour, marker)) in enumerate(zip(panels, AXES, strict=True)):
        for edge in edges[:-1]:
            ax.axvline(edge, color=MUTED, linewidth=1, linestyle=":")
        style = {"linestyle": "none", "marker": marker, "markersize": 4, "color": colour}
        ax.plot(range(size), ids[axis].tolist(), **style)
        ax.set(ylabel=label, ylim=(-1, ids.max().item() + 1))
    panels[-1].set_xlabel("token in the sequence")
    return picture(
        figure,
        alt="Three panels, the time, height and width position of each token. Over text all three "
        "climb together, one a token. Over an image time stands still, height climbs by one a row "
        "and width runs through the columns of each row. Over a video time climbs by one a frame. "
        "Each part starts one above the largest position before it.",
    )
