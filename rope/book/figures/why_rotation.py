"""What else gives relative scores: the chapter "Why rotation, and what else would do".

Relative scores are q^T M^(n-m) k. In the plane, complex-linear, M multiplies by e^(a + i theta): a
rotation for a = 0, and the xPos family (arXiv 2212.10554) otherwise. M = S R S^-1 moves keys along
an ellipse, and queries along another.
"""

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rope.book.figures import Picture, chart, picture, shapes, subplots
from rope.book.figures.style import BLUE, GRID, INK, MUTED, VERMILION
from rope.reference import rotation_matrix, score

REACH, LAST, DRAWN = 8, 20, 24  # offsets, positions of the moving figure; offsets of the other
GROWTH, THETA = 0.05, 0.6
WIDTH = 290

STRETCH, ELLIPSE_THETA = np.diag([2.0, 1.0]), np.pi / 6  # M = S R_1 S^-1
QUERY, KEY = np.array([0.55, 0.55]), np.array([1.7, 0.3])
PAIRS = {(2, 1): "-", (5, 4): shapes.DASHED}  # positions (m, n), and how they are drawn


def family_scores(families: Mapping[str, ArrayLike], q: ArrayLike, k: ArrayLike) -> Picture:
    """q^T M^r k against the offset r = n - m, a panel for each matrix M of `families`."""
    query, key = np.asarray(q, float), np.asarray(k, float)
    offsets = range(-DRAWN, DRAWN + 1)
    figure, axes = subplots(len(families), 1, height=1.5 * len(families), sharex=True)
    for ax, (name, matrix) in zip(axes, families.items(), strict=True):
        powers = [np.linalg.matrix_power(np.asarray(matrix, float), r) for r in offsets]
        ax.axvspan(0, DRAWN, color=GRID, alpha=0.5, linewidth=0)
        ax.plot(offsets, [query @ power @ key for power in powers], "-o", markersize=3, linewidth=1)
        ax.set_title(name, loc="left")
        ax.grid(visible=False)
        ax.axhline(0, color=MUTED, linewidth=0.8, linestyle="-")
    axes[-1].set_xlabel("offset $n - m$ (shaded: the future)")
    return picture(
        figure,
        alt="Four panels of scores against the offset, past on the left and future on the right. "
        "Identity: a flat line. Rotation: a cosine of constant height. Stretched rotation: a "
        "cosine that dies out towards the past and grows towards the future. Jordan block: a "
        "straight line that grows without bound in both directions.",
    )


