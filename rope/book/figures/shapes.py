"""Shapes of the static figures that several chapters draw: arrows, arcs, maps, marked places."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rope.book.figures.style import INK

CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}
DASHED = (0, (4, 2))

Point = tuple[float, ...]


def arrow(ax: Any, start: Point, tip: Point, colour: str, **style: Any) -> None:
    """An arrow whose ends are the two points; style: `linewidth`, `linestyle`."""
    whole = {"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0}
    whole |= {"linewidth": 2.2, "mutation_scale": 13} | style
    ax.annotate("", xy=tip, xytext=start, arrowprops=whole)


def arc(
    centre: Point, radii: Point, start: float, end: float, steps: int = 40
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The coordinates x and y of points on an ellipse between two angles, for `ax.plot`."""
    angles = np.linspace(start, end, steps + 1)
    return centre[0] + radii[0] * np.cos(angles), centre[1] + radii[1] * np.sin(angles)


def signed_map(ax: Any, table: ArrayLike, title: str) -> None:
    """Numbers of either sign as a map whose cells are centred on their indices; white is 0."""
    cells = np.asarray(table)
    top = float(abs(cells).max())
    edges = np.arange(len(cells) + 1) - 0.5
    ax.pcolormesh(edges, edges, cells, cmap="RdBu_r", vmin=-top, vmax=top, edgecolors="face")
    ax.set(title=title, aspect="equal")
    ax.grid(False)


def mark(ax: Any, x: float, words: str = "") -> None:
    """A dotted line at x, with words above the axes."""
    ax.axvline(x, color=INK, linestyle=":", linewidth=1)
    ax.text(x, 1.01, words, transform=ax.get_xaxis_transform(), ha="center", va="bottom")
