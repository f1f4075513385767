"""Show what multiplication by a complex number does: chapter "Euler's formula".

`product_of_numbers` draws w -> z w on a grid of unit squares: a rotation by the angle of z and a
scaling by |z|. `seen_from_q` draws q* k, which is k seen from q: its two coordinates are the dot
product of q and k and the area of their parallelogram.
"""

from typing import Any

import altair as alt
import numpy as np

from rope.book.figures import Picture, chart, picture, shapes, subplots
from rope.book.figures.style import BLUE, GREEN, GRID, MUTED, SKY, VERMILION

EXTENT = 2.4  # half the width of the animation's plane
W = 1.2 + 0.5j  # the number that z multiplies
FARTHEST = 5.8  # radians, so that the angle of z w stays below a full turn

Q, K = 2 + 1j, 1 + 2j  # the vectors that `seen_from_q` draws


def product_of_numbers() -> Any:
    """Show how z multiplies a grid and w, with sliders for the angle and the length of z."""
    plane = chart.square(
        chart.plane(EXTENT),
        _grid("1", "0").mark_rule(color=MUTED, strokeWidth=1, strokeDash=[3, 3]),
        _grid("re", "im").mark_rule(color=SKY, strokeWidth=1.5),
        chart.arc("0", "angle", extent=EXTENT, radius="0.35", color=VERMILION),
        chart.arrow(f"{W.real:g}", f"{W.imag:g}", MUTED, extent=EXTENT, label="w", dash=(4, 4)),
        chart.arrow("re", "im", VERMILION, extent=EXTENT, label="z"),
        chart.arrow("-im", "re", GREEN, extent=EXTENT, label="iz", dash=(8, 2)),
        chart.arrow("w_re", "w_im", BLUE, extent=EXTENT, label="zw", width=4),
    )
    length, angle = "sqrt({0}*{0} + {1}*{1})", "(atan2({1}, {0}) + 2*PI) % (2*PI)"
    numbers = {"z": ("stretch", "angle")}
    for name, x, y in (("w", f"{W.real:g}", f"{W.imag:g}"), ("zw", "w_re", "w_im")):
        numbers[name] = length.format(x, y), angle.format(x, y)
    lines = [
        f"'{name}: length ' + format({size}, '.2f') + ', angle ' + format({turn}, '.2f')"
        for name, (size, turn) in numbers.items()
    ]
    words = chart.readings(lines, size=17, y=30, step=30, width=270, height=120)
    return chart.finish(
        alt.hconcat(plane, words, spacing=30).add_params(
            chart.slider("angle", 0, FARTHEST, 0.01, 0.9, "angle of z (radians)"),
            chart.slider("stretch", 0.4, 1.4, 0.01, 1.2, "length of z"),
            chart.derived("re", "stretch*cos(angle)"),
            chart.derived("im", "stretch*sin(angle)"),
            chart.derived("w_re", f"re*{W.real:g} - im*{W.imag:g}"),
            chart.derived("w_im", f"re*{W.imag:g} + im*{W.real:g}"),
        ),
        alt_text="A plane with a dashed grid of four unit squares around the origin and an arrow "
        "w. Multiplied by z, the grid is drawn again: rotated by the angle of z and scaled by "
        "its length, its sides along the arrows z and i z, which are perpendicular. The arrow z w "
        "is in the new grid where w is in the old one. Next to the plane are the lengths, which "
        "multiply, and the angles, which add. Moving the sliders rotates and scales grid and "
        "arrow together.",
        play={"signal": "angle", "min": 0, "max": FARTHEST, "step": 0.02, "seconds": 14},
    )


def _grid(re: str, im: str) -> alt.Chart:
    """Return the lines of four unit squares, multiplied by the complex number re + i im."""
    ends = [(at, -1, at, 1) for at in (-1, 0, 1)] + [(-1, at, 1, at) for at in (-1, 0, 1)]
    placed = alt.Chart(chart.table(("a", "b", "c", "d"), ends)).transform_calculate(
        x=f"{re}*datum.a - {im}*datum.b",
        y=f"{re}*datum.b + {im}*datum.a",
        x2=f"{re}*datum.c - {im}*datum.d",
        y2=f"{re}*datum.d + {im}*datum.c",
    )
    return placed.encode(**chart.coordinates(EXTENT), x2="x2:Q", y2="y2:Q")


def seen_from_q() -> Picture:
    """Draw q, k, their parallelogram, and a projection. To the right, draw q* q and q* k."""
    figure, (left, right) = subplots(1, 2, height=2.7, width_ratios=(1, 1.35))
    both = Q.conjugate() * K
    corners = np.array([0, Q, Q + K, K])
    left.fill(corners.real, corners.imag, color=SKY, alpha=0.2, linewidth=0)
    left.text(1.75, 1.75, f"area {both.imag:g}", **shapes.CENTERED)
    foot = Q * both.real / abs(Q) ** 2
    corner = foot + 0.18 * Q / abs(Q) * np.array([-1, -1 + 1j, 1j])  # the right-angle mark
    left.plot(corner.real, corner.imag, color=MUTED, linewidth=1)
    left.plot([K.real, foot.real], [K.imag, foot.imag], color=MUTED, linestyle=shapes.DASHED)
    _arrows(left, {"$q$": (Q, BLUE), "$k$": (K, VERMILION)}, 1.12, foot)
    left.text(0.85, 0.02, "projection", rotation=np.degrees(np.angle(Q)), **shapes.CENTERED)
    left.set(title="$q$ and $k$", xlim=(-0.3, 3.3), ylim=(-0.6, 3.3), aspect="equal")

    right.plot([both.real] * 2, [0, both.imag], color=MUTED, linestyle=shapes.DASHED)
    right.text(both.real + 0.15, both.imag / 2, f"area {both.imag:g}", va="center")
    right.text(both.real / 2, -0.5, f"dot product {both.real:g}", **shapes.CENTERED)
    tips = {"": (Q.conjugate() * Q, BLUE), "$q^* k$": (both, VERMILION)}
    _arrows(right, tips, 1.1, complex(both.real))
    right.text(5.15, 0.35, "$q^* q$", ha="left", va="center")
    right.set(title="both times $q^*$", xlim=(-0.4, 6.3), ylim=(-1, 4), aspect="equal")
    return picture(
        figure,
        alt="Left: the arrows q, from the origin to (2, 1), and k, to (1, 2), with the shaded "
        "parallelogram that they span, of area 3. A dashed line falls from the tip of k "
        "perpendicularly onto q; its foot ends the projection of k onto q, drawn thick. Right: "
        "both multiplied by the conjugate of q. The first lies on the real axis, from 0 to 5; the "
        "second ends at 4 + 3i: 4 along the axis, the dot product, and 3 above it, the area.",
    )


def _arrows(ax: Any, named: dict[str, tuple[complex, str]], far: float, foot: complex) -> None:
    """Draw axes, arrows with names beyond the tips, and a thick projection that ends at `foot`."""
    for name, (tip, color) in named.items():
        shapes.arrow(ax, (0, 0), (tip.real, tip.imag), color)
        ax.text(far * tip.real, far * tip.imag, name, **shapes.CENTERED)
    ax.plot([0, foot.real], [0, foot.imag], "-", color=GREEN, linewidth=5, alpha=0.6)
    ax.axhline(0, color=GRID, linewidth=1, zorder=0)
    ax.axvline(0, color=GRID, linewidth=1, zorder=0)
    ax.axis("off")
