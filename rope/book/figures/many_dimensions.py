"""Draw the planes of a vector, and the sum of the planes' scores: chapter "Many dimensions".

Position m rotates plane j by m theta_j with theta_j = b^(-2j/d). The score of a query at m and a
key at n is the sum over planes of A_j cos((n - m) theta_j + phi_j). In plane j, the amplitude A_j
is the query's norm times the key's norm, and phi_j is the angle from the query to the key.
"""

from typing import Any

import altair as alt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from rope.book.figures import Picture, chart, picture, subplots
from rope.book.figures.style import BLUE, COLORS, GRID, MUTED, VERMILION
from rope.reference import inverse_frequencies

DIALS_DIM, DIALS_LAST, EXTENT = 8, 100, 1.1
DIAL = 150  # pixels; two dials fit side by side on a page that is 390 pixels wide

DIM = 16  # the width of the head whose score is drawn
PLANES = (0, 1, 2, 7)  # the planes with the three highest frequencies, and the slowest plane
THETAS = [float(theta) for theta in inverse_frequencies(DIM)[list(PLANES)]]
PREVIOUS = (6.0, 6.0, 6.0, 0.0)  # A_j / √d of a head that reads the previous token
PHASES = [round(theta, 2) for theta in THETAS]  # that head's phases
LAST, TALLEST, WIDTH = 48, 8.0, 290


def planes() -> Any:
    """Show one dial for each of four planes, with a slider for the position m."""
    thetas = inverse_frequencies(DIALS_DIM).tolist()
    dials = [_dial(j, theta, COLORS[j]) for j, theta in enumerate(thetas)]
    # A narrow page stacks the two pairs of dials.
    pairs = [alt.hconcat(*dials[j : j + 2], spacing=16) for j in range(0, len(dials), 2)]
    position = chart.slider("m", 0, DIALS_LAST, 1, 23, "position m")
    angles = [chart.derived(f"angle_{j}", f"m*{theta:.6g}") for j, theta in enumerate(thetas)]
    speeds = ", ".join(f"{theta:.3g}" for theta in thetas)
    return chart.finish(
        alt.hconcat(*pairs, spacing=16).add_params(position, *angles),
        alt_text=f"{len(thetas)} dials, one for each plane of a vector with {DIALS_DIM} "
        f"coordinates, each with one hand. Per position the hands turn by {speeds} radians. While "
        "the first hand goes round and round, the last has hardly left its start. Below each dial "
        "are its angle in radians and the number of turns.",
        play={"signal": "m", "min": 0, "max": DIALS_LAST, "step": 0.05, "seconds": 30},
    )


def _dial(j: int, theta: float, color: str) -> alt.VConcatChart:
    """Draw plane j's dial with its hand and the arc of the current turn, and print the angle."""
    angle = f"angle_{j}"
    face = chart.square(
        chart.plane(EXTENT),
        chart.arc("0", f"{angle} % (2*PI)", extent=EXTENT, radius="0.35", color=MUTED),
        chart.arrow(f"cos({angle})", f"sin({angle})", color, extent=EXTENT, width=4),
        size=DIAL,
    )
    look: dict[str, Any] = {"x": DIAL / 2, "align": "center", "size": 14}
    words = alt.layer(
        chart.reading(f"'plane {j}: θ = {theta:.3g}'", y=10, fontWeight=600, **look),
        chart.reading(f"format({angle}, '.3f') + ' rad'", y=30, name=f"plane_{j}", **look),
        chart.reading(f"format({angle}/(2*PI), '.3f') + ' turns'", y=48, **look),
    ).properties(width=DIAL, height=58)
    return alt.vconcat(face, words, spacing=4)


def head_score() -> Any:
    """Show a head's score and weight against n - m, with sliders for amplitudes and phases.

    The figure first shows a head that reads the previous token. Later keys are masked.
    """
    sliders, terms = [], []
    for j, theta, amplitude, phase in zip(PLANES, THETAS, PREVIOUS, PHASES, strict=True):
        terms.append(f"amplitude_{j}*cos(datum.offset*{theta:.6g} + phase_{j})")
        sliders += [
            chart.slider(f"amplitude_{j}", 0, TALLEST, 0.1, amplitude, f"plane {j}: A / √d"),
            chart.slider(f"phase_{j}", -3.14, 3.14, 0.01, phase, f"plane {j}: phase (rad)"),
        ]
    rows = alt.Chart(chart.data(offset=range(-LAST, 1)))
    scored = rows.transform_calculate(score=" + ".join(terms))
    ticks = [-48, -36, -24, -12, -1]
    x = chart.x("offset:Q", "n − m", [-LAST - 0.5, 0.5], values=ticks, grid=False)
    return chart.finish(
        alt.hconcat(_scores(scored, x), _weights(scored, x), spacing=36).add_params(*sliders),
        alt_text=f"Left: the score of a head against the offset n minus m, from minus {LAST} to 0, "
        "a sum of four cosines whose amplitudes and phases are set by sliders; at first its peak "
        "is at minus 1. Right: the attention weights that softmax makes of the scores, one bar "
        "per key; at first one bar, at minus 1, holds most of the weight. With all the amplitude "
        "on plane 7, the slowest, the curve is flat and all bars are equally low.",
    )


