"""Every context extension as a change of the spectrum: the chapter "Longer than the training text".

Above, the ratio theta'_j / theta_j plane by plane; below, how many turns a plane makes within the
trained length L, and how many within s L once its speed is changed. Vega recomputes the formulas of
`rope.extensions` under the sliders; a test compares all planes of all methods with the package.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from rope.figures import chart
from rope.figures.style import BLUE, GRID, INK, MUTED, VERMILION

DIM = 128
KEPT = 0.75  # share of the planes that p-RoPE lets turn
WIDTH = 300

PI, NTK, DYNAMIC, YARN = "position interpolation", "NTK-aware", "dynamic NTK", "YaRN"
LLAMA3, LONGROPE, PROPORTIONAL = "Llama 3", "LongRoPE (Phi-3)", "p-RoPE, p = 0.75"
METHODS = (PI, NTK, DYNAMIC, YARN, LLAMA3, LONGROPE, PROPORTIONAL)


def spectrum(long_factor: tuple[float, ...], *, base: float, length: int, factor: float) -> Any:
    """The ratio of new to old speed against the plane, under sliders for method, s, L and base.

    long_factor: LongRoPE's searched factors, one a plane of a head of their own width; base, length
    and factor: the model they belong to, which the sliders do not change.
    """
    searched = f"method == '{LONGROPE}'"
    parameters = [
        alt.param(
            name="method",
            value=NTK,
            bind=alt.binding_select(options=list(METHODS), name="method"),
        ),
        chart.slider("factor", 1, 32, 1, 8, "factor s"),
        chart.slider("loglength", 9, 17, 1, 12, "length L, power of two"),
        chart.slider("logbase", 3, 7, 0.1, 4, "base, power of ten"),
        chart.slider("plane", 0, DIM // 2 - 1, 1, 32, "plane to read"),
        chart.derived("d", f"{searched} ? {2 * len(long_factor)} : {DIM}"),
        chart.derived("s", f"{searched} ? {factor:g} : factor"),
        chart.derived("L", f"{searched} ? {length} : pow(2, loglength)"),
        chart.derived("b", f"{searched} ? {base:g} : pow(10, logbase)"),
        chart.derived("low", "max(floor(d*log(L/(32*2*PI))/(2*log(b))), 0)"),
        chart.derived("high", "min(ceil(d*log(L/(2*PI))/(2*log(b))), d - 1)"),
    ]
    rows = alt.Chart(_planes(long_factor)).transform_filter("datum.j < d/2")
    rows = rows.transform_calculate(turns="L*pow(b, -2*datum.j/d)/(2*PI)").transform_calculate(
        ramp="clamp((datum.j - low)/max(high - low, 0.001), 0, 1)",
        smooth="clamp((datum.turns - 1)/(4 - 1), 0, 1)",
    )
    rows = rows.transform_calculate(ratio=_ratio())
    rows = rows.transform_calculate(reached="datum.ratio*datum.turns*s")
    # Past L a plane meets angles that training lacked if it made no full turn and now goes further.
    rows = rows.transform_calculate(new="datum.turns < 1 && datum.reached > 1.000001*datum.turns")
    return chart.finish(
        alt.vconcat(_words(rows), _ratios(rows), _turns(rows), spacing=14).add_params(*parameters),
        alt_text=(
            "Above, one dot for each plane, fastest on the left, at the ratio of its new speed to "
            "its old one, between 0 and 1. Position interpolation puts all dots at one over s; "
            "NTK-aware scaling lets them fall smoothly from 1 to one over s; YaRN and Llama 3 keep "
            "1 for the fast planes, one over s for the slow ones, and a ramp between; LongRoPE's "
            "searched factors are irregular; p-RoPE keeps the fast planes and stops the others. "
            "Below, on a logarithmic axis, the number of turns within the trained length L, a "
            "dashed grey line, and within s times L with the new speeds, a dot each; a dot above "
            "the line in a plane that never completed its first turn is an angle never trained."
        ),
    )


def _planes(long_factor: tuple[float, ...]) -> alt.Data:
    padding = [1.0] * (DIM // 2 - len(long_factor))
    return chart.data(j=list(range(DIM // 2)), searched=[*long_factor, *padding])


def _ratio() -> str:
    """theta'_j / theta_j of each method, as one Vega expression."""
    stretched = "s*s - s + 1"  # s n/L - (s - 1) at the length n = s L
    formulas = {
        PI: "1/s",
        NTK: "pow(s, -2*datum.j/(d - 2))",
        DYNAMIC: f"pow({stretched}, -2*datum.j/(d - 2))",
        YARN: "datum.ramp/s + 1 - datum.ramp",
        LLAMA3: "(1 - datum.smooth)/s + datum.smooth",
        LONGROPE: "1/datum.searched",
    }
    cases = [f"method == '{method}' ? {formula}" for method, formula in formulas.items()]
    return " : ".join([*cases, f"(datum.j < floor({KEPT}*d/2) ? 1 : 0)"])


