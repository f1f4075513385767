"""What else gives relative scores: the chapter "Why rotation, and what else would do".

Relative scores are q^T M^(n-m) k. In the plane, complex-linear, M multiplies by e^(a + i theta): a
rotation for a = 0, and the xPos family (arXiv 2212.10554) otherwise. M = S R S^-1 moves keys along
an ellipse, and queries along another.
"""

from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from rope.book.figures import Picture, chart, picture, shapes, subplots
from rope.book.figures.style import BLUE, INK, MUTED, VERMILION
from rope.reference import rotation_matrix, score

REACH = 8  # offsets of the moving figure
THETA = 0.6
WIDTH, EXTENT = 290, 1.4
BLOCKS = ("one pair of eigenvalues", "Jordan block")

KEYS = {"a": (0.9, -0.1), "b": (0.15, 0.8)}  # of two words
PLACES = {"a": 3, "b": 7, "c": 5}  # theirs, and a third key's
ADDED = "position added"
MOVES = {  # what moves a key one position on
    "rotated": rotation_matrix(1, [0.5]),
    "rotated and stretched": 1.15 * rotation_matrix(1, [0.5]),
    "sheared": np.array([[1.0, 0.4], [0.0, 1.0]]),
    ADDED: np.eye(2),  # and the step of a sinusoid
}

STRETCH, ELLIPSE_THETA = np.diag([2.0, 1.0]), np.pi / 6  # M = S R_1 S^-1
QUERY, KEY = np.array([0.55, 0.55]), np.array([1.7, 0.3])
PAIRS = {(2, 1): "-", (5, 4): shapes.DASHED}  # positions (m, n), and how they are drawn


def added(n: int) -> NDArray[Any]:
    """The sinusoid that is added to a key at position n."""
    return 0.5 * np.array([np.sin(0.8 * n), np.cos(0.8 * n)])


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


def one_matrix() -> Any:
    """Two keys and their successors give M; a third key, of chosen shares, is carried along."""
    moved = [
        chart.derived(f"next_{name}_{c}", value)
        for name, n in PLACES.items()
        for c, value in _moved(f"{name}_x", f"{name}_y", n).items()
    ]
    return chart.finish(
        alt.hconcat(_corner("", "keys", "c"), _next(), spacing=24).add_params(
            chart.menu("encoding", MOVES, "rotated", "the keys are"),
            chart.slider("first", -1, 1, 0.05, 0.6, "share of the first key"),
            chart.slider("second", -1, 1, 0.05, 0.7, "share of the second key"),
            *(
                chart.derived(f"{k}_{c}", f"{KEYS[k][i]:g}")
                for k in KEYS
                for i, c in enumerate("xy")
            ),
            *(chart.derived(f"c_{c}", f"first*a_{c} + second*b_{c}") for c in "xy"),
            *moved,
            *(chart.derived(f"sum_{c}", f"first*next_a_{c} + second*next_b_{c}") for c in "xy"),
            chart.derived("miss", "sqrt(pow(sum_x - next_c_x, 2) + pow(sum_y - next_c_y, 2))"),
        ),
        alt_text="Left: two keys as arrows, and a third key as the far corner of the parallelogram "
        "of its shares of them. Right: the two keys one position on, and the same shares of them; "
        "a ring marks where the encoding itself puts the third key. For keys that are rotated, "
        "stretched or sheared the corner lies in the ring, whatever the shares; for keys with a "
        "position vector added it lies beside it.",
    )


def _moved(x: str, y: str, n: int) -> dict[str, str]:
    """A key at position n moved one on, as two Vega expressions that follow the menu."""
    cases: dict[str, dict[str, str]] = {"x": {}, "y": {}}
    for name, matrix in MOVES.items():
        step = added(n + 1) - added(n) if name == ADDED else np.zeros(2)
        for row, c in enumerate("xy"):
            a, b = matrix[row]
            cases[c][name] = f"({a:.9g}*{x} + {b:.9g}*{y} + {step[row]:.9g})"
    return {c: chart.chosen("encoding", cases[c]) for c in "xy"}


