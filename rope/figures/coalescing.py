"""Which bytes of memory the 32 lanes of a warp touch with each load of a rotation.

Chapter "As fast as memory allows", section on layouts. The head is 64 wide in float32: 256 bytes,
two lines of 128. Lane j turns plane j and needs both of its coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rope.figures.picture import Picture, picture
from rope.figures.style import BLUE, INK, MUTED, VERMILION, subplots

LANES, LINE, ELEMENT = 32, 128, 4

#: By name, the loads: in each, the elements that each lane asks for.
LOADS: dict[str, list[list[list[int]]]] = {
    "half-split, one load for each half": [
        [[lane] for lane in range(LANES)],
        [[lane + LANES] for lane in range(LANES)],
    ],
    "interleaved, one load for each coordinate": [
        [[2 * lane] for lane in range(LANES)],
        [[2 * lane + 1] for lane in range(LANES)],
    ],
    "interleaved, one load for both": [[[2 * lane, 2 * lane + 1] for lane in range(LANES)]],
}


def lines_touched(load: Sequence[Sequence[int]], element: int = ELEMENT, line: int = LINE) -> int:
    """Lines of memory that the lanes of one load touch together.

    load: for each lane the elements it asks for; element, line: bytes.

    >>> lines_touched([[lane] for lane in range(32)])
    1
    >>> lines_touched([[2 * lane] for lane in range(32)])
    2
    """
    return len({place * element // line for lane in load for place in lane})


def coalescing() -> Picture:
    """A row of 64 elements for each way to load them, marked by the load that touches each."""
    figure, axes = subplots(len(LOADS), 1, height=3.9)
    for ax, (name, loads) in zip(axes, LOADS.items(), strict=True):
        _row(ax, name, loads)
    counts = ", ".join(
        f"{name}: {sum(map(lines_touched, loads))} lines in {_number(loads)}"
        for name, loads in LOADS.items()
    )
    return picture(
        figure,
        alt="Three rows of 64 elements, 256 bytes, in two lines of 128 bytes. Half-split: the "
        "first load takes the first line, the second load the second. Interleaved with a load "
        "for each coordinate: both loads take every other element of both lines. Interleaved "
        f"with one load: it takes everything. In all {counts}.",
    )


def _row(ax: Any, name: str, loads: Sequence[Sequence[Sequence[int]]]) -> None:
    """The elements as boxes, upper row for the first load and lower for the second."""
    ax.set_axis_off()
    ax.set(xlim=(-0.5, 2 * LANES + 0.5), ylim=(-1.3, 2.4))
    total = sum(map(lines_touched, loads))
    ax.text(0, 1.75, f"{name}: {total} lines", color=INK, fontsize=10)
    looks = ((BLUE, ""), (VERMILION, "///"))
    for number, (load, (colour, hatch)) in enumerate(zip(loads, looks, strict=False)):
        bottom = 0.7 - 0.75 * number
        for place in (place for lane in load for place in lane):
            ax.bar(
                place + 0.5,
                0.6,
                0.84,
                bottom,
                facecolor=colour if not hatch else "none",
                edgecolor=colour,
                hatch=hatch,
                linewidth=0.6,
            )
        ax.text(2 * LANES + 0.4, bottom + 0.3, str(number + 1), color=INK, va="center", ha="left")
    for edge in (0, LANES, 2 * LANES):
        ax.plot([edge, edge], [-0.35, 1.45], color=MUTED, linewidth=1.2, linestyle="-")
    for start, word in ((0, "line 0: bytes 0 to 127"), (LANES, "line 1: bytes 128 to 255")):
        ax.text(start + LANES / 2, -0.95, word, color=INK, ha="center", va="center", fontsize=10)


def _number(loads: Sequence[Any]) -> str:
    return "one load" if len(loads) == 1 else f"{len(loads)} loads"
