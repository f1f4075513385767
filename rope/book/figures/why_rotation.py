"""Show encodings with relative scores, for "Why rotation?" and "What else is relative?".

Relative scores have the form q^T M^(n-m) k. A complex-linear M in the plane multiplies by
e^(a + i theta). If a = 0, M is a rotation. Otherwise M belongs to the xPos family (arXiv
2212.10554). M = S R S^-1 moves keys along one ellipse and queries along another.
"""

from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from rope.book.figures import Picture, chart, picture, shapes, subplots
from rope.book.figures.style import BLUE, INK, VERMILION
from rope.reference import rotation_matrix

REACH = 8  # the largest offset in `eigenvalue_map`
THETA = 0.6
WIDTH, EXTENT = 290, 1.4
BLOCKS = ("one pair of eigenvalues", "Jordan block")

SCALE, ELLIPSE_THETA = np.diag([2.0, 1.0]), np.pi / 6  # S and theta in M = S R_1 S^-1
QUERY, KEY = np.array([0.55, 0.55]), np.array([1.7, 0.3])
PAIRS = {(2, 1): "-", (5, 4): shapes.DASHED}  # positions (m, n), and their line style


def on_ellipses(m: int, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the query (M^-T)^m q and the key M^n k, each with two coordinates."""
    inverse = np.linalg.inv(SCALE)
    query = inverse @ rotation_matrix(m, [ELLIPSE_THETA]) @ SCALE @ QUERY
    return query, SCALE @ rotation_matrix(n, [ELLIPSE_THETA]) @ inverse @ KEY


def ellipses() -> Picture:
    """Draw the ellipses of queries and keys, and plot the norms and the score of a moving pair."""
    figure, (plane, curve) = subplots(2, 1, height=5.0, height_ratios=(1.25, 1))
    for which, (name, color) in enumerate((("query", BLUE), ("key", VERMILION))):
        points = np.array([on_ellipses(step, step)[which] for step in range(13)])
        axes = SCALE.diagonal() ** (-1 if name == "query" else 1)
        radii = tuple(axes * np.linalg.norm(points[0] / axes))
        plane.plot(*shapes.arc((0, 0), radii, 0, 2 * np.pi, 120), color=color, linewidth=1)
        plane.plot(*points.T, "o", color=color, markersize=3.5)
        for (m, n), dash in PAIRS.items():
            tip = on_ellipses(m, n)[which]
            shapes.arrow(plane, (0, 0), tuple(tip), color, linestyle=dash)
            place = f"$q_{m}$" if name == "query" else f"$k_{n}$"
            plane.text(*(tip * (1 + 0.16 / np.linalg.norm(tip))), place, **shapes.CENTERED)
    plane.set(aspect="equal")
    plane.axis("off")

    shifts = range(13)
    pairs = [on_ellipses(2 + shift, 1 + shift) for shift in shifts]
    style = {"markersize": 4, "linewidth": 1.2}
    norms = np.linalg.norm(pairs, axis=2).T
    curve.plot(shifts, norms[0], "-o", label="norm of query", **style)
    curve.plot(shifts, norms[1], "-o", label="norm of key", **style)
    scores = [query @ key for query, key in pairs]
    curve.plot(shifts, scores, "-o", color=INK, label="score", **style)
    curve.set(xlabel="both moved on by", xticks=range(0, 13, 2), ylim=(0, 2.9))
    curve.legend(loc="upper center", ncols=3, columnspacing=1)
    return picture(
        figure,
        alt="Above, a tall ellipse of queries and a wide ellipse of keys, twelve points on each. "
        "Solid arrows: the query at 2 and the key at 1. Dashed arrows: both moved on by three "
        "positions, with other norms. Below, against a shift of both from 0 to 12, the norms of "
        f"query and key go up and down, and the score stays at {scores[0]:.3f}.",
    )


def eigenvalue_map() -> Any:
    """Show the eigenvalues of M in the plane, and the score that they produce."""
    xy = chart.coordinates(EXTENT)
    points = [
        chart.one(x="exp(growth)*cos(theta)", y=f"{sign}exp(growth)*sin(theta)")
        .mark_point(filled=True, color=VERMILION, size=150, opacity=1)
        .encode(**xy)
        for sign in ("", "-")
    ]
    one = alt.Chart(chart.data(x=[1.0], y=[0.0])).mark_point(color=INK, size=60, opacity=1)
    off = "growth > 0.001 ? 'outside the circle' : growth < -0.001 ? 'inside the circle'"
    simple = f"{off} : theta < 0.001 ? 'at 1: no position' : 'on the circle: rotary'"
    jordan = f"{off} : theta < 0.001 ? 'twice at 1: ALiBi' : 'on the circle, unbounded'"
    family = f"block == '{BLOCKS[0]}' ? ({simple}) : ({jordan})"
    words = chart.reading(family, x=4, y=10, size=14, name="family")
    plane = chart.square(chart.plane(EXTENT), one.encode(**xy), *points, words, size=WIDTH)
    scores = _scores().properties(width=WIDTH, height=WIDTH - 60)
    return chart.finish(
        alt.hconcat(plane, scores, spacing=36).add_params(
            chart.menu("block", BLOCKS, BLOCKS[0], "block of M"),
            chart.slider("growth", -0.2, 0.2, 0.01, 0, "a (per position)"),
            chart.slider("theta", 0, 3.14, 0.01, THETA, "θ (radians)"),
        ),
        alt_text="Left: the unit circle and the two eigenvalues of M, of absolute value e to the a "
        "and angles plus and minus theta. Right: the score of two vectors against the offset "
        "n minus m, a dot at each whole offset and a curve through them. On the circle the score "
        "is a cosine. Outside it dies out toward the past and grows toward the future, as in "
        "xPos; inside, the other way around. A Jordan block brings the offset as a factor; at the "
        "point 1 that is a straight line.",
    )


def _scores() -> alt.LayerChart:
    """Draw the score against the offset, as a curve with dots at whole offsets."""
    between = alt.Chart(alt.sequence(-REACH, REACH + 0.01, 0.03, as_="offset"))
    at = alt.Chart(chart.data(offset=range(-REACH, REACH + 1)))
    # For a Jordan block with eigenvalue z, M^r contains r z^(r-1). A key of norm 1/4 keeps the
    # score within the limits of the axis.
    power = "exp(growth*{r})*cos({r}*theta)"
    value = (
        f"block == '{BLOCKS[0]}' ? {power.format(r='datum.offset')}"
        f" : 0.25*datum.offset*{power.format(r='(datum.offset - 1)')}"
    )
    x = chart.x("offset:Q", "n − m", grid=False, tickCount=9)
    y = chart.y("score:Q", "score", [-2.4, 2.4])
    curve, dots = (rows.transform_calculate(score=value).encode(x=x, y=y) for rows in (between, at))
    return alt.layer(
        curve.mark_line(color=BLUE, strokeWidth=1.2, clip=True, opacity=0.7),
        dots.mark_point(filled=True, color=BLUE, size=34, opacity=1, clip=True),
    )
