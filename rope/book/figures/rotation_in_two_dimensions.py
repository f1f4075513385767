"""Show relative scores and the sign of the offset, for "Rotation in two dimensions".

A table of relative scores is constant along its diagonals. With rotation, the score of q and k is
|q| |k| cos((n - m) theta + phi), where phi is the angle from q to k.
"""

from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from rope.book.figures import chart
from rope.book.figures.style import BLUE, GRID, INK, MUTED, VERMILION
from rope.reference import score

Q, K = (0.92, 0.25), (0.35, 0.75)  # the vectors in `turning_pair`
LAST, THETA = 32, 0.2
FAR, SEEN_THETA = 8, 0.4  # the farthest offset and the frequency in `seen_from_the_query`


def score_tables(tables: dict[str, NDArray[Any]]) -> Any:
    """Show one map of scores `[N, N]` per title, with a query-key pair that moves step by step."""
    maps, last = [], len(next(iter(tables.values()))) - 1
    place: dict[str, Any] = {"x": alt.X("n:O", title="key n", axis=alt.Axis(labelAngle=0))}
    place |= {"y": alt.Y("m:O", title="query m")}
    for title, table in tables.items():
        rows = [(*at, value, abs(value)) for at, value in np.ndenumerate(table.round(9))]
        cells = alt.Chart(chart.table(("m", "n", "score", "size"), rows))
        pair = cells.transform_filter("datum.m == at_m && datum.n == at_n")
        sign = alt.condition("datum.score < 0", alt.value(BLUE), alt.value(VERMILION))
        size = alt.Opacity("size:Q", legend=None, scale=alt.Scale(range=[0, 1]))
        colors = cells.mark_rect().encode(**place, color=sign, opacity=size)
        frame = pair.mark_rect(fillOpacity=0, stroke=INK, strokeWidth=3).encode(**place)
        words = "'query ' + datum.m + ', key ' + datum.n + ': score ' + format(datum.score, '.2f')"
        below = chart.reading(words, y=12, size=15, of=pair).properties(width=270, height=24)
        maps += [alt.vconcat(chart.square(colors, frame, size=270).properties(title=title), below)]
    both, along = alt.hconcat(*maps, spacing=36), f"min(steps, {last} - abs(offset))"
    return chart.finish(
        both.resolve_scale(opacity="independent").add_params(
            chart.slider("steps", 0, last, 1, 0, "both move on by"),
            chart.slider("offset", 1 - last, last - 1, 1, -1, "offset n − m"),
            chart.derived("at_m", f"max(-offset, 0) + {along}"),
            chart.derived("at_n", f"max(offset, 0) + {along}"),
        ),
        alt_text="Maps of scores over query and key, with a frame around one pair. With positions "
        "added, the colors change along most diagonals, and a score changes when its pair moves "
        "on. With rotated vectors, each diagonal has one color and the score stays.",
        play={"signal": "steps", "min": 0, "max": last - 0.6, "step": 1, "seconds": 10},
    )


def turning_pair() -> Any:
    """Show q and k rotated to their positions, and their score. Sliders set m, n, and a shift."""
    parameters = [
        chart.slider("m", 0, LAST, 1, 2, "query, before the shift"),
        chart.slider("n", 0, LAST, 1, 8, "key, before the shift"),
        chart.slider("shift", 0, LAST, 1, 0, "shift both by"),
    ]
    for name, (x, y), position in (("q", Q, "m"), ("k", K, "n")):
        angle = f"({position} + shift)*{THETA:g}"
        parameters += [
            chart.derived(f"{name}_x", f"{x:g}*cos({angle}) - {y:g}*sin({angle})"),
            chart.derived(f"{name}_y", f"{x:g}*sin({angle}) + {y:g}*cos({angle})"),
        ]
    parameters.append(chart.derived("dot", "q_x*k_x + q_y*k_y"))  # not computed from n - m
    extent, start = 1.12, "atan2(q_y, q_x)"
    between = "atan2(q_x*k_y - q_y*k_x, q_x*k_x + q_y*k_y)"
    ghost: dict[str, Any] = {"extent": extent, "dash": (4, 4), "width": 1.5, "opacity": 0.75}
    pair = chart.square(
        chart.plane(extent),
        chart.arrow(f"{Q[0]:g}", f"{Q[1]:g}", BLUE, **ghost),
        chart.arrow(f"{K[0]:g}", f"{K[1]:g}", VERMILION, **ghost),
        chart.arc(start, f"{start} + {between}", extent=extent, radius="0.3"),
        chart.arrow("q_x", "q_y", BLUE, extent=extent, label="q", width=4),
        chart.arrow("k_x", "k_y", VERMILION, extent=extent, label="k", width=4),
    )
    offsets = range(-LAST, LAST + 1)  # for each offset, one of the two tokens is at position 0
    scores = [score(Q, K, max(-r, 0), max(r, 0), [THETA]) for r in offsets]
    places = "'q at ' + format(m + shift, '.0f') + ', k at ' + format(n + shift, '.0f')"
    places += " + ', n − m = ' + format(n - m, 'd')"
    curve = _curve(alt.Chart(chart.data(distance=offsets, score=scores)), LAST, "n - m", places)
    return chart.finish(
        alt.hconcat(pair, curve, spacing=36).add_params(*parameters),
        alt_text="Left: a query arrow q and a key arrow k, each turned counterclockwise by its "
        "position times theta. Right: their score, a cosine of n minus m, with a dot. Moving one "
        "position moves the dot. Shifting both turns both arrows, and the dot stays where it is.",
        play=dict(signal="shift", min=0, max=LAST, step=0.05, seconds=16, autoplay=True),
    )


