"""Define one look for every figure: colors, dashes, and sizes, for both Matplotlib and Altair.

The colors follow Okabe and Ito's palette, darkened where needed. Each color has a contrast of at
least 3:1 on white and on the dark theme's background. Each color comes with a dash, so that no
reader has to tell two lines apart by color alone. `INK`, `MUTED`, `GRID`, and `PAPER` are roles,
not colors. A stored figure is drawn in dark ink on opaque paper, which any notebook can show; the
built page replaces the roles and the colors with its theme's colors.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import matplotlib
from cycler import cycler
from matplotlib.figure import Figure

INK = "#1b1f24"
MUTED = "#6a7079"
GRID = "#d8dade"
PAPER = "#fefefd"

BLUE = "#0072b2"
VERMILION = "#d55e00"
GREEN = "#00936b"
PURPLE = "#c0669a"
OCHRE = "#b97f00"
SKY = "#3d97cc"

Dash = tuple[int, ...]
Value = TypeVar("Value")

#: Colors in order of use, and the dash (lengths on, off, ...) that goes with each color.
COLORS = (BLUE, VERMILION, GREEN, PURPLE, OCHRE, SKY)
DASHES: tuple[Dash, ...] = ((1, 0), (6, 2), (2, 2), (8, 2, 2, 2), (4, 4), (8, 2, 2, 2, 2, 2))

#: A static figure's width in inches, at which ten-point text stays readable on a narrow phone.
WIDTH = 5.2


def line_style(dash: Dash) -> Any:
    """Return a dash as a Matplotlib `linestyle`."""
    return (0, tuple(map(float, dash))) if dash[1] else "-"


#: The `rcParams` for the book's static figures.
SETTINGS: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    **dict.fromkeys(("axes.labelsize", "xtick.labelsize", "ytick.labelsize"), 10),
    "axes.titlesize": 11,
    "legend.fontsize": 10,
    "mathtext.fontset": "dejavusans",
    "svg.fonttype": "none",
    "svg.hashsalt": "rope",
    "axes.facecolor": "none",
    **dict.fromkeys(("figure.facecolor", "savefig.facecolor"), PAPER),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor"), INK),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.0,
    "axes.prop_cycle": cycler(color=COLORS) + cycler(linestyle=map(line_style, DASHES)),
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def subplots(
    rows: int = 1, columns: int = 1, *, height: float = 3.2, **keywords: Any
) -> tuple[Figure, Any]:
    """Return a Matplotlib figure in the book's style, and the axes that `Figure.subplots` returns.

    The settings stay active for the calls that draw on the axes. The figure is not registered
    with pyplot, so it stays invisible until `rope.book.figures.picture` turns it into an SVG.

    height: in inches. keywords: passed on to `Figure.subplots` (`sharex`, `width_ratios`, ...).

    >>> fig, ax = subplots()
    >>> ax.plot([0, 1], [0, 1])[0].get_color()
    '#0072b2'
    """
    matplotlib.rcParams.update(SETTINGS)
    figure = Figure(figsize=(WIDTH, height))
    return figure, figure.subplots(rows, columns, **keywords)


def panels(
    items: Mapping[str, Value], *, columns: int = 1, **keywords: Any
) -> tuple[Figure, list[tuple[Any, str, Value]]]:
    """Return a figure with one panel per item, and the axes, name, and value of each panel.

    columns: the number of panels per row. keywords: passed on to `subplots`.

    >>> figure, items = panels({"sine": [0, 1, 0], "cosine": [1, 0, -1]})
    >>> [name for axes, name, values in items]
    ['sine', 'cosine']
    """
    figure, axes = subplots(-(-len(items) // columns), columns, squeeze=False, **keywords)
    return figure, [
        (ax, name, value) for ax, (name, value) in zip(axes.flat, items.items(), strict=True)
    ]
