"""Give each method the same look in all figures, and draw its seeds as a line with a band.

"What training shows" and later chapters use these looks. A line is the mean over seeds. Its band
runs from the smallest value over seeds to the largest, so it assumes nothing about how the values
are distributed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from rope.book.figures import style

Runs = Sequence[Sequence[float | None]]  # one list per seed; None where nothing was measured

LOOKS: dict[str, tuple[str, str, style.Dash]] = {
    "none": ("no positions", style.MUTED, (2, 2)),
    "sinusoidal": ("sinusoidal", style.VERMILION, (6, 2)),
    "learned": ("learned", style.OCHRE, (8, 2, 2, 2)),
    "rope": ("RoPE", style.BLUE, (1, 0)),
    "partial": ("partial RoPE", style.SKY, (4, 2)),
    "alibi": ("ALiBi", style.GREEN, (2, 1)),
    "t5": ("T5 bias", style.PURPLE, (8, 2, 2, 2, 2, 2)),
    "xpos": ("xPos", style.INK, (5, 1, 1, 1)),
    "p-rope": ("p-RoPE", style.SKY, (1, 1)),
}
COLORS = (*style.COLORS, style.INK, style.MUTED)
OTHERS = list(zip(COLORS, (*style.DASHES, (5, 1, 1, 1), (1, 1)), strict=True))
LINE_HEIGHT = 13.0  # points between the middles of two labels
LEADER: dict[str, Any] = {"arrowstyle": "-", "color": style.MUTED, "linewidth": 0.7}
LEADER |= {"relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 1}


def label(name: str) -> str:
    """Return the label of the method `name`, or the name itself if there is no label."""
    return LOOKS[name][0] if name in LOOKS else name


def look(name: str, names: Iterable[str]) -> dict[str, Any]:
    """Return the color and dash for `name`, one of `names`, as keyword arguments for `plot`."""
    others = [other for other in names if other not in LOOKS]
    color, dash = LOOKS[name][1:] if name in LOOKS else OTHERS[others.index(name)]
    return {"color": color, "linestyle": style.line_style(dash)}


def draw_runs(
    ax: Any, x: Sequence[float], runs: Mapping[str, Runs]
) -> list[tuple[float, float, str]]:
    """Draw each method's mean over seeds as a line, over a band from the minimum to the maximum.

    Returns (x, y, label) for the end of each line, as `end_labels` expects.
    """
    ends = []
    for name, seeds in runs.items():
        table, style = np.array(seeds, dtype=float), look(name, runs)  # None becomes NaN
        low, mean, high = table.min(axis=0), table.mean(axis=0), table.max(axis=0)
        ax.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
        ax.plot(x, mean, **style)
        last = np.flatnonzero(~np.isnan(mean))[-1]
        ends.append((x[last], mean[last], label(name)))
    return ends


def end_labels(ax: Any, ends: Sequence[tuple[float, float, str]]) -> None:
    """Label the lines that reach the largest x, to the right of the axes and close to their ends.

    ends: one (x, y, label) per line. Call this function last, because it fixes the axes' limits.
    """
    ax.figure.draw_without_rendering()
    ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())
    height = ax.get_window_extent().height * 72 / ax.figure.dpi  # in points
    right = max(end[0] for end in ends)
    in_order = sorted((end for end in ends if end[0] == right), key=lambda end: end[1])
    points = ax.transData.transform([end[:2] for end in in_order])
    wanted = ax.transAxes.inverted().transform(points)[:, 1] * height
    for (x, y, words), place in zip(in_order, apart(wanted, LINE_HEIGHT, height), strict=True):
        text = ax.annotate(
            words, (x, y), (1.06, place / height), textcoords="axes fraction", arrowprops=LEADER
        )
        text.set(va="center", annotation_clip=False)


def apart(places: Sequence[float], gap: float, top: float) -> list[float]:
    """Move ascending places as little as possible, so that they are at least `gap` apart.

    If they fit, the places stay between 0 and top. The places must still ascend after k gaps are
    subtracted from the k-th, so the function solves a least-squares isotonic regression.

    >>> apart([1.0, 1.0, 9.0], gap=2.0, top=10.0)
    [0.0, 2.0, 9.0]
    """
    steps = gap * np.arange(len(places))
    moved = isotonic_regression(np.subtract(places, steps)).x
    return (np.clip(moved, 0, max(0, top - steps[-1])) + steps).tolist()
