"""What the figures of trained models share: a look for each method, and how seeds become a line.

Chapters "What training shows" and those after it. A method looks the same in every figure. A line
is the mean over seeds; its band runs from the least seed to the greatest, which assumes nothing of
how they are distributed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np
from scipy.optimize import isotonic_regression

from rope.book.figures import style

Runs = Sequence[Sequence[float | None]]  # one a seed; None where one is not measured
Curve = Mapping[str, Sequence[float]]

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
COLOURS = (*style.COLOURS, style.INK, style.MUTED)
OTHERS = list(zip(COLOURS, (*style.DASHES, (5, 1, 1, 1), (1, 1)), strict=True))
LINE_HEIGHT = 13.0  # points between the middles of two labels
LEADER: dict[str, Any] = {"arrowstyle": "-", "color": style.MUTED, "linewidth": 0.7}
LEADER |= {"relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 1}


class Spread(NamedTuple):
    """The mean over seeds at each point and the least and greatest seed, NaN where not measured."""

    mean: list[float]
    low: list[float]
    high: list[float]


def spread(runs: Runs) -> Spread:
    """Mean, least and greatest of equally long runs.

    >>> spread([[1.0, 2.0], [3.0, None]])
    Spread(mean=[2.0, nan], low=[1.0, nan], high=[3.0, nan])
    """
    table = np.array(runs, dtype=float)  # None becomes NaN
    return Spread(*(reduce(table, axis=0).tolist() for reduce in (np.mean, np.min, np.max)))


def spreads(runs: Mapping[str, Runs]) -> dict[str, Spread]:
    """The spread of each method's runs."""
    return {name: spread(seeds) for name, seeds in runs.items()}


def curves_of_seeds(
    runs: Mapping[str, Sequence[Curve]], x: str, y: str
) -> tuple[dict[str, list[float]], dict[str, Spread]]:
    """By method, the points at which all of its seeds were measured, and the spread there.

    Raises ValueError for seeds that were measured at other points.
    """
    for name, seeds in runs.items():
        if len({tuple(run[x]) for run in seeds}) != 1:
            raise ValueError(
                f"the seeds of {name!r} do not share their values of {x!r}; a mean needs them all "
                "at the same ones: leave out the odd run"
            )
    points = {name: list(seeds[0][x]) for name, seeds in runs.items()}
    return points, {name: spread([run[y] for run in seeds]) for name, seeds in runs.items()}


def label(name: str) -> str:
    """The words for a method; a name that has none stands for itself."""
    return LOOKS[name][0] if name in LOOKS else name


def look(name: str, names: Iterable[str]) -> dict[str, Any]:
    """Colour and dash of one line among `names`, as Matplotlib's `plot` takes them."""
    strangers = [other for other in names if other not in LOOKS]
    colour, dash = LOOKS[name][1:] if name in LOOKS else OTHERS[strangers.index(name)]
    return {"color": colour, "linestyle": style.line_style(dash)}


def colours() -> alt.Color:
    """The colour of a method's words, for charts with a column `name`."""
    known = {words: colour for words, colour, _ in LOOKS.values()}
    scale = alt.Scale(domain=list(known), range=list(known.values()))
    return alt.Color("name:N", scale=scale, legend=None)


def draw(ax: Any, x: Sequence[float], curve: Spread, line: Mapping[str, Any]) -> None:
    """The mean as a line, on a band from the least to the greatest."""
    ax.fill_between(x, curve.low, curve.high, color=line["color"], alpha=0.2, linewidth=0)
    ax.plot(x, curve.mean, **line)


def early_end(ax: Any, end: tuple[float, float], words: str, colour: str, rise: float) -> None:
    """A cross where a line ends before the others, and its words `rise` points above it."""
    ax.plot(*end, "x", color=colour, markersize=9, markeredgewidth=2.5, zorder=4)
    to = LEADER | {"relpos": (1, 0.5)}
    ax.annotate(words, end, (-6, rise), textcoords="offset points", ha="right", arrowprops=to)


def end_labels(ax: Any, ends: Iterable[tuple[float, float, str]]) -> None:
    """The words for each line right of the axes, as near the height of its end as they fit.

    ends: x, y and words of each. Call it last: the limits of the axes are fixed here.
    """
    ax.figure.draw_without_rendering()
    ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())
    height = ax.get_window_extent().height * 72 / ax.figure.dpi  # in points
    in_order = sorted(ends, key=lambda end: end[1])
    points = ax.transData.transform([end[:2] for end in in_order])
    wanted = ax.transAxes.inverted().transform(points)[:, 1] * height
    for (x, y, words), place in zip(in_order, apart(wanted, LINE_HEIGHT, height), strict=True):
        text = ax.annotate(
            words, (x, y), (1.06, place / height), textcoords="axes fraction", arrowprops=LEADER
        )
        text.set(va="center", annotation_clip=False)


def apart(places: Sequence[float], gap: float, top: float) -> list[float]:
    """Rising places moved as little as it takes to be `gap` apart, within 0 ... top if they fit.

    Less k gaps, the k-th place must not fall: a monotone regression, by least squares.

    >>> apart([1.0, 1.0, 9.0], gap=2.0, top=10.0)
    [0.0, 2.0, 9.0]
    """
    steps = gap * np.arange(len(places))
    moved = isotonic_regression(np.subtract(places, steps)).x
    return (np.clip(moved, 0, max(0, top - steps[-1])) + steps).tolist()
