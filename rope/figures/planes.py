"""The planes of one vector, turning at their own speeds: the chapter on many dimensions.

By the definition, position m turns plane j by m theta_j with theta_j = b^(-2j/d). Each plane is a
dial with one hand; together they tell the position as the hands of a clock tell the time.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from rope.figures import chart
from rope.figures.style import COLOURS, MUTED
from rope.reference import inverse_frequencies

WIDTH = 150  # pixels: two dials side by side fit a page 390 pixels wide
EXTENT = 1.1
LAST = 100


def planes(*, dim: int = 8, base: float = 10_000.0) -> Any:
    """The dials of `dim` / 2 planes, turned by one slider for the position m.

    Args:
        dim: width d of the vector; four or eight, for two or four dials.
        base: b of the definition.

    Raises:
        ValueError: `dim` is neither four nor eight.
    """
    if dim not in (4, 8):
        raise ValueError(f"dim is {dim}; the dials of 4 or 8 coordinates fit a page.")
    thetas = inverse_frequencies(dim, base).tolist()
    # The page stacks the two pairs when it is narrow.
    dials = [_dial(j, theta, COLOURS[j]) for j, theta in enumerate(thetas)]
    pairs = [alt.hconcat(*dials[j : j + 2], spacing=16) for j in range(0, len(dials), 2)]
    position = chart.slider("m", 0, LAST, 1, 23, "position m")
    angles = [chart.derived(f"angle_{j}", f"m*{theta:.6g}") for j, theta in enumerate(thetas)]
    speeds = ", ".join(f"{theta:.3g}" for theta in thetas)
    return chart.finish(
        alt.hconcat(*pairs, spacing=16).add_params(position, *angles),
        alt_text=(
            f"{len(thetas)} dials, one for each plane of a vector with {dim} coordinates, each "
            f"with one hand. Per position the hands turn by {speeds} radians. While the first "
            "hand goes round and round, the last has hardly left its start. Below each dial stand "
            "its angle in radians and the number of turns."
        ),
        play={"signal": "m", "min": 0, "max": LAST, "step": 0.05, "seconds": 30},
    )


def _dial(j: int, theta: float, colour: str) -> alt.VConcatChart:
    """One hand at the angle of plane j, the arc of its present turn, and both as numbers."""
    angle = f"angle_{j}"
    face = alt.layer(
        chart.plane(EXTENT),
        chart.arc("0", f"{angle} % (2*PI)", extent=EXTENT, radius="0.35", colour=MUTED),
        chart.arrow(f"cos({angle})", f"sin({angle})", colour, extent=EXTENT, width=4),
    ).properties(width=WIDTH, height=WIDTH)
    middle: dict[str, Any] = {"x": WIDTH / 2, "align": "center"}
    words = alt.layer(
        chart.reading(f"'plane {j}: θ = {theta:.3g}'", y=10, size=14, fontWeight=600, **middle),
        chart.reading(
            f"format({angle}, '.3f') + ' rad'", y=30, size=14, name=f"plane_{j}", **middle
        ),
        chart.reading(f"format({angle}/(2*PI), '.3f') + ' turns'", y=48, size=14, **middle),
    ).properties(width=WIDTH, height=58)
    return alt.vconcat(face, words, spacing=4)