def _curve(scores: alt.Chart, last: int, distance: str, places: str, dot: str = "q · k") -> Any:
    """Plot scores against n - m, mark the current score `dot`, and print it and `places` above."""
    ticks = [last * part / 2 for part in range(-2, 3)]
    x = chart.x("distance:Q", "n − m", [-last, last], values=ticks, grid=False)
    y = chart.y("score:Q", "score", [-1, 1], values=[-1, 0, 1])
    line = scores.encode(x=x, y=y).mark_line(color=MUTED, strokeWidth=2, interpolate="monotone")
    here = chart.one(distance=distance, score="dot")
    drop = here.mark_rule(color=GRID, strokeWidth=2).encode(x=x, y=y, y2=alt.datum(-1))
    point = here.mark_point(filled=True, size=170, color=INK, opacity=1).encode(x=x, y=y)
    words = alt.layer(
        chart.reading(f"'{dot} = ' + format(dot, '.3f')", y=18, size=26, name="score"),
        chart.reading(places, y=52, size=15, name="positions"),
    ).properties(width=300, height=64)
    plot = alt.layer(drop, line, point).properties(width=300, height=190)
    return alt.vconcat(words, plot, spacing=18)


def seen_from_the_query() -> Any:
    """Show the keys R_{n-m} k that a query meets, and their scores against the offset n - m."""
    turn = f"PI/2 + ({{}} + lead)*{SEEN_THETA:g}"  # the angle of the key at an offset
    angle, now = turn.format("datum.distance"), turn.format("offset")
    keys = alt.Chart(chart.data(distance=range(-FAR, FAR + 1)))
    names = keys.transform_filter("abs(datum.distance) < 4").transform_calculate(
        x=f"1.36*cos({angle})", y=f"1.36*sin({angle})", name="format(datum.distance, '+d')"
    )
    plane = chart.square(
        chart.plane(1.5),
        names.mark_text(fontSize=14, color=INK).encode(**chart.coordinates(1.5), text="name:N"),
        chart.arrow("0", "1", BLUE, extent=1.5, label="q", width=4),
        chart.arrow("k_x", "dot", VERMILION, extent=1.5, label="k", width=4),
    )
    scores, place = (
        keys.transform_calculate(score=f"sin({angle})"),
        "'n − m = ' + format(offset, 'd')",
    )
    return chart.finish(
        alt.hconcat(plane, _curve(scores, FAR, "offset", place, "score"), spacing=36).add_params(
            chart.slider("offset", -FAR, FAR, 1, -3, "offset n − m"),
            chart.slider("lead", -4, 4, 1, 0, "angle from q to k, in steps"),
            chart.derived("k_x", f"cos({now})"),
            chart.derived("dot", f"sin({now})"),
        ),
        alt_text="Left: a query arrow that points up, and a key arrow. Numbers show where keys at "
        "other offsets point: earlier ones further clockwise. Right: the scores against n minus m, "
        "a cosine with its peak at 0, and at minus 2 if k is ahead of q by two steps.",
        play={"signal": "offset", "min": -FAR, "max": FAR, "step": 1, "seconds": 12},
    )
