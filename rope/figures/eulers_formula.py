"""Figures of the chapter "Euler's formula".

`partial_sums` draws e^{i theta} = sum of (i theta)^n / n! as a path of terms, each a quarter turn
from the one before, and the distance left against the bound |theta|^(n+1) / (n+1)! on it.
`quadrants` draws arctan(b/a) and atan2(b, a) against the angle of a + ib.
"""

from math import factorial
from typing import Any

import altair as alt
import numpy as np

from rope.figures import Picture, chart, picture, subplots
from rope.figures.style import BLUE, GREEN, INK, MUTED, PURPLE, SKY, VERMILION

TERMS = 20
EXTENT = 1.14  # of the plane, when its unit is the farthest partial sum
LEAST = 1e-10  # the lower end of the error axis
LABELS = ("1", "iθ", "−θ²/2!", "−iθ³/3!", "θ⁴/4!", "iθ⁵/5!")  # of the first terms
HEAD = "M0,0L0.5,1L-0.5,1Z"  # a triangle whose tip is the arrow's end, pointing up at angle 0
PRESENT = "datum.count == terms"  # the row of the present number of terms
GOAL = {"x": "unit*cos(theta)", "y": "unit*sin(theta)"}


def partial_sums() -> Any:
    """Sliders for theta and the number of terms; the path of the sum, and its distance to the end.

    With t terms the sum runs over n = 0 ... t - 1, and the bound on the distance is
    |theta|^t / t!. The plane zooms out as far as the longest partial sum of theta goes.
    """
    near = alt.binding_checkbox(name="stay at the unit circle")
    whole = alt.hconcat(_path(), _distance(), spacing=36).add_params(
        chart.slider("theta", -6.28, 6.28, 0.01, 1.5, "angle θ (radians)"),
        chart.slider("terms", 0, TERMS, 1, 4, "terms added"),
        alt.param(name="near", value=False, bind=near),
        chart.derived("unit", _unit()),
    )
    return chart.finish(
        whole,
        alt_text="Left: the terms of the exponential series of i theta as arrows laid end to end "
        "from the origin. Real terms are horizontal, imaginary ones vertical, so that each turns a "
        "quarter from the one before; the path spirals in on the point of the unit circle at "
        "angle theta. Right: the distance from the path's end to that point against the "
        "number of terms, on a logarithmic scale, always on or below a dashed bound that "
        "first rises, for theta beyond 1, and then falls ever more steeply. Adding terms "
        "brings the end to the point; a larger theta needs more of them.",
        play={"signal": "terms", "min": 0, "max": TERMS, "step": 1, "seconds": 15},
    )


def _unit() -> str:
    """How long the number 1 is drawn: 1 / (the largest |partial sum|, one of S_1 ... S_5)."""
    lengths = ["1.2"]  # leaves room for the label of e^{i theta}
    for last in range(1, 6):
        parts = ["", ""]
        for n in range(last + 1):
            sign = "+" if n % 4 < 2 else "-"
            parts[n % 2] += f"{sign}pow(theta,{n})/{factorial(n)}"
        lengths.append(f"sqrt(pow({parts[0]},2)+pow({parts[1]},2))")
    return f"near ? 0.8 : 1/max({', '.join(lengths)})"


def _series() -> alt.Chart:
    """A row per number of terms: the sum, the last term added, the distance left and its bound."""
    count = np.arange(TERMS + 1)
    power = np.maximum(count - 1, 0)
    added = np.minimum(count, 1)  # no term in the empty sum
    table = chart.data(  # whole numbers, which are stored exactly
        count=count,
        power=power,
        re=added * np.array([1, 0, -1, 0])[power % 4],  # i^n
        im=added * np.array([0, 1, 0, -1])[power % 4],
        below=[factorial(n) for n in power],
        label=[LABELS[n] if n < len(LABELS) else "" for n in power],
    )
    grown = alt.Chart(table).transform_calculate(
        term_x="datum.re*pow(theta, datum.power)/datum.below",
        term_y="datum.im*pow(theta, datum.power)/datum.below",
    )
    summed = grown.transform_window(
        sum_x="sum(term_x)", sum_y="sum(term_y)", sort=[alt.SortField("count")], frame=[None, 0]
    )
    return summed.transform_calculate(
        left="sqrt(pow(datum.sum_x - cos(theta), 2) + pow(datum.sum_y - sin(theta), 2))",
        most="pow(abs(theta), datum.count)/(datum.below*max(datum.count, 1))",
    )


