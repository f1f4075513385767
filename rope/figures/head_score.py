"""What a head can say about distance: the chapter on many dimensions.

The score of a query at m and a key at n is the sum over planes of A_j cos((n - m) theta_j + phi_j),
A_j = |q_j| |k_j| the amplitude and phi_j, the angle from q_j to k_j, the phase. The reader sets
amplitudes and phases; the chart forms the sum and its softmax over the keys n <= m.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from rope.figures import chart
from rope.figures.style import BLUE, GRID, INK, MUTED, VERMILION
from rope.reference import inverse_frequencies, score

DIM = 16
PLANES = (0, 1, 2, 7)  # three fast planes and the slowest; the other amplitudes are zero
LAST = 48
TALLEST = 8.0
PREVIOUS = (6.0, 6.0, 6.0, 0.0)
WIDTH = 290


def head_score() -> Any:
    """Score and attention weight against n - m; it opens on a head that reads the previous token.

    The data column `start` holds the opening head's scores, from `rope.reference.score`.
    """
    thetas = inverse_frequencies(DIM)[list(PLANES)]
    phases = [round(float(theta), 2) for theta in thetas]
    sliders = []
    for j, amplitude, phase in zip(PLANES, PREVIOUS, phases, strict=True):
        sliders += [
            chart.slider(f"amplitude_{j}", 0, TALLEST, 0.1, amplitude, f"plane {j}: amplitude"),
            chart.slider(f"phase_{j}", -3.14, 3.14, 0.01, phase, f"plane {j}: phase (rad)"),
        ]
    terms = [
        f"amplitude_{j}*cos(datum.offset*{theta:.6g} + phase_{j})"
        for j, theta in zip(PLANES, thetas, strict=True)
    ]
    offset = np.arange(-LAST, 1)
    table = chart.data(offset=offset, start=_start(offset, phases))
    scored = alt.Chart(table).transform_calculate(score=" + ".join(terms))
    return chart.finish(
        alt.hconcat(_scores(scored), _weights(scored), spacing=36).add_params(*sliders),
        alt_text=(
            f"Left: the score of a head against the offset n minus m, from minus {LAST} to 0, a "
            "sum of four cosines whose amplitudes and phases are set by sliders; a dashed curve "
            "keeps the opening head, which has its peak at minus 1. Right: the attention weights "
            "that softmax makes of the scores, one bar a key; at first one bar, at minus 1, holds "
            "most of the weight. With all the amplitude on plane 7, the slowest, the curve is flat "
            "and all bars are equally low."
        ),
    )


def _start(offset: np.ndarray, phases: list[float]) -> list[float]:
    """The opening head's scores: q_j = (sqrt A, 0), and k_j as long, at the angle phi_j."""
    query, key = np.zeros(DIM), np.zeros(DIM)
    for j, amplitude, phase in zip(PLANES, PREVIOUS, phases, strict=True):
        query[2 * j] = np.sqrt(amplitude)
        key[2 * j : 2 * j + 2] = np.sqrt(amplitude) * np.array([np.cos(phase), np.sin(phase)])
    return [score(query, key, -int(n), 0, inverse_frequencies(DIM)) for n in offset]


def _axis() -> alt.X:
    return alt.X(
        "offset:Q",
        title="n − m",
        scale=alt.Scale(domain=[-LAST - 0.5, 0.5], nice=False),
        axis=alt.Axis(values=[-48, -36, -24, -12, -1], grid=False),
    )


def _scores(scored: alt.Chart) -> alt.LayerChart:
    top = len(PLANES) * TALLEST
    y = alt.Scale(domain=[-top, top], nice=False)
    axis = alt.Axis(values=[-24, -12, 0, 12, 24])
    base = scored.encode(x=_axis())
    start = base.mark_line(color=MUTED, strokeWidth=1.5, strokeDash=[4, 3], interpolate="monotone")
    line = base.mark_line(color=BLUE, strokeWidth=2, interpolate="monotone")
    dots = base.mark_point(filled=True, color=BLUE, size=22, opacity=1)
    now = alt.Y("score:Q", title="score / √d", scale=y, axis=axis)
    return alt.layer(
        start.encode(y=alt.Y("start:Q", title="score / √d", scale=y, axis=axis)),
        line.encode(y=now),
        dots.encode(y=now),
    ).properties(width=WIDTH, height=180)


def _weights(scored: alt.Chart) -> alt.LayerChart:
    weighed = (
        scored.transform_joinaggregate(top="max(score)")
        .transform_calculate(part="exp(datum.score - datum.top)")
        .transform_joinaggregate(whole="sum(part)")
        .transform_calculate(weight="datum.part/datum.whole")
    )
    y = alt.Y(
        "weight:Q",
        title="attention weight",
        scale=alt.Scale(domain=[0, 1], nice=False),
        axis=alt.Axis(values=[0, 0.5, 1]),
    )
    bars = weighed.mark_bar(color=VERMILION, width=4).encode(x=_axis(), y=y)
    said = (
        f"datum.weight < 1.5/{LAST + 1} ? 'no key above ' + format(datum.weight, '.3f')"
        " : 'most at n − m = ' + format(datum.offset, 'd') + ': ' + format(datum.weight, '.3f')"
    )
    heaviest = weighed.transform_window(
        place="row_number()", sort=[alt.SortField("weight", order="descending")]
    )
    peak = heaviest.transform_filter("datum.place == 1").transform_calculate(said=said)
    words = peak.mark_text(align="right", baseline="middle", color=INK, fontSize=14)
    words = words.properties(name="peak").encode(
        x=alt.value(WIDTH), y=alt.value(-12), text="said:N"
    )
    line = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(color=GRID).encode(y="zero:Q")
    return alt.layer(line, bars, words).properties(width=WIDTH, height=180)