def _axis(title: str | None) -> alt.X:
    return alt.X(
        "j:Q",
        title=title,
        scale=alt.Scale(domain=[-1, DIM // 2], nice=False),
        axis=alt.Axis(values=[0, 16, 32, 48, 63], grid=False),
    )


def _marker() -> alt.Chart:
    rule = chart.one(j="min(plane, d/2 - 1)").mark_rule(color=GRID, strokeWidth=2)
    return rule.encode(x=_axis(None))


def _ratios(rows: alt.Chart) -> alt.LayerChart:
    y = alt.Y(
        "ratio:Q",
        title="θ′ / θ",
        scale=alt.Scale(domain=[0, 1.05], nice=False),
        # Not `format`, which would round the dots' own labels too.
        axis=alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], labelExpr="format(datum.value, '.2f')"),
    )
    dots = rows.mark_point(filled=True, size=26, color=BLUE, opacity=1)
    return alt.layer(_marker(), dots.encode(x=_axis(None), y=y)).properties(
        width=WIDTH, height=150, name="ratios"
    )


def _turns(rows: alt.Chart) -> alt.LayerChart:
    scale = alt.Scale(type="log", domain=[1e-4, 1e6], nice=False, clamp=True)
    ticks = alt.Axis(
        values=[1e-4, 1e-2, 1, 1e2, 1e4, 1e6],
        labelExpr="datum.value < 1 ? datum.label : format(datum.value, ',')",
        format="~g",
        grid=False,
    )

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="turns (log scale)", scale=scale, axis=ticks)

    one = chart.one(turns="1").mark_rule(color=MUTED, strokeWidth=1).encode(y=y("turns"))
    seen = rows.mark_line(color=MUTED, strokeWidth=2, strokeDash=[5, 3])
    dots = rows.mark_point(filled=True, size=26, opacity=1)
    colour = alt.Color(
        "new:N", scale=alt.Scale(domain=[False, True], range=[BLUE, VERMILION]), legend=None
    )
    shape = alt.Shape(
        "new:N", scale=alt.Scale(domain=[False, True], range=["circle", "triangle-up"]), legend=None
    )
    x = _axis("plane j")
    return alt.layer(
        _marker(),
        one,
        seen.encode(x=x, y=y("turns")),
        dots.encode(x=x, y=y("reached"), color=colour, shape=shape),
    ).properties(width=WIDTH, height=150)


def _words(rows: alt.Chart) -> alt.LayerChart:
    here = rows.transform_filter("datum.j == min(plane, d/2 - 1)").transform_calculate(
        text="'plane ' + datum.j + ' turns at ' + format(datum.ratio, '.3f') + ' of its speed'"
    )
    count = rows.transform_aggregate(unseen="sum(new)").transform_calculate(
        text="'at ' + format(s*L, ',') + ' tokens: new angles in ' + datum.unseen + ' planes'"
    )
    mark: dict[str, Any] = {"align": "left", "baseline": "middle", "color": INK, "fontSize": 15}
    lines = [
        words.mark_text(**mark).encode(x=alt.value(0), y=alt.value(height), text="text:N")
        for words, height in ((here, 12), (count, 36))
    ]
    return alt.layer(*lines).properties(width=WIDTH, height=44)
