"""Show relative scores and the sign of the offset: chapter "Rotation in two dimensions".

A score s_mn is relative if it depends only on the offset n - m; a table of relative scores is
constant along its diagonals. With the rotation, s_mn = q^T R_{n-m} k = |q| |k| cos((n - m) theta +
phi), where phi is the angle from q to k.
"""

import math
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from rope.book.figures import Picture, chart, panels, picture, shapes, subplots
from rope.book.figures.style import BLUE, GRID, INK, MUTED, VERMILION
from rope.reference import rotation_matrix, score

Q, K = (0.92, 0.25), (0.35, 0.75)  # the vectors in the animation
LAST, THETA = 32, 0.2

OFFSETS = range(-3, 4)  # the offsets n - m of the keys in `seen_from_the_query`
LENGTH = 0.8  # the key's length; the query's is 1, so that neither arrow hides the other
SEEN_THETA, LEAD = 0.4, 2  # radians per position; the second curve's phi, in positions


def score_tables(added: NDArray[Any], rotated: NDArray[Any]) -> Picture:
    """Draw two tables of scores as maps over query m and key n.

    added: the scores `[N, N]` of one word with itself after position vectors are added. rotated:
    the scores `[N, N]` after the word is rotated instead. Use N <= 24 to keep the picture small.
    """
    tables = {"position added": added, "position rotated": rotated}
    figure, items = panels(tables, columns=2, height=3.1, sharey=True)
    for ax, title, table in items:
        shapes.signed_map(ax, table.round(9), title)  # so that rounding errors don't change colors
        ax.set(xlabel="key $n$", xticks=range(0, len(table), 3), yticks=range(0, len(table), 3))
    figure.axes[0].set_ylabel("query $m$")
    figure.axes[0].invert_yaxis()
    return picture(
        figure,
        alt="Two square maps of scores over query and key. With position vectors added, the map "
        "has one dark patch, and the colors change along most diagonals. With rotated vectors, "
        "the map is made of diagonal stripes: each diagonal has one color.",
    )


def turning_pair() -> Any:
    """Show q and k rotated to their positions, and their score. Sliders set m, n, and a shift."""
    # The score is computed from the rotated vectors, not from n - m.
    parameters = [
        chart.slider("m", 0, LAST, 1, 2, "query position m"),
        chart.slider("n", 0, LAST, 1, 8, "key position n"),
        chart.slider("shift", 0, LAST, 1, 0, "shift both by"),
    ]
    for name, (x, y), position in (("q", Q, "m"), ("k", K, "n")):
        angle = f"({position} + shift)*{THETA:g}"
        parameters += [
            chart.derived(f"{name}_x", f"{x:g}*cos({angle}) - {y:g}*sin({angle})"),
            chart.derived(f"{name}_y", f"{x:g}*sin({angle}) + {y:g}*cos({angle})"),
        ]
    parameters.append(chart.derived("dot", "q_x*k_x + q_y*k_y"))
    extent, start = 1.12, "atan2(q_y, q_x)"
    between = "atan2(q_x*k_y - q_y*k_x, q_x*k_x + q_y*k_y)"
    ghost: dict[str, Any] = {"extent": extent, "dash": (4, 4), "width": 1.5, "opacity": 0.75}
    pair = chart.square(
        chart.plane(extent),
        chart.arrow(f"{Q[0]:g}", f"{Q[1]:g}", BLUE, **ghost),
        chart.arrow(f"{K[0]:g}", f"{K[1]:g}", VERMILION, **ghost),
        chart.arc(start, f"{start} + {between}", extent=extent, radius="0.3"),
        chart.arrow("q_x", "q_y", BLUE, extent=extent, label="q", width=4),
        chart.arrow("k_x", "k_y", VERMILION, extent=extent, label="k", width=4),
    )
    return chart.finish(
        alt.hconcat(pair, _curve(), spacing=36).add_params(*parameters),
        alt_text="Left: a query arrow q and a key arrow k in the plane, each turned "
        "counter-clockwise from its dashed starting place by its position times theta. Right: "
        "their dot product, the score, drawn as a cosine of n minus m, with a dot at the current "
        "value. Moving one position moves the dot along the curve. Shifting both positions "
        "turns both arrows together, and the score and the dot stay where they are.",
        play=dict(signal="shift", min=0, max=LAST, step=0.05, seconds=16, autoplay=True),
    )