def _corner(prefix: str, title: str, corner: str) -> alt.LayerChart:
    """Two arrows, and the parallelogram of their shares with its far corner."""
    names = [f"{prefix}{name}" for name in "ab"]
    sides = []
    for share, name in (("first", names[0]), ("second", names[1])):
        row = chart.one(
            x=f"{share}*{name}_x", y=f"{share}*{name}_y", x2=f"{corner}_x", y2=f"{corner}_y"
        )
        rule = row.mark_rule(color=MUTED, strokeDash=[4, 4])
        sides.append(rule.encode(**chart.coordinates(EXTENT), x2="x2:Q", y2="y2:Q"))
    arrows = [
        chart.arrow(f"{name}_x", f"{name}_y", BLUE, extent=EXTENT, label=word, width=2.5)
        for name, word in zip(names, ("1", "2"), strict=True)
    ]
    third = chart.arrow(f"{corner}_x", f"{corner}_y", VERMILION, extent=EXTENT, label="3", width=4)
    words = chart.reading(f"'{title}'", x=4, y=10, size=14)
    return _square(chart.plane(EXTENT), *sides, *arrows, third, words)


def _square(*layers: Any) -> alt.LayerChart:
    return alt.layer(*layers).properties(width=WIDTH, height=WIDTH)


def _next() -> alt.LayerChart:
    """The corner of the same shares one position on; a ring where the encoding puts the key."""
    here = chart.one(x="next_c_x", y="next_c_y")
    ring = here.mark_point(color=INK, size=260, opacity=1, strokeWidth=2)
    words = chart.reading("'off by ' + format(miss, '.3f')", x=4, y=32, size=16, name="miss")
    corner = _corner("next_", "one position on", "sum")
    return _square(corner, ring.encode(**chart.coordinates(EXTENT)), words)


def eigenvalue_map() -> Any:
    """The eigenvalues of M in the plane, and beside them what they put into a score."""
    panels = [_eigenvalues(), _scores().properties(width=WIDTH, height=WIDTH - 60)]
    return chart.finish(
        alt.hconcat(*panels, spacing=36).add_params(
            chart.menu("block", BLOCKS, BLOCKS[0], "block of M"),
            chart.slider("growth", -0.2, 0.2, 0.01, 0, "a (per position)"),
            chart.slider("theta", 0, 3.14, 0.01, THETA, "θ (radians)"),
            chart.slider("turns", 0, 2, 1, 0, "whole turns more"),
        ),
        alt_text="Left: the unit circle and the two eigenvalues of M, of absolute value e to the a "
        "and angles plus and minus theta. Right: the score of two vectors against the offset "
        "n minus m, a dot at each whole offset and a curve through them; rings mark where the dots "
        "stood at the start. On the circle the score is a cosine. Outside it dies out towards the "
        "past and grows towards the future, as in xPos; inside, the other way round. A Jordan "
        "block brings the offset as a factor; at the point 1 that is a straight line. Adding whole "
        "turns to the angle changes the curve and leaves every eigenvalue and every dot in place.",
    )


def _eigenvalues() -> alt.LayerChart:
    """The unit circle, the pair e^(a +- i theta), and the family that it belongs to."""
    xy = chart.coordinates(EXTENT)
    points = [
        chart.one(
            x="exp(growth)*cos(theta + 2*PI*turns)", y=f"{sign}exp(growth)*sin(theta + 2*PI*turns)"
        )
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
    return _square(chart.plane(EXTENT), one.encode(**xy), *points, words)


def _scores() -> alt.LayerChart:
    """Curve and dots; rings at the opening's scores, those of `rope.reference.score`."""
    whole = range(-REACH, REACH + 1)
    start = [score([1, 0], [1, 0], max(0, -r), max(0, r), [THETA]) for r in whole]
    between = alt.Chart(alt.sequence(-REACH, REACH + 0.01, 0.03, as_="offset"))
    at = alt.Chart(chart.data(offset=whole, start=start))
    # M^r of a Jordan block holds r M^(r-1); a key of norm 1/4 keeps it on the page.
    power = "exp(growth*{r})*cos({r}*(theta + 2*PI*turns))"
    value = (
        f"block == '{BLOCKS[0]}' ? {power.format(r='datum.offset')}"
        f" : 0.25*datum.offset*{power.format(r='(datum.offset - 1)')}"
    )
    x = chart.x("offset:Q", "n − m", grid=False, tickCount=9)
    y, y_start = (chart.y(field, "score", [-2.4, 2.4]) for field in ("score:Q", "start:Q"))
    curve, dots = (rows.transform_calculate(score=value).encode(x=x, y=y) for rows in (between, at))
    return alt.layer(
        curve.mark_line(color=BLUE, strokeWidth=1.2, clip=True, opacity=0.7),
        at.mark_point(color=MUTED, size=90, opacity=1, strokeWidth=1.5).encode(x=x, y=y_start),
        dots.mark_point(filled=True, color=BLUE, size=34, opacity=1, clip=True),
    )
