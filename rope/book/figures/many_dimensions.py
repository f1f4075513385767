"""Draw the planes of a vector, and what they add to a score, for the chapter "Many dimensions"."""

from typing import Any

import altair as alt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from rope.book.figures import Picture, chart, picture, subplots
from rope.book.figures.style import BLUE, COLORS, GRID, MUTED, VERMILION
from rope.reference import inverse_frequencies

DIALS_DIM, DIALS_LAST, EXTENT = 8, 100, 1.1
DIAL = 150  # pixels; two dials fit side by side on a page that is 390 pixels wide


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
