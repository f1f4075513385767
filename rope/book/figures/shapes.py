"""Draw the arrows, arcs, boxes, marks, and axis ticks that several static figures share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from rope.book.figures.style import INK

CENTERED: dict[str, Any] = {"ha": "center", "va": "center"}
DASHED = (0, (4, 2))

Point = tuple[float, ...]


def arrow(ax: Any, start: Point, tip: Point, color: str, **style: Any) -> None:
    """Draw an arrow from `start` to `tip`. `style` may set `linewidth` and `linestyle`."""
    whole = {"arrowstyle": "-|>", "color": color, "shrinkA": 0, "shrinkB": 0}
    whole |= {"linewidth": 2.2, "mutation_scale": 13} | style
    ax.annotate("", xy=tip, xytext=start, arrowprops=whole)


def arc(
    center: Point, radii: Point, start: float, end: float, steps: int = 40
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the coordinates x and y of an arc of an ellipse. start, end: angles in radians."""
    angles = np.linspace(start, end, steps + 1)
    return center[0] + radii[0] * np.cos(angles), center[1] + radii[1] * np.sin(angles)


def box(ax: Any, x: float, y: float, width: float = 1, height: float = 1, **style: Any) -> None:
    """Draw a rectangle with one corner at (x, y). `style` is passed to Matplotlib's `Rectangle`."""
    ax.add_patch(Rectangle((x, y), width, height, **style))


def mark(ax: Any, x: float, words: str = "") -> None:
    """Draw a dotted vertical line at x, with a label above the axes."""
    ax.axvline(x, color=INK, linestyle=":", linewidth=1)
    ax.text(x, 1.01, words, transform=ax.get_xaxis_transform(), ha="center", va="bottom")


def x_ticks(ax: Any, values: Sequence[float], **text: Any) -> None:
    """Put ticks on a logarithmic x axis only at these values, with thousands separators."""
    ax.set_xticks(values, [f"{value:,.0f}" for value in values], **text)
    ax.minorticks_off()
