"""Show multiplication by complex numbers as motion, for the chapter "Euler's formula".

`product_of_numbers` multiplies a grid of unit squares and an arrow by z. `marching` multiplies 1
by the same number once per token. `seen_from_q` multiplies q and k by the conjugate of q.
"""

from typing import Any

import altair as alt

from rope.book.figures import chart
from rope.book.figures.style import BLUE, GREEN, INK, MUTED, SKY, VERMILION

EXTENT = 2.4  # half the width of the plane in `product_of_numbers`
W = 1.2 + 0.5j  # the number that z multiplies
FARTHEST = 5.8  # the largest angle of z in radians; the angle of z w stays below a full turn
WORDS = ("the", "dog", "bit", "the", "man", "and", "then", "the", "man", "bit", "the", "dog")


def product_of_numbers() -> Any:
    """Show a grid and a number w, both multiplied by z. Sliders set the angle and length of z."""
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
    polar = "'{0}: length ' + format(sqrt({1}*{1} + {2}*{2}), '.2f')"
    polar += " + ', angle ' + format((atan2({2}, {1}) + 2*PI) % (2*PI), '.2f')"
    numbers = ("z", "re", "im"), ("w", f"{W.real:g}", f"{W.imag:g}"), ("zw", "w_re", "w_im")
    return _finish(
        plane,
        [polar.format(*number) for number in numbers],
        chart.slider("angle", 0, FARTHEST, 0.01, 0.9, "angle of z (radians)"),
        chart.slider("stretch", 0.4, 1.4, 0.01, 1.2, "length of z"),
        chart.derived("re", "stretch*cos(angle)"),
        chart.derived("im", "stretch*sin(angle)"),
        chart.derived("w_re", f"re*{W.real:g} - im*{W.imag:g}"),
        chart.derived("w_im", f"re*{W.imag:g} + im*{W.real:g}"),
        play={"signal": "angle", "max": FARTHEST, "step": 0.02, "seconds": 14},
        words="A dashed grid and an arrow w. Multiplied by z, the grid turns by the angle of z, "
        "grows by its length, and has sides along z and i z. In the result, z w is where w was in "
        "the dashed grid.",
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


def marching() -> Any:
    """Show 1 multiplied by a unit complex number, once per token. Sliders set angle and token."""
    words = alt.Chart(chart.data(word=WORDS, at=range(len(WORDS)))).transform_calculate(
        x="1.2*cos(datum.at*theta)", y="1.2*sin(datum.at*theta)"
    )
    faint = alt.condition("datum.at == m", alt.value(1), alt.value(0.4))
    channels = chart.coordinates(1.4) | {"text": "word:N", "opacity": faint}
    before, now = "max(m - 1, 0)*theta", "m*theta"
    number = "format(cos({0}), '.3f') + ' ' + format(sin({0}), '+.3f') + ' i'"
    return _finish(
        chart.square(
            chart.plane(1.4),
            chart.arc(before, now, extent=1.4, radius="0.4", color=GREEN),
            chart.arrow(f"cos({before})", f"sin({before})", MUTED, extent=1.4, dash=(4, 4)),
            chart.arrow(f"cos({now})", f"sin({now})", BLUE, extent=1.4, width=4),
            words.mark_text(fontSize=15, color=INK).encode(**channels),
        ),
        [f"'token ' + m + ': angle ' + format({now}, '.2f')", number.format(now)],
        chart.slider("m", 0, len(WORDS) - 1, 1, 0, "token"),
        chart.slider("theta", 0.2, 0.55, 0.05, 0.3, "angle per token (radians)"),
        play={"signal": "m", "max": len(WORDS) - 0.6, "step": 1, "seconds": 12, "autoplay": True},
        words="An arrow of length 1, and the words of a sentence on a circle around it. From word "
        "to word the arrow turns by the same angle. A dashed arrow points to the previous word.",
    )


def seen_from_q() -> Any:
    """Show q and k turning as both are multiplied by q*. Sliders set angles and progress."""
    line: dict[str, Any] = {**chart.coordinates(1.25), "x2": "x2:Q", "y2": "y2:Q"}
    foot = {"x": "real*q_x", "y": "real*q_y"}  # the projection of k onto q ends here
    drop = chart.one(**foot, x2="k_x", y2="k_y").encode(**line)
    projection = chart.one(**foot, x2="0", y2="0").encode(**line)
    tips = [("q", "alpha", "x", "cos"), ("q", "alpha", "y", "sin")]
    tips += [("k", "beta", "x", "cos"), ("k", "beta", "y", "sin")]
    return _finish(
        chart.square(
            chart.plane(1.25),
            projection.mark_rule(color=GREEN, strokeWidth=8, opacity=0.5),
            drop.mark_rule(color=MUTED, strokeWidth=2, strokeDash=[4, 4]),
            chart.arrow("q_x", "q_y", BLUE, extent=1.25, label="q"),
            chart.arrow("k_x", "k_y", VERMILION, extent=1.25, label="k"),
        ),
        [f"'{name} part of q* k: ' + format({name}, '.2f')" for name in ("real", "imaginary")],
        chart.slider("part", 0, 1, 0.01, 0, "turn q to the axis"),
        chart.slider("alpha", 0, 6.28, 0.01, 0.5, "angle of q (radians)"),
        chart.slider("beta", 0, 6.28, 0.01, 1.4, "angle of k (radians)"),
        *(chart.derived(f"{v}_{x}", f"{f}({angle} - part*alpha)") for v, angle, x, f in tips),
        chart.derived("real", "q_x*k_x + q_y*k_y"),
        chart.derived("imaginary", "q_x*k_y - q_y*k_x"),
        play={"signal": "part", "max": 1, "step": 0.01, "seconds": 6},
        words="Arrows q and k of length 1, and k's projection onto q. A slider turns both until "
        "q lies on the positive real axis. Then the coordinates of k are the two parts of q* k.",
    )


def _finish(plane: Any, lines: list[str], *params: Any, play: dict[str, Any], words: str) -> Any:
    """Return the plane with text on its right, one line per expression in `lines`."""
    texts = chart.readings(lines, size=17, y=30, step=30, width=270, height=30 * len(lines) + 30)
    both = alt.hconcat(plane, texts, spacing=30).add_params(*params)
    return chart.finish(both, alt_text=words, play={"min": 0, **play})