def on_ellipses(m: int, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """(M^-T)^m q and M^n k."""
    inverse = np.linalg.inv(STRETCH)
    query = inverse @ rotation_matrix(m, [ELLIPSE_THETA]) @ STRETCH @ QUERY
    return query, STRETCH @ rotation_matrix(n, [ELLIPSE_THETA]) @ inverse @ KEY


def ellipses() -> Picture:
    """Above, the two ellipses and two pairs of arrows; below, norms and score of a moved pair."""
    figure, (plane, curve) = subplots(2, 1, height=5.0, height_ratios=(1.25, 1))
    once_round = range(round(2 * np.pi / ELLIPSE_THETA) + 1)
    for which, (name, colour) in enumerate((("query", BLUE), ("key", VERMILION))):
        points = np.array([on_ellipses(step, step)[which] for step in once_round])
        axes = STRETCH.diagonal() ** (-1 if name == "query" else 1)
        radii = tuple(axes * np.linalg.norm(points[0] / axes))
        plane.plot(*shapes.arc((0, 0), radii, 0, 2 * np.pi, 120), color=colour, linewidth=1)
        plane.plot(*points.T, "o", color=colour, markersize=3.5)
        for (m, n), dash in PAIRS.items():
            tip = on_ellipses(m, n)[which]
            shapes.arrow(plane, (0, 0), tuple(tip), colour, linestyle=dash)
            place = f"$q_{m}$" if name == "query" else f"$k_{n}$"
            plane.text(*(tip * (1 + 0.16 / np.linalg.norm(tip))), place, **shapes.CENTRED)
    plane.set(aspect="equal")
    plane.axis("off")

    shifts = range(13)
    pairs = [on_ellipses(2 + shift, 1 + shift) for shift in shifts]
    curve.plot(shifts, [np.linalg.norm(query) for query, _ in pairs], "-o", label="norm of query")
    curve.plot(shifts, [np.linalg.norm(key) for _, key in pairs], "-o", label="norm of key")
    curve.plot(shifts, [query @ key for query, key in pairs], "-o", color=INK, label="score")
    for line in curve.lines:
        line.set(markersize=4, linewidth=1.2)
    curve.set(xlabel="both moved on by", xticks=range(0, 13, 2), ylim=(0, 2.9))
    curve.legend(loc="upper center", ncols=3, columnspacing=1)
    query, key = pairs[0]
    return picture(
        figure,
        alt="Above, a tall ellipse of queries and a wide ellipse of keys, twelve points on each. "
        "Solid arrows: the query at 2 and the key at 1; dashed: both three positions on, with "
        "other norms. Below, against a shift of both from 0 to 12: the norm of the query and the "
        f"norm of the key go up and down, and the score stays at {query @ key:.3f}.",
    )


def plane_family() -> Any:
    """Re[z^(m-n)] and the norms of q_m and k_n for q = k = 1, with sliders for a and theta."""
    panels = [panel.properties(width=WIDTH, height=200) for panel in (_scores(), _norms())]
    return chart.finish(
        alt.hconcat(*panels, spacing=36).add_params(
            chart.slider("growth", -0.1, 0.1, 0.01, GROWTH, "a (per position)"),
            chart.slider("theta", 0, 3.14, 0.01, THETA, "θ (radians)"),
            chart.slider("turns", 0, 2, 1, 0, "whole turns more"),
        ),
        alt_text="Left: the score of two equal vectors against the offset n minus m, a dot at each "
        "whole offset and a curve through them; rings mark where the dots stood at the start. "
        "Right: the norms of query and key against the position. With a above 0 the score "
        "dies out towards the past, the query shrinks and the key grows; with a = 0 both "
        "norms are 1. Adding whole turns to the angle changes the curve and leaves every "
        "dot in place.",
    )


def _scores() -> alt.LayerChart:
    """Curve and dots; rings at the opening's scores, `rope.reference.score` times e^(a (n-m))."""
    whole = range(-REACH, REACH + 1)
    start = [
        np.exp(GROWTH * r) * score([1, 0], [1, 0], max(0, -r), max(0, r), [THETA]) for r in whole
    ]
    between = alt.Chart(alt.sequence(-REACH, REACH + 0.01, 0.03, as_="offset"))
    at = alt.Chart(chart.data(offset=whole, start=start))
    value = "exp(growth*datum.offset)*cos(datum.offset*(theta + 2*PI*turns))"
    x = chart.x("offset:Q", "n − m", grid=False, tickCount=9)
    y, y_start = (
        chart.y(field, "score of q = k = 1", [-2.4, 2.4]) for field in ("score:Q", "start:Q")
    )
    curve, dots = (rows.transform_calculate(score=value).encode(x=x, y=y) for rows in (between, at))
    return alt.layer(
        curve.mark_line(color=BLUE, strokeWidth=1.2, clip=True, opacity=0.7),
        at.mark_point(color=MUTED, size=90, opacity=1, strokeWidth=1.5).encode(x=x, y=y_start),
        dots.mark_point(filled=True, color=BLUE, size=34, opacity=1),
    )


def _norms() -> alt.LayerChart:
    """|q_m| = e^(-a m) and |k_n| = e^(a n), and their values at the last position."""
    rows = alt.Chart(chart.data(position=range(LAST + 1)))
    x, y = chart.x("position:Q", "position"), chart.y("norm:Q", "norm", [0, 7.5])
    layers: list[alt.Chart] = []
    for name, sign, colour, dash, place in (
        ("query", "-", VERMILION, [6, 2], 17),
        ("key", "", BLUE, [1, 0], 10),
    ):
        curve = rows.transform_calculate(norm=f"exp({sign}growth*datum.position)")
        line = curve.mark_line(color=colour, strokeDash=dash, strokeWidth=2.5)
        label = curve.transform_filter(f"datum.position == {place}").mark_text(
            text=name, color=INK, fontSize=13, dy=-12
        )
        layers += [line.encode(x=x, y=y), label.encode(x=x, y=y)]
    said = (
        f"'at {LAST}: query ' + format(exp(-{LAST}*growth), '.2f')"
        f" + ', key ' + format(exp({LAST}*growth), '.2f')"
    )
    words = chart.reading(said, x=8, y=14, size=14, name="norms", fill=INK)
    return alt.layer(*layers, words)
