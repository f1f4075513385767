"""Show an angle computed with few significant bits, for the chapter "How exact must it be?".

Let rd(x) be the number with p significant bits nearest to x. Then

    angle = m theta_j,        rounded angle = rd(rd(m) rd(theta_j)).
"""

from typing import Any

import altair as alt

from rope.book.figures import chart
from rope.book.figures.style import BLUE, VERMILION

DIM, BASE = 128, 10000.0
BIG = 1.5 * 2.0**52  # to round a float64 to an integer, add BIG and then subtract it
EXTENT = 1.3


def rounded_angle() -> Any:
    """Show unit vectors at the true angle and the rounded angle, with sliders for m, p, and j."""
    parameters = (
        chart.slider("power", 0, 20, 0.01, 10.01, "position, power of two"),
        chart.slider("bits", 6, 32, 1, 8, "significant bits"),
        chart.slider("plane", 0, DIM // 2 - 1, 1, 2, "plane j"),
        chart.derived("m", "round(pow(2, power))"),
        chart.derived("theta", f"pow({BASE:g}, -2*plane/{DIM})"),
        *_nearest("m"),
        *_nearest("theta"),
        chart.derived("product", "m_near*theta_near"),
        *_nearest("product"),
        chart.derived("angle", "m*theta"),
        chart.derived("error", "product_near - angle"),
    )
    true, rounded = ((f"cos({angle})", f"sin({angle})") for angle in ("angle", "product_near"))
    circle = chart.square(
        chart.plane(EXTENT),
        chart.arrow(*true, BLUE, extent=EXTENT, label="true", width=4),
        chart.arrow(*rounded, VERMILION, extent=EXTENT, dash=(6, 3), label="rounded"),
        size=300,
    )
    known = "bits == 8 ? ' (bfloat16)' : bits == 11 ? ' (float16, TF32)' : bits == 24 ? "
    lines = (
        f"'position ' + format(m, ',') + ', ' + bits + ' bits' + ({known} ' (float32)' : '')",
        "'angle ' + format(angle, '.7g') + ', rounded ' + format(product_near, '.7g')",
        "'cosine ' + format(cos(angle), '.4f') + ', rounded ' + format(cos(product_near), '.4f')",
        "'angle off by ' + format(abs(error), '.1e')",
    )
    words = chart.readings(lines, size=15, y=12, step=24, width=300, height=96)
    return chart.finish(
        alt.vconcat(words, circle, spacing=8).add_params(*parameters),
        alt_text="A unit circle with two arrows from its center: one at the true angle, position "
        "times theta, and a dashed one at the same angle computed with few significant bits. "
        "At small positions they coincide. With each doubling of the position "
        "the angle between them doubles; each further bit halves its bound.",
    )


def _nearest(name: str) -> tuple[alt.Parameter, alt.Parameter]:
    """Return parameters for the spacing of `bits`-bit numbers near `name` and the nearest one."""
    # Without the 1e-12, the computed logarithm of a power of two may be just below an integer.
    spacing = f"pow(2, floor(log({name})/LN2 + 1e-12) - bits + 1)"
    rounded = f"({name}/{name}_step + {BIG:.0f} - {BIG:.0f})*{name}_step"
    return chart.derived(f"{name}_step", spacing), chart.derived(f"{name}_near", rounded)
