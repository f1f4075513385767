"""Figures of "Why position?": what adding a position vector does to scores, lengths and angles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rope.figures.picture import Picture, picture
from rope.figures.style import BLUE, GREEN, INK, MUTED, VERMILION, subplots

if TYPE_CHECKING:
    from torch import Tensor


def four_terms(x: Tensor, p: Tensor, commuting: Tensor, general: Tensor) -> Picture:
    """The terms of (x_m + p_m)^T M (x_n + p_n) that contain a position, as maps over m and n.

    Args:
        x: embeddings [S, D], S at most 16 so that the stored picture stays small.
        p: position vectors [S, D].
        commuting: a matrix M [D, D] that commutes with the rotations.
        general: a matrix M [D, D] that does not; it also makes the two mixed terms.
    """
    panels = {
        "word–place": x @ general @ p.T,
        "place–word": p @ general @ x.T,
        "place–place, $M$ random": p @ general @ p.T,
        "place–place, $M$ commutes": p @ commuting @ p.T,
    }
    figure, axes = subplots(2, 2, height=5.2, sharex=True, sharey=True)
    for ax, (name, term) in zip(axes.flat, panels.items(), strict=True):
        top = term.abs().max().item()
        edges = [place - 0.5 for place in range(len(p) + 1)]
        colours = {"cmap": "RdBu_r", "vmin": -top, "vmax": top, "edgecolors": "face"}
        ax.pcolormesh(edges, edges, term.tolist(), **colours)
        ax.set_title(name)
        ax.set_aspect("equal")
        ax.grid(False)
    axes[0, 0].invert_yaxis()
    for ax in axes[1]:
        ax.set_xlabel("key $n$")
    for ax in axes[:, 0]:
        ax.set_ylabel("query $m$")
    return picture(
        figure,
        alt="Four square maps over query and key. Word–place and place–word show an irregular "
        "pattern. Place–place with a random matrix changes along its diagonals. Place–place with "
        "a matrix that commutes with the rotations is striped: one colour on each diagonal.",
    )


def right_and_wrong(
    right: Tensor, wrong: Tensor, planes: tuple[int, ...] = (0, 4, 8, 16)
) -> Picture:
    """The sine columns of two position tables [S, D] against position, one curve a plane."""
    figure, axes = subplots(2, 1, height=4.8, sharex=True, sharey=True)
    for ax, table, formula in zip(
        axes,
        (right, wrong),
        (r"right: $\sin(k / 10000^{2t/d})$", r"wrong: $\sin(k / 10000 \cdot 2t/d)$"),
        strict=True,
    ):
        for t in planes:
            ax.plot(table[:, 2 * t].tolist(), label=f"$t = {t}$")
        ax.set_title(formula)
        ax.set_ylim(-1.15, 1.15)
    axes[1].set_xlabel("position $k$")
    axes[1].legend(ncols=len(planes), loc="upper center", handlelength=3)
    return picture(
        figure,
        alt="Two panels of curves over position. With the exponent in place, plane 0 swings with "
        "a period of about six positions and the later planes more and more slowly. With the "
        "exponent lost, all four curves lie on zero.",
    )


def length_and_angle(p: tuple[float, float], angle: float) -> Picture:
    """Two words on one ray, (2, 0) and (4, 0): p added to both, and both turned by `angle`."""
    from rope.reference import rotation_matrix

    words = ((2.0, 0.0), (4.0, 0.0))
    turn = rotation_matrix(1, [angle])
    figure, axes = subplots(2, 1, height=5.4, sharex=True)
    added = [(x + p[0], y + p[1]) for x, y in words]
    turned = [tuple((turn @ word).tolist()) for word in words]
    panels = (
        ("adding $p$ to both", added, ((2.3, 1.45), (5.15, 1.0))),
        ("rotating both", turned, ((2.1, 0.55), (3.6, 2.05))),
    )
    for ax, (title, moved, labels) in zip(axes, panels, strict=True):
        for at in (1, 0):  # the longer word first, so that the shorter one lies on top
            word, tip, colour = words[at], moved[at], (VERMILION, BLUE)[at]
            _arc(ax, math.hypot(*word), -0.12, 0.72, MUTED)
            _arrow(ax, (0, 0), word, colour, dashed=True)
            _arrow(ax, (0, 0), tip, colour)
            angle_and_length = f"{math.degrees(math.atan2(tip[1], tip[0])):.1f}°"
            angle_and_length += f"\nlength {math.hypot(*tip):.2f}"
            ax.text(*labels[at], angle_and_length, color=INK, va="center")
            if moved is added:
                _arrow(ax, word, tip, GREEN)
                ax.text((word[0] + tip[0]) / 2 + 0.12, 0.3, "$p$", color=INK)
        ax.set_title(title)
        ax.set(xlim=(-0.1, 6.7), ylim=(-0.6, 2.5), aspect="equal")
        ax.grid(False)
    return picture(
        figure,
        alt="Above, the same short arrow p is added to a word of length 2 and one of length 4: "
        "they become 3.16 and 5.10 long, and turn by 18.4 and 11.3 degrees. Below, both are "
        "rotated: both turn by 30 degrees and stay on the circles of their lengths.",
    )


def _arrow(
    ax: Any, start: tuple[float, ...], tip: tuple[float, ...], colour: str, *, dashed: bool = False
) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.4 if dashed else 2.2, "shrinkA": 0}
    style |= {"shrinkB": 0, "mutation_scale": 13, "linestyle": (0, (4, 2)) if dashed else "-"}
    ax.annotate("", xy=tip, xytext=start, arrowprops=style)


def _arc(ax: Any, radius: float, start: float, end: float, colour: str) -> None:
    """Part of the circle of the words that are `radius` long."""
    angles = [start + (end - start) * step / 40 for step in range(41)]
    xs, ys = [radius * math.cos(a) for a in angles], [radius * math.sin(a) for a in angles]
    ax.plot(xs, ys, color=colour, linewidth=1.2, linestyle=(0, (2, 2)))
