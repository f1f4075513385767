"""What the figures of trained models share: a look for each way, and how seeds become a line.

Chapters "What training shows", "What the model uses" and "Beyond the trained length". A way looks
the same in every figure. A line is the mean over seeds; its band runs from the least seed to the
greatest, which assumes nothing of how they are distributed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rope.figures.style import (
    BLUE,
    COLOURS,
    DASHES,
    GREEN,
    INK,
    MUTED,
    OCHRE,
    PURPLE,
    SKY,
    VERMILION,
    subplots,
)

Dash = tuple[int, ...]
LOOKS: dict[str, tuple[str, str, Dash]] = {
    "none": ("no positions", MUTED, (2, 2)),
    "sinusoidal": ("sinusoidal", VERMILION, (6, 2)),
    "learned": ("learned", OCHRE, (8, 2, 2, 2)),
    "rope": ("RoPE", BLUE, (1, 0)),
    "partial": ("partial RoPE", SKY, (4, 2)),
    "alibi": ("ALiBi", GREEN, (2, 1)),
    "t5": ("T5 bias", PURPLE, (8, 2, 2, 2, 2, 2)),
    "xpos": ("xPos", INK, (5, 1, 1, 1)),
}
OTHERS = [*zip((*COLOURS, INK, MUTED), (*DASHES, (5, 1, 1, 1), (1, 1)), strict=True)]
LINE_HEIGHT = 13.0  # points between the middles of two labels


class Spread(NamedTuple):
    """The mean over seeds at each point and the least and greatest seed, NaN where not measured."""

    mean: list[float]
    low: list[float]
    high: list[float]


def spread(runs: Sequence[Sequence[float | None]]) -> Spread:
    """Mean, least and greatest of equally long runs, one a seed; None where one is not measured.

    Raises ValueError for no run, and for runs of different lengths.

    >>> spread([[1.0, 2.0], [3.0, None]])
    Spread(mean=[2.0, nan], low=[1.0, nan], high=[3.0, nan])
    """
    lengths = sorted({len(run) for run in runs})
    if len(lengths) != 1:
        found = f"runs of {lengths} points" if lengths else "no run"
        raise ValueError(f"{found} to average; all seeds must have equally many: leave out others")
    columns = [
        [math.nan if value is None else float(value) for value in column]
        for column in zip(*runs, strict=True)
    ]
    gaps = [any(map(math.isnan, column)) for column in columns]

    def each(reduce: Any) -> list[float]:
        pairs = zip(gaps, columns, strict=True)
        return [math.nan if gap else reduce(column) for gap, column in pairs]

    return Spread(each(lambda column: math.fsum(column) / len(column)), each(min), each(max))


def check_some(found: Iterable[str]) -> None:
    """Raise ValueError where there is nothing to draw."""
    if not list(found):
        raise ValueError("nothing to draw; at least one way must have been measured: pass one")


def capitalised(words: str) -> str:
    """The words as a sentence begins.

    >>> capitalised("loss of RoPE")
    'Loss of RoPE'
    """
    return words[:1].upper() + words[1:]


def label(name: str) -> str:
    """The words for a way; a name that is none of the eight stands for itself."""
    return LOOKS[name][0] if name in LOOKS else name


def look(name: str, names: Iterable[str]) -> dict[str, Any]:
    """Colour and dash of one line among `names`, as Matplotlib's `plot` takes them.

    Raises ValueError where more names than looks are to be told apart.
    """
    strangers = [other for other in names if other not in LOOKS]
    if len(strangers) > len(OTHERS):
        raise ValueError(
            f"{len(strangers)} lines in one figure; at most {len(OTHERS)} can be told apart: draw "
            "two figures"
        )
    colour, dash = LOOKS[name][1:] if name in LOOKS else OTHERS[strangers.index(name)]
    return {"color": colour, "linestyle": (0, tuple(map(float, dash))) if dash[1] else "-"}


def draw(ax: Any, x: Sequence[float], curve: Spread, style: Mapping[str, Any]) -> None:
    """The mean as a line, on a band from the least to the greatest."""
    shade = {"color": style["color"], "alpha": 0.2, "linewidth": 0}
    ax.fill_between(x, curve.low, curve.high, **shade)
    ax.plot(x, curve.mean, **style)


def small_multiples(
    x: Mapping[str, Sequence[float]],
    curves: Mapping[str, Spread],
    reference: str,
    notes: Mapping[str, str],
) -> tuple[Any, Any]:
    """One panel a way, in the order given, each with the reference's line in grey beneath.

    notes: by way, what stands above its panel on the right. Returns the figure and the panels
    `[rows, 2]` to finish; the last may be empty and hidden.
    """
    rows = (len(curves) + 1) // 2
    figure, panels = subplots(
        rows, 2, height=0.6 + 1.3 * rows, sharex=True, sharey=True, squeeze=False
    )
    for ax, name in zip(panels.flat, curves, strict=False):
        if name != reference and reference in curves:
            grey = {"color": MUTED, "linestyle": "-", "linewidth": 1.0}
            ax.plot(x[reference], curves[reference].mean, **grey)
        draw(ax, x[name], curves[name], look(name, curves))
        ax.set_title(label(name), loc="left", fontsize=10)
        ax.set_title(notes[name], loc="right", fontsize=10, color=INK)
    if len(curves) % 2:
        panels[-1, 1].set_visible(False)
        panels[-2, 1].tick_params(labelbottom=True)
    return figure, panels


def end_labels(
    figure: Any,
    ax: Any,
    ends: Mapping[str, tuple[float, float]],
    more: Mapping[str, str] | None = None,
) -> None:
    """The words for each line right of the axes, as near the height of its end as they fit.

    ends: x and y by name; more: what a name's words go on with. Call it last: the limits of the
    axes are fixed here.
    """
    figure.draw_without_rendering()
    ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())
    height = ax.get_window_extent().height * 72 / figure.dpi  # in points
    names = sorted(ends, key=lambda name: ends[name][1])
    fractions = [float(_fraction(ax, ends[name])[1]) for name in names]
    places = apart([fraction * height for fraction in fractions], LINE_HEIGHT, height)
    for name, place in zip(names, places, strict=True):
        leader = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 1}
        ax.annotate(
            label(name) + (more or {}).get(name, ""),
            ends[name],
            (1.06, place / height),
            textcoords="axes fraction",
            va="center",
            color=INK,
            arrowprops=leader | {"relpos": (0, 0.5)},
            annotation_clip=False,
        )


def _fraction(ax: Any, point: tuple[float, float]) -> Any:
    return ax.transAxes.inverted().transform(ax.transData.transform(point))


def apart(places: Sequence[float], gap: float, top: float) -> list[float]:
    """Rising places moved as little as it takes to be `gap` apart, within 0 ... top if they fit.

    >>> apart([1.0, 1.0, 9.0], gap=2.0, top=10.0)
    [0.0, 2.0, 9.0]
    """
    groups: list[list[float]] = []  # wanted places of neighbours that touch
    for place in places:
        groups.append([place])
        while len(groups) > 1 and _start(groups[-2], gap, top) + gap * len(groups[-2]) > _start(
            groups[-1], gap, top
        ):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_start(group, gap, top) + gap * k for group in groups for k in range(len(group))]


def _start(group: Sequence[float], gap: float, top: float) -> float:
    """Where a group's first place goes, so that the group has its mean where it wants it."""
    length = gap * (len(group) - 1)
    return max(0.0, min(math.fsum(group) / len(group) - length / 2, top - length))