def _scores(scored: alt.Chart, x: alt.X) -> alt.LayerChart:
    top = len(PLANES) * TALLEST
    y = chart.y("score:Q", "score / √d", [-top, top], values=[-24, -12, 0, 12, 24])
    base = scored.encode(x=x, y=y)
    line = base.mark_line(color=BLUE, strokeWidth=2, interpolate="monotone")
    dots = base.mark_point(filled=True, color=BLUE, size=22, opacity=1)
    return alt.layer(line, dots).properties(width=WIDTH, height=180)


def _weights(scored: alt.Chart, x: alt.X) -> alt.LayerChart:
    weighed = (
        scored.transform_joinaggregate(top="max(score)")
        .transform_calculate(part="exp(datum.score - datum.top)")
        .transform_joinaggregate(whole="sum(part)")
        .transform_calculate(weight="datum.part/datum.whole")
    )
    y = chart.y("weight:Q", "attention weight", [0, 1], values=[0, 0.5, 1])
    bars = weighed.mark_bar(color=VERMILION, width=4).encode(x=x, y=y)
    expression = (
        f"datum.weight < 1.5/{LAST + 1} ? 'no key above ' + format(datum.weight, '.3f')"
        " : 'most at n − m = ' + format(datum.offset, 'd') + ': ' + format(datum.weight, '.3f')"
    )
    heaviest = weighed.transform_window(
        place="row_number()", sort=[alt.SortField("weight", order="descending")]
    )
    peak = heaviest.transform_filter("datum.place == 1")
    place: dict[str, Any] = {"x": WIDTH, "y": -12, "size": 14, "align": "right"}
    words = chart.reading(expression, of=peak, name="peak", **place)
    line = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(color=GRID).encode(y="zero:Q")
    return alt.layer(line, bars, words).properties(width=WIDTH, height=180)


def plane_by_plane() -> Picture:
    """Draw the cosine of every fourth plane of a head against the distance from its target.

    Each plane has its own row, with the fastest plane at the top. The head has 128 coordinates.
    """
    figure, ax = subplots(height=3.4)
    thetas, distances = inverse_frequencies(128)[::4], np.geomspace(1, 100_000, 151)
    angles = np.outer(thetas, distances)
    cosines = np.where(angles > 4 * np.pi, np.nan, np.cos(angles))
    rows = range(len(thetas))
    signs = LinearSegmentedColormap.from_list("signs", [BLUE, "white", VERMILION])
    ax.pcolormesh(distances, rows, cosines, cmap=signs, vmin=-1, vmax=1, edgecolors="face")
    ax.set(xlabel="distance from the target (tokens)", xscale="log", facecolor=GRID)
    ax.set(ylabel="frequency θ (radians per token)", ylim=(len(rows) - 0.5, -0.5))
    ax.set_yticks(rows[::4], [f"{theta:.3g}" for theta in thetas[::4]])
    ax.grid(False)
    return picture(
        figure,
        alt=f"A color map with a row for each of {len(rows)} planes and a logarithmic axis of "
        "distances from 1 to 100,000. Each row is orange at first, then turns blue and orange "
        "twice, then gray. Four rows down, the same stripes are ten times as far away.",
    )


def more_planes() -> Picture:
    """Draw the scores of a head that reads the previous token, for 1, 2, 8, and 64 planes."""
    figure, axes = subplots(4, 1, height=5.6, sharex=True)
    distances = np.arange(129)
    for ax, count in zip(axes, (1, 2, 8, 64), strict=True):
        thetas = inverse_frequencies(128)[:count]
        ax.plot(distances, 20 * np.cos(np.outer(distances - 1, thetas)).mean(axis=1))
        ax.plot(1, 20, "o", color=VERMILION)
        ax.set(ylim=(-24, 27), yticks=(-20, 0, 20), ylabel="score / √d")
        ax.set_title(f"{count} plane{'s' * (count > 1)}", fontsize=11)
    axes[-1].set_xlabel("tokens back (m − n)")
    return picture(
        figure,
        alt="Four curves of scores against the distance from 0 to 128, each with its highest point "
        "at 1. With 1 plane the curve returns to the top again and again, and with 2 planes often "
        "nearly so. With 8 planes it stays far below. With 64 the peak is broad.",
    )
