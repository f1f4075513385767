"""Show an angle computed with few significant bits, and the measured errors of tables.

Chapter "How exact must it be?". Let rd(x) be the number with p significant bits nearest to x. Then

    angle = m theta_j,        rounded angle = rd(rd(m) rd(theta_j)).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from rope.book.figures import Picture, chart, picture, subplots
from rope.book.figures.style import BLUE, INK, VERMILION

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
        "times theta, and a dashed one at the angle that a number format with few significant bits "
        "makes of it. At small positions they coincide. With each doubling of the position "
        "the angle between them doubles; each further bit halves its bound.",
    )


def _nearest(name: str) -> tuple[alt.Parameter, alt.Parameter]:
    """Return parameters for the spacing of `bits`-bit numbers near `name` and the nearest one."""
    # Without the 1e-12, the computed logarithm of a power of two may be just below an integer.
    spacing = f"pow(2, floor(log({name})/LN2 + 1e-12) - bits + 1)"
    rounded = f"({name}/{name}_step + {BIG:.0f} - {BIG:.0f})*{name}_step"
    return chart.derived(f"{name}_step", spacing), chart.derived(f"{name}_near", rounded)


def error_by_position(positions: Sequence[int], errors: Mapping[str, Sequence[float]]) -> Picture:
    """Plot each library's largest cosine error against the position, both on logarithmic axes."""
    figure, ax = subplots(height=4.2)
    for name, values in errors.items():
        ax.plot(positions, values, label=name)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    figure.legend(loc="outside upper left", ncols=2, handlelength=3.5)
    ax.axhline(2**-25, color=INK, linestyle=":", linewidth=1)
    ax.text(positions[0], 2**-25 * 1.7, "rounding the table: $2^{-25}$")
    ax.set(xlabel="position", ylabel="largest error of a cosine")
    return picture(
        figure,
        alt="Errors against the position, from 16 to a million. rope is a flat line at the "
        "rounding of the table, 3e-8. transformers in float32 rises in proportion to the "
        "position, from 7e-7 to 0.05. With a bfloat16 input its tables start at 0.002 and join "
        "that line near 100,000. Cast to bfloat16 it rises from 0.02 and reaches 2, the largest "
        "error there is, near 2,000. rotary-embedding-torch with bfloat16 stays at 0.002 up to "
        "256 and then jumps to 2.",
    )
