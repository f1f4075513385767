"""Figures of "Rotation in two dimensions": what a relative score looks like, and its sign.

A score is relative when s_mn depends on the offset n - m alone: constant along the diagonals of
its table. With the rotation, s_mn = q^T R_{n-m} k = |q| |k| cos((n - m) theta + phi), where phi is
the angle from q to k.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rope.figures.picture import Picture, picture
from rope.figures.style import BLUE, INK, MUTED, VERMILION, subplots

if TYPE_CHECKING:
    from numpy.typing import NDArray

OFFSETS = range(-3, 4)
LENGTH = 0.8  # of the key; the query has length 1, so that neither arrow hides the other


def score_tables(added: NDArray[Any], turned: NDArray[Any]) -> Picture:
    """Two tables of scores as maps over query m and key n: positions added, positions as turns.

    Args:
        added: scores `[N, N]` of one word with itself, position vectors added to it.
        turned: scores `[N, N]` of the same word, rotated; N at most 24 keeps the picture small.
    """
    figure, axes = subplots(1, 2, height=3.1, sharey=True)
    edges = [place - 0.5 for place in range(len(added) + 1)]
    for ax, table, title in zip(axes, (added, turned), ("added", "turned"), strict=True):
        cells = table.round(9)  # so that no last digit decides between two colours
        top = abs(cells).max()
        colours = {"cmap": "RdBu_r", "vmin": -top, "vmax": top, "edgecolors": "face"}
        ax.pcolormesh(edges, edges, cells.tolist(), **colours)
        ax.set(title=f"position {title}", xlabel="key $n$", aspect="equal")
        ax.set_xticks(range(0, len(added), 3))
        ax.set_yticks(range(0, len(added), 3))
        ax.grid(False)
    axes[0].set_ylabel("query $m$")
    axes[0].invert_yaxis()
    return picture(
        figure,
        alt="Two square maps of scores over query and key. With position vectors added, the map "
        "has one dark patch, and the colours change along every diagonal. With rotated vectors, "
        "the map is made of diagonal stripes: each diagonal has one colour.",
    )


def seen_from_the_query(*, theta: float = 0.4, lead: int = 2) -> Picture:
    """Above, the keys R_{n-m} k that a query meets at offsets n - m; below, their scores.

    Args:
        theta: radians per position.
        lead: how many positions ahead of q the key points in the second curve, phi = lead theta.
    """
    import numpy as np

    from rope.reference import rotation_matrix, score

    q = np.array([0.0, 1.0])
    figure, (plane, curve) = subplots(2, 1, height=5.2, height_ratios=(1.1, 1))
    for offset in OFFSETS:
        x, y = rotation_matrix(offset, [theta]) @ (LENGTH * q)
        _arrow(plane, (x, y), VERMILION, dashed=offset > 0)
        angle = math.atan2(y, x)
        place = {"ha": "left" if x > 0.1 else "right" if x < -0.1 else "center", "va": "center"}
        radius = LENGTH + (0.06 if offset else 0.42)
        name = f"$n = m{offset:+d}$".replace("-", "−") if offset else "$q$, and key $n = m$"
        at = (radius * math.cos(angle), radius * math.sin(angle) - (0.08 if not offset else 0))
        plane.text(*at, name, color=INK, **place)
    _arrow(plane, (0.0, 1.0), BLUE)
    plane.text(1.0, -0.12, "earlier: clockwise", color=INK, ha="center", va="center")
    plane.text(-1.0, -0.12, "later: counter-clockwise", color=INK, ha="center", va="center")
    plane.set(xlim=(-1.75, 1.75), ylim=(-0.25, 1.3), aspect="equal")
    plane.axis("off")

    offsets = range(-8, 9)
    for ahead, label in ((0, r"$\varphi = 0$"), (lead, rf"$\varphi = {lead}\theta$")):
        key = rotation_matrix(ahead, [theta]) @ q
        # Positions count from zero: the later of the two tokens carries the offset.
        scores = [score(q, key, max(-t, 0), max(t, 0), [theta]) for t in offsets]
        curve.plot(offsets, scores, marker="o", markersize=4, label=label)
    curve.axvline(0, color=MUTED, linewidth=1)
    curve.set(xlabel="offset $n - m$", ylabel="score", xticks=range(-8, 9, 2), ylim=(-1.15, 1.15))
    curve.legend(loc="lower center", ncols=2)
    return picture(
        figure,
        alt="Above, a query arrow pointing up and the keys it meets. Keys at earlier positions "
        "fan out clockwise from it, step by step; keys at later positions fan out "
        "counter-clockwise. Below, the scores against the offset n minus m. With no angle "
        f"between q and k the curve peaks at 0; with the key {lead} steps ahead counter-clockwise "
        f"it peaks at minus {lead}, in the past.",
    )


def _arrow(ax: Any, tip: tuple[float, float], colour: str, *, dashed: bool = False) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 2.2, "shrinkA": 0, "shrinkB": 0}
    style |= {"mutation_scale": 13, "linestyle": (0, (4, 2)) if dashed else "-"}
    ax.annotate("", xy=tip, xytext=(0, 0), arrowprops=style)