def _curve() -> alt.VConcatChart:
    """Draw the score that `rope.reference.score` gives for each n - m, and mark the current one."""
    distance = range(-LAST, LAST + 1)
    x = chart.x("distance:Q", "n − m", [-LAST, LAST], values=[-32, -16, 0, 16, 32], grid=False)
    y = chart.y("score:Q", "score", [-1, 1], values=[-1, 0, 1])
    base = alt.Chart(chart.data(distance=distance, score=_scores(Q, K, distance, THETA)))
    line = base.encode(x=x, y=y).mark_line(color=MUTED, strokeWidth=2, interpolate="monotone")
    here = chart.one(distance="n - m", score="dot")
    drop = here.mark_rule(color=GRID, strokeWidth=2).encode(x=x, y=y, y2=alt.datum(-1))
    point = here.mark_point(filled=True, size=170, color=INK, opacity=1).encode(x=x, y=y)
    places = (
        "'q at ' + format(m + shift, '.0f') + ', k at ' + format(n + shift, '.0f')"
        " + ', n − m = ' + format(n - m, 'd')"
    )
    words = alt.layer(
        chart.reading("'q · k = ' + format(dot, '.3f')", y=18, size=26, name="score"),
        chart.reading(places, y=52, size=15, name="positions"),
    ).properties(width=300, height=64)
    plot = alt.layer(drop, line, point).properties(width=300, height=190)
    return alt.vconcat(words, plot, spacing=18)


def _scores(q: Any, k: Any, offsets: range, theta: float) -> list[float]:
    """Return a score per offset. The earlier token is at position 0, the later one at |offset|."""
    return [score(np.array(q), np.array(k), max(-t, 0), max(t, 0), [theta]) for t in offsets]


def seen_from_the_query() -> Picture:
    """Draw the keys R_{n-m} k that a query meets; below, plot their scores against n - m."""
    figure, (plane, curve) = subplots(2, 1, height=5.2, height_ratios=(1.1, 1))
    for offset in OFFSETS:
        x, y = rotation_matrix(offset, [SEEN_THETA]) @ (0.0, LENGTH)
        dash = shapes.DASHED if offset > 0 else "-"
        shapes.arrow(plane, (0, 0), (x, y), VERMILION, linestyle=dash)
        angle, radius = math.atan2(y, x), LENGTH + (0.06 if offset else 0.42)
        at = (radius * math.cos(angle), radius * math.sin(angle) - (0.0 if offset else 0.08))
        name = f"$n = m{offset:+d}$".replace("-", "−") if offset else "$q$, and key $n = m$"
        side = "left" if x > 0.1 else "right" if x < -0.1 else "center"
        plane.text(*at, name, ha=side, va="center")
    shapes.arrow(plane, (0, 0), (0.0, 1.0), BLUE)
    plane.text(1.0, -0.12, "earlier: clockwise", **shapes.CENTERED)
    plane.text(-1.0, -0.12, "later: counter-clockwise", **shapes.CENTERED)
    plane.set(xlim=(-1.75, 1.75), ylim=(-0.25, 1.3), aspect="equal")
    plane.axis("off")

    offsets = range(-8, 9)
    for ahead, label in ((0, r"$\varphi = 0$"), (LEAD, rf"$\varphi = {LEAD}\theta$")):
        key = rotation_matrix(ahead, [SEEN_THETA]) @ (0.0, 1.0)
        scores = _scores((0.0, 1.0), key, offsets, SEEN_THETA)
        curve.plot(offsets, scores, marker="o", markersize=4, label=label)
    curve.axvline(0, color=MUTED, linewidth=1)
    curve.set(xlabel="offset $n - m$", ylabel="score", xticks=range(-8, 9, 2), ylim=(-1.15, 1.15))
    curve.legend(loc="lower center", ncols=2)
    return picture(
        figure,
        alt="Above, a query arrow pointing up and the keys it meets. Keys at earlier positions "
        "fan out clockwise from it, step by step; keys at later positions fan out "
        "counter-clockwise. Below, the scores against the offset n minus m. With no angle "
        f"between q and k the curve peaks at 0; with the key {LEAD} steps ahead counter-clockwise "
        f"it peaks at minus {LEAD}, in the past.",
    )
