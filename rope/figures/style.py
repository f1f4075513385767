"""One look for every figure: colours, dashes and sizes, for Matplotlib and Altair alike.

The colours follow Okabe and Ito's palette, darkened where needed: each has a contrast of at
least 3:1 on white and on the dark theme's background. A dash goes with each colour, so that no
line is told from another by colour alone. `INK`, `MUTED`, `GRID` and `PAPER` are roles, not
colours: a stored figure is dark ink on opaque paper, legible in any notebook, and the built
page puts its theme's own colours in their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

#: Colours in order of use, and the dash (on, off, in points) that goes with each.
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, OCHRE, SKY)
DASHES: tuple[tuple[int, ...], ...] = (
    (1, 0),
    (6, 2),
    (2, 2),
    (8, 2, 2, 2),
    (4, 4),
    (8, 2, 2, 2, 2, 2),
)

#: Width of a page's figure in inches. Ten-point text then stays readable on a narrow phone.
WIDTH = 5.2


def matplotlib_settings() -> Any:
    """The `rcParams` of the book's static figures."""
    from cycler import cycler

    lines = ["-", *((0, tuple(float(x) for x in dash)) for dash in DASHES[1:])]
    return {
        "font.family": ["DejaVu Sans"],
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.labelsize": 10,
        "xtick.labelsize": 10,
        "ytick.labelsize": 10,
        "legend.fontsize": 10,
        "mathtext.fontset": "dejavusans",
        "svg.fonttype": "none",
        "svg.hashsalt": "rope",
        "figure.facecolor": PAPER,
        "savefig.facecolor": PAPER,
        "axes.facecolor": "none",
        "text.color": INK,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "lines.linewidth": 2.0,
        "axes.prop_cycle": cycler(color=COLOURS) + cycler(linestyle=lines),
        "legend.frameon": False,
        "figure.constrained_layout.use": True,
    }


def subplots(
    rows: int = 1,
    columns: int = 1,
    *,
    width: float = WIDTH,
    height: float = 3.2,
    **keywords: Any,
) -> tuple[Figure, Any]:
    """A Matplotlib figure in the book's style, and its axes.

    The settings hold from here on, for the calls that draw on the axes. The figure is not
    registered with pyplot, so nothing shows it until `rope.figures.picture` turns it to SVG.

    Args:
        rows: rows of axes.
        columns: columns of axes.
        width: of the figure, in inches; at most 5.2 keeps the text readable at 390 pixels.
        height: of the figure, in inches.
        keywords: passed to `Figure.subplots` (`sharex`, `width_ratios`, `subplot_kw`, ...).

    Returns:
        The figure, and one axes or an array of axes, as `Figure.subplots` gives them.

    Example:
        >>> fig, ax = subplots()
        >>> lines = ax.plot([0, 1], [0, 1])
        >>> lines[0].get_color()
        '#0072b2'
    """
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(matplotlib_settings())
    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(rows, columns, **keywords)
