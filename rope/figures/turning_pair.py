"""Two vectors turn and their score stands still: the book's opening figure.

A query at position m is turned by m theta, a key at position n by n theta. Their dot product is
|q| |k| cos((n - m) theta + phi), phi the angle from q to k: a function of n - m alone.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from rope.figures import chart
from rope.figures.style import BLUE, GRID, INK, MUTED, VERMILION
from rope.reference import score

Q = (0.92, 0.25)
K = (0.35, 0.75)
LAST = 32
THETA = 0.2


def turning_pair(*, theta: float = THETA, autoplay: bool = False) -> Any:
    """q and k turning with their positions; sliders for m, n and a shift of both.

    Args:
        theta: radians per position.
        autoplay: whether the page starts shifting both positions by itself.
    """
    names = ("m", "n", "shift")
    values = {"m": 2, "n": 8, "shift": 0}
    labels = {"m": "query position m", "n": "key position n", "shift": "shift both by"}
    sliders = [chart.slider(key, 0, LAST, 1, values[key], labels[key]) for key in names]
    play: chart.Play = {"signal": "shift", "min": 0, "max": LAST, "step": 0.05, "seconds": 16}
    play["autoplay"] = autoplay
    # The score is formed in the chart from the turned vectors, not from the difference.
    turned = [
        chart.derived("q_x", _x(Q, "m", theta)),
        chart.derived("q_y", _y(Q, "m", theta)),
        chart.derived("k_x", _x(K, "n", theta)),
        chart.derived("k_y", _y(K, "n", theta)),
        chart.derived("dot", "q_x*k_x + q_y*k_y"),
    ]
    whole = alt.hconcat(_plane(), _curve(theta), spacing=36).add_params(*sliders, *turned)
    return chart.finish(
        whole,
        alt_text=(
            "Left: a query arrow q and a key arrow k in the plane, each turned counter-clockwise "
            "from its dashed starting place by its position times theta. Right: their dot "
            "product, the score, drawn as a cosine of n minus m, with a dot at the present "
            "value. Moving one position moves the dot along the curve. Shifting both positions "
            "turns both arrows together, and the score and the dot stay where they are."
        ),
        play=play,
    )


def _x(vector: tuple[float, float], position: str, theta: float) -> str:
    angle = f"({position} + shift)*{theta:g}"
    return f"{vector[0]:g}*cos({angle}) - {vector[1]:g}*sin({angle})"


def _y(vector: tuple[float, float], position: str, theta: float) -> str:
    angle = f"({position} + shift)*{theta:g}"
    return f"{vector[0]:g}*sin({angle}) + {vector[1]:g}*cos({angle})"


def _plane() -> alt.LayerChart:
    extent = 1.12
    start = "atan2(q_y, q_x)"
    between = "atan2(q_x*k_y - q_y*k_x, q_x*k_x + q_y*k_y)"
    ghost: dict[str, Any] = {"extent": extent, "dash": (4, 4), "width": 1.5, "opacity": 0.75}
    layers: list[Any] = [
        chart.plane(extent),
        chart.arrow(f"{Q[0]:g}", f"{Q[1]:g}", BLUE, **ghost),
        chart.arrow(f"{K[0]:g}", f"{K[1]:g}", VERMILION, **ghost),
        chart.arc(start, f"{start} + {between}", extent=extent, radius="0.3", colour=INK),
        chart.arrow("q_x", "q_y", BLUE, extent=extent, label="q", width=4),
        chart.arrow("k_x", "k_y", VERMILION, extent=extent, label="k", width=4),
    ]
    return alt.layer(*layers).properties(width=chart.SIZE, height=chart.SIZE)


def _curve(theta: float) -> alt.VConcatChart:
    """The score against n - m from the package's definition, and the present point on it."""
    distance = range(-LAST, LAST + 1)
    query, key, inv_freq = np.array(Q), np.array(K), np.array([theta])
    scores = [score(query, key, max(-t, 0), max(t, 0), inv_freq) for t in distance]
    x = alt.X(
        "distance:Q",
        title="n − m",
        scale=alt.Scale(domain=[-LAST, LAST], nice=False),
        axis=alt.Axis(values=[-32, -16, 0, 16, 32], grid=False),
    )
    y = alt.Y(
        "score:Q",
        title="score",
        scale=alt.Scale(domain=[-1, 1], nice=False),
        axis=alt.Axis(values=[-1, 0, 1]),
    )
    base = alt.Chart(chart.data(distance=distance, score=scores)).encode(x=x, y=y)
    line = base.mark_line(color=MUTED, strokeWidth=2, interpolate="monotone")
    here = chart.one(distance="n - m", score="dot")
    drop = here.mark_rule(color=GRID, strokeWidth=2).encode(x=x, y=y, y2=alt.datum(-1))
    point = here.mark_point(filled=True, size=170, color=INK, opacity=1).encode(x=x, y=y)
    plot = alt.layer(drop, line, point).properties(width=300, height=190)
    words = alt.layer(
        chart.reading("'q · k = ' + format(dot, '.3f')", y=18, size=26, name="score"),
        chart.reading(
            "'q at ' + format(m + shift, '.0f') + ', k at ' + format(n + shift, '.0f')"
            " + ', n − m = ' + format(n - m, 'd')",
            y=52,
            size=15,
            name="positions",
        ),
    ).properties(width=300, height=64)
    return alt.vconcat(words, plot, spacing=18)
