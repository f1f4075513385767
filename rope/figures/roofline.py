"""The roofline: how fast a program can run on a machine that is known by two numbers.

Chapter "As fast as memory allows". A program does I operations for each byte that it moves; the
machine does F operations a second and moves W bytes a second. Then the program does at most

    min(F, I W)    operations a second, and a rotation has    I = 3 / (2 e moved),

with e bytes an element, and `moved` times the bytes that must be moved.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from rope.figures import chart
from rope.figures.style import BLUE, GRID, INK, VERMILION

#: Powers of ten: the intensities that are drawn, and the rates.
INTENSITIES, RATES = (-2.0, 2.0), (9.0, 15.0)
STEPS = 120


def roofline() -> Any:
    """The roof and the rotation under it; sliders for F, W, bytes an element and bytes moved."""
    sliders = (
        chart.slider("arithmetic", 9, 14.5, 0.001, 13.826, "operations a second, power of ten"),
        chart.slider("memory", 9, 13.5, 0.001, 12.525, "bytes a second, power of ten"),
        chart.slider("e", 2, 4, 2, 2, "bytes an element"),
        chart.slider("moved", 1, 12, 0.5, 1, "bytes moved, over the least"),
    )
    formulas = (
        chart.derived("peak", "pow(10, arithmetic)"),
        chart.derived("rate", "pow(10, memory)"),
        chart.derived("ridge", "peak/rate"),
        chart.derived("intensity", "3/(2*e*moved)"),
        chart.derived("reached", "min(peak, intensity*rate)"),
    )
    low, high = INTENSITIES
    steps = alt.Chart(alt.sequence(0, STEPS + 1, as_="k")).transform_calculate(
        x=f"pow(10, {low:g} + {high - low:g}*datum.k/{STEPS})",
        y="min(peak, datum.x*rate)",
    )
    scale = alt.Scale(type="log", domain=[10**low, 10**high], nice=False, clamp=True)
    rates = alt.Scale(type="log", domain=[10 ** RATES[0], 10 ** RATES[1]], nice=False, clamp=True)
    x = alt.X(
        "x:Q",
        scale=scale,
        title="operations for each byte",
        axis=alt.Axis(values=[0.01, 0.1, 1, 10, 100], format="~g", grid=False),
    )
    y = alt.Y(
        "y:Q",
        scale=rates,
        title="operations a second",
        axis=alt.Axis(values=[10.0**power for power in (9, 11, 13, 15)], format="~s"),
    )
    roof = steps.mark_line(color=BLUE, strokeWidth=3).encode(x=x, y=y)
    here = chart.one(x="intensity", y="reached")
    stem = here.mark_rule(color=VERMILION, strokeDash=[6, 2], strokeWidth=2)
    dot = here.mark_point(filled=True, size=120, color=VERMILION, opacity=1)
    corner = chart.one(x="ridge").mark_rule(color=GRID, strokeWidth=1.5)
    lines = (
        "'machine: ' + format(peak, '.3s') + ' operations/s, ' + format(rate, '.3s') + ' bytes/s'",
        "'its ridge: ' + format(ridge, '.3g') + ' operations for each byte'",
        "'rotation: ' + format(intensity, '.3g') + ' for each byte, '"
        " + format(reached/peak, '.2%') + ' of the peak'",
    )
    words = alt.layer(
        *(chart.reading(line, y=10 + 20 * row, size=13) for row, line in enumerate(lines))
    ).properties(width=290, height=60)
    drawn = alt.layer(
        corner.encode(x="x:Q"),
        roof,
        stem.encode(x="x:Q", y="y:Q", y2=alt.value(230)),
        dot.encode(x="x:Q", y="y:Q"),
        chart.one(x="intensity", y="reached")
        .mark_text(text="rotation", align="left", dx=10, dy=8, color=INK)
        .encode(x="x:Q", y="y:Q"),
    ).properties(width=290, height=230)
    return chart.finish(
        alt.vconcat(words, drawn, spacing=8).add_params(*sliders, *formulas),
        alt_text=(
            "A roof over operations for each byte, both axes logarithmic: it rises in proportion "
            "up to the ridge and is level from there. The rotation is a dot on the rising part, "
            "far left of the ridge. Moving more bytes than must be moved slides the dot down the "
            "slope; a higher level roof leaves it where it is, more bytes a second lift it."
        ),
    )