def _path() -> alt.LayerChart:
    """The circle and its angle, the terms end to end, and the gap between their end and e^{iθ}."""
    xy = chart.coordinates(EXTENT)
    end = (
        _series()
        .transform_filter(PRESENT)
        .transform_calculate(x="unit*datum.sum_x", y="unit*datum.sum_y", x2=GOAL["x"], y2=GOAL["y"])
    )
    gap = end.mark_rule(color=PURPLE, strokeWidth=2, strokeDash=[3, 3], clip=True)
    dot = end.mark_point(filled=True, color=PURPLE, size=120, opacity=1, clip=True)
    goal = chart.one(**GOAL).mark_point(
        color=GREEN, size=260, strokeWidth=2.5, opacity=1, filled=False
    )
    radius = chart.one(x="0", y="0", x2=GOAL["x"], y2=GOAL["y"]).mark_rule(
        color=GREEN, strokeWidth=1.5, strokeDash=[6, 3]
    )
    beyond = chart.one(x=f"{GOAL['x']} + 0.16*cos(theta)", y=f"{GOAL['y']} + 0.13*sin(theta)")
    name = beyond.mark_text(text="eⁱᶿ", fontSize=17, fontWeight="bold", color=INK)
    return alt.layer(
        chart.plane(EXTENT, circle=False),
        chart.arc("0", "2*PI", extent=EXTENT, radius="unit", colour=MUTED),
        chart.arc("0", "theta", extent=EXTENT, radius="0.2*unit", colour=GREEN),
        radius.encode(**xy, x2="x2:Q", y2="y2:Q"),
        *_terms(xy),
        gap.encode(**xy, x2="x2:Q", y2="y2:Q"),
        goal.encode(**xy),
        dot.encode(**xy),
        name.encode(**xy),
    ).properties(width=chart.SIZE, height=chart.SIZE)


def _terms(xy: dict[str, Any]) -> list[alt.Chart]:
    """Shafts, heads and labels of the terms that are added."""
    pixels = f"{chart.SIZE / 2 / EXTENT:g}*unit*(abs(datum.term_x) + abs(datum.term_y))"
    terms = _series().transform_filter("datum.count > 0 && datum.count <= terms")
    placed = terms.transform_calculate(
        x="unit*datum.sum_x",
        y="unit*datum.sum_y",
        x0="unit*(datum.sum_x - datum.term_x)",
        y0="unit*(datum.sum_y - datum.term_y)",
        turn="90 - atan2(datum.term_y, datum.term_x)*180/PI",
        # A head no longer than half its arrow: the area goes with the square of the length.
        way="pow(theta, datum.power)",
        head=f"min(150, pow({pixels}/1.5, 2))",
        kind="datum.power % 2 ? 'imaginary term' : 'real term'",
    )
    kinds = alt.Scale(domain=["real term", "imaginary term"], range=[BLUE, VERMILION])
    colour = alt.Color("kind:N", scale=kinds, legend=None)
    angle, size = alt.Angle("turn:Q", scale=None), alt.Size("head:Q", scale=None)
    shaft = placed.mark_rule(strokeWidth=3, clip=True, strokeCap="round")
    heads = placed.mark_point(shape=HEAD, filled=True, opacity=1, strokeWidth=0, clip=True)
    # On the outer side of the spiral, and only where the arrow is long enough for it.
    labels = placed.transform_filter(f"{pixels} > 72").transform_calculate(
        x="(datum.x + datum.x0)/2 + (theta > 0 ? 1 : -1)*(datum.im*datum.way > 0 ? 1 : -1)"
        "*abs(datum.im)*(0.05 + 0.02*length(datum.label))",
        y="(datum.y + datum.y0)/2 + (theta > 0 ? -1 : 1)*(datum.re*datum.way > 0 ? 1 : -1)"
        "*abs(datum.re)*0.08",
    )
    words = labels.transform_filter("abs(datum.x) < 0.95 && abs(datum.y) < 1.08").mark_text(
        fontSize=14, color=INK
    )
    return [
        shaft.encode(**xy, x2="x0:Q", y2="y0:Q", color=colour),
        heads.encode(**xy, color=colour, angle=angle, size=size),
        words.encode(**xy, text="label:N"),
    ]


def _distance() -> alt.VConcatChart:
    """Words and numbers for the present sum, over the distance left against the terms."""
    small = "datum.left < 1e-12 ? 'below 1e−12' : datum.left < 0.001 ? format(datum.left, '.1e')"
    said = {
        "distance": f"'distance to eⁱᶿ: ' + ({small} : format(datum.left, '.3f'))",
        "sum": f"'sum: ' + {_complex('datum.sum_x', 'datum.sum_y')}",
        "goal": f"'eⁱᶿ: ' + {_complex('cos(theta)', 'sin(theta)')}",
    }
    here = _series().transform_filter(PRESENT)
    lines = [
        chart.reading(text, y=14 + 25 * row, size=15 if row else 18, name=name, of=here)
        for row, (name, text) in enumerate(said.items())
    ]
    words = alt.layer(*lines).properties(width=300, height=74)
    return alt.vconcat(words, _errors(), spacing=14)


