"""How long a rotation takes, in units of a plain copy of the same tensors: plots of a record.

Chapter "As fast as memory allows". A copy reads each element once and writes it once; so does a
rotation out of place, in place it goes through half the memory. The alternative texts are
made from the numbers that are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rope.figures.picture import Picture, picture
from rope.figures.style import COLOURS, DASHES, INK, subplots

MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "*")
#: A competitor looks the same in every figure; who is not here gets the next free look. Six apart
#: stand those of one family: they share a colour.
NAMES = (
    "rope eager",
    "transformers",
    "rope compile",
    "rotary-embedding-torch",
    "formulas compiled",
    "Liger",
    "flash-attn",
    "transformers compiled",
    "rope triton",
    "rotary-embedding-torch module",
    "torchtune",
)


def against_copy(ratios: Mapping[str, Mapping[str, float]]) -> Picture:
    """For each case one row, for each competitor one mark: its time over a copy's, logarithmic.

    ratios: by the words for a case, then by the competitor's name, as `rope.bench.report.ratios`.
    Raises ValueError when there is nothing to draw.
    """
    names = _names(ratios.values())
    rows = list(ratios)
    figure, ax = subplots(height=0.8 + 0.12 * len(names) + 0.5 * len(rows))
    for name in names:
        found = [
            (ratios[row][name], place) for place, row in enumerate(rows) if name in ratios[row]
        ]
        colour, _, marker = _look(name, names)
        x, y = zip(*found, strict=True)
        ax.plot(x, y, marker, color=colour, linestyle="none", markersize=6, label=name)
    ax.axvline(1.0, color=INK, linestyle=":", linewidth=1)
    ax.set_xscale("log")
    _plain_numbers(ax.xaxis)
    for place, row in enumerate(rows):  # above its marks: beside them it would take half the width
        ax.text(0.01, place - 0.3, row, transform=ax.get_yaxis_transform(), va="center")
    ax.set(xlabel="time over that of a copy", ylim=(len(rows) - 0.5, -0.6), yticks=[])
    figure.legend(loc="outside upper left", ncols=2)
    said = " ".join(f"{row}: {_listed(ratios[row])}." for row in rows)
    return picture(figure, alt=f"Time over that of a copy of the same tensors. {said}")


def by_length(lengths: Sequence[int], curves: Mapping[str, Sequence[float]]) -> Picture:
    """Each competitor's time over a copy's against the sequence length, both logarithmic.

    curves: by name, one value a length, NaN where none was measured.
    Raises ValueError when there is nothing to draw.
    """
    names = _names([curves])
    figure, ax = subplots(height=3.2 + 0.26 * len(names) / 2)
    for name in names:
        colour, dash, marker = _look(name, names)
        line = {"color": colour, "linestyle": dash, "marker": marker, "markersize": 5}
        ax.plot(lengths, curves[name], label=name, **line)
    ax.axhline(1.0, color=INK, linestyle=":", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=45)
    ax.minorticks_off()
    _plain_numbers(ax.yaxis)
    ax.set(xlabel="sequence length", ylabel="time over that of a copy")
    figure.legend(loc="outside upper left", ncols=2)
    said = " ".join(f"{name}: {_course(lengths, curves[name])}." for name in names)
    return picture(figure, alt=f"Time over that of a copy, by sequence length. {said}")


def _names(groups: Any) -> list[str]:
    """Who is drawn, in the order of `NAMES`, strangers last."""
    found = dict.fromkeys(name for group in groups for name in group)
    if not found:
        raise ValueError(
            "the record has no times for this figure; at least one competitor must have been "
            "timed: choose cases that were measured"
        )
    return [name for name in NAMES if name in found] + [name for name in found if name not in NAMES]


def _look(name: str, names: Sequence[str]) -> tuple[str, Any, str]:
    """Colour, dash and marker."""
    strangers = [other for other in names if other not in NAMES]
    place = NAMES.index(name) if name in NAMES else len(NAMES) + strangers.index(name)
    turn = (place + place // len(COLOURS)) % len(DASHES)  # another dash at each return of a colour
    line = "-" if turn == 0 else (0, tuple(map(float, DASHES[turn])))
    return COLOURS[place % len(COLOURS)], line, MARKERS[place % len(MARKERS)]


def _plain_numbers(axis: Any) -> None:
    """1, 2, 5, 10, 20 ... instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _listed(found: Mapping[str, float]) -> str:
    """The competitors, fastest first, with two digits of each number."""
    ordered = sorted(found.items(), key=lambda pair: pair[1])
    return ", ".join(f"{name} {value:.2g}" for name, value in ordered)


def _course(lengths: Sequence[int], values: Sequence[float]) -> str:
    """Where a curve begins and where it ends."""
    known = [pair for pair in zip(lengths, values, strict=True) if not math.isnan(pair[1])]
    (first, start), (last, end) = known[0], known[-1]
    if first == last:
        return f"{start:.2g} at {first:,}"
    return f"{start:.2g} at {first:,}, {end:.2g} at {last:,}"