def _complex(re: str, im: str) -> str:
    """re + i im as text with three decimals, a Vega expression."""
    sign = f"({im} < 0 ? ' − ' : ' + ')"
    return f"format({re}, '.3f') + {sign} + format(abs({im}), '.3f') + 'i'"


def _errors() -> alt.LayerChart:
    """The distance left and its bound against the number of terms, a ring round the present one."""
    domain, ticks = [-0.5, TERMS + 0.5], [0, 5, 10, 15, 20]
    x = chart.x("count:Q", "terms added", domain, values=ticks, grid=False, format="d")
    names = {"1e-9": "10⁻⁹", "1e-6": "10⁻⁶", "0.001": "10⁻³", "1": "1", "1000": "10³"}
    labels = "".join(f"datum.value == {v} ? '{name}' : " for v, name in names.items()) + "''"
    axis = {"values": [1e-9, 1e-6, 1e-3, 1, 1000], "labelExpr": labels}
    y = {
        field: chart.y(f"{field}:Q", "distance to eⁱᶿ", [LEAST, 1e5], {"type": "log"}, **axis)
        for field in ("left", "most")
    }
    shown = {field: _series().transform_filter(f"datum.{field} >= {LEAST:g}") for field in y}
    bound = shown["most"].mark_line(color=SKY, strokeWidth=2, strokeDash=[6, 3], clip=True)
    points = shown["left"].mark_point(filled=True, color=PURPLE, size=34, opacity=1, clip=True)
    here = shown["left"].transform_filter(PRESENT)
    ring = here.mark_point(color=PURPLE, size=190, strokeWidth=2.5, opacity=1, clip=True)
    return alt.layer(
        bound.encode(x=x, y=y["most"]),
        points.encode(x=x, y=y["left"]),
        ring.encode(x=x, y=y["left"]),
        chart.reading("'dashed: bound |θ|ᵗ / t!, t terms'", x=300, y=10, size=13, align="right"),
    ).properties(width=300, height=190)


def quadrants() -> Picture:
    """arctan(b/a) and atan2(b, a) against the angle of a + ib, with one number a quadrant."""
    figure, ax = subplots(height=3.7)
    pi, half, gap = np.pi, np.pi / 2, 1e-3
    for low, high in ((-pi, -half), (half, pi)):
        ax.axvspan(low, high, color=VERMILION, alpha=0.09, linewidth=0)
    angle = np.linspace(-pi, pi, 61)
    ax.plot(angle, np.arctan2(np.sin(angle), np.cos(angle)), color=BLUE, label="atan2(b, a)")
    parts = ((-pi + gap, -half - gap), (-half + gap, half - gap), (half + gap, pi))
    for part, label in zip(parts, (None, "arctan(b / a)", None), strict=True):
        angle = np.linspace(*part, 31)
        wrong = np.arctan(np.sin(angle) / np.cos(angle))
        ax.plot(angle, wrong, color=VERMILION, linestyle=(0, (6, 2)), label=label)
    for a, b, quadrant in ((1, 1, "I"), (-1, 1, "II"), (-1, -1, "III"), (1, -1, "IV")):
        at, below = np.arctan2(b, a), np.arctan(b / a)
        ax.plot(at, below, "o", color=VERMILION, markersize=9)
        ax.plot(at, at, "o", color=BLUE, markersize=5)
        ax.text(at, 3.45, quadrant, ha="center", va="bottom")
        if a < 0:
            arrow = {"arrowstyle": "->", "color": INK, "linewidth": 1}
            ax.annotate("", (at, at - b * 0.15), (at, below + b * 0.2), arrowprops=arrow)
            ax.text(at + 0.1, b * 0.55, "π", va="center")
    ticks = {"ticks": [-pi, -half, 0, half, pi], "labels": ["−π", "−π/2", "0", "π/2", "π"]}
    ax.set_xticks(**ticks)
    ax.set_yticks(**ticks)
    ax.set(xlim=(-pi, pi), xlabel="angle of z = a + ib, and its quadrant (top)")
    ax.set(ylim=(-3.4, 3.4), ylabel="what is computed")
    ax.legend(loc="lower right")
    return picture(
        figure,
        alt="The angle computed for z = a + ib against its true angle, from minus pi to pi. "
        "atan2(b, a) is the diagonal. arctan(b / a) agrees in the first and fourth quadrants, "
        "jumps at plus and minus pi/2, and in the shaded second and third quadrants lies pi "
        "below or above the diagonal; points mark 1+i, -1+i, -1-i and 1-i.",
    )
