"""Which device works on which pairs: chapter "Across devices"."""

from typing import Any

import altair as alt

from rope.figures import chart
from rope.figures.style import COLOURS, INK, PAPER

LENGTHS, DEVICES = (8, 16, 24), (2, 4)
WIDTH, ROW = 300, 24
PART = "floor(datum.t*2*P/S)"  # of 2P equal stretches, the one that a token stands in
#: Of token t, as Vega expressions: the device that holds it, and its place among that one's tokens.
HOLDS = {
    "contiguous": ("floor(datum.t*P/S)", "datum.t % (S/P)"),
    "head-tail": (
        f"({PART} < P ? {PART} : 2*P - 1 - {PART})",
        f"(datum.t % (S/(2*P)) + ({PART} < P ? 0 : S/(2*P)))",
    ),
    "round robin": ("datum.t % P", "floor(datum.t/P)"),
}


def split() -> Any:
    """Tokens, positions and causal pairs of each device, under scheme, devices and length."""
    choices = [
        alt.param(name=name, value=first, bind=alt.binding_select(options=[*options], name=label))
        for name, first, options, label in (
            ("scheme", "head-tail", HOLDS, "scheme"),
            ("P", 2, DEVICES, "devices"),
            ("S", 8, LENGTHS, "tokens"),
        )
    ]
    whole = alt.vconcat(_tokens(), _pairs(), _work(), spacing=18).add_params(*choices)
    return chart.finish(
        whole,
        alt_text="Above, a row a device: the positions of the tokens that it holds. Below, the "
        "causal pairs of query and key, a triangle whose rows have the colour of the device that "
        "holds the query. At the bottom, how many pairs each device has. Eight tokens over two "
        "devices: head-tail gives 18 pairs to each, contiguous stretches 10 and 26, round robin "
        "16 and 20.",
    )


def _placed(tokens: alt.Chart) -> alt.Chart:
    """Rows of tokens t below S, with the device and the place of each."""

    def chosen(part: int) -> str:
        *some, (_, last) = HOLDS.items()
        cases = [f"scheme == '{name}' ? {both[part]} : " for name, both in some]
        return "".join(cases) + last[part]

    return tokens.transform_filter("datum.t < S").transform_calculate(
        device=chosen(0), place=chosen(1)
    )


def _colour() -> alt.Color:
    some = max(DEVICES)
    scale = alt.Scale(domain=[*range(some)], range=[*COLOURS[:some]])
    return alt.Color("device:N", scale=scale, legend=None)


def _boxes(rows: alt.Chart, height: int) -> alt.Chart:
    """Rectangles from (left, top) to (right, bottom), pixels."""

    return rows.mark_rect(stroke=PAPER, strokeWidth=1).encode(
        x=alt.X("left:Q", axis=None, scale=alt.Scale(domain=[0, WIDTH], nice=False)),
        x2="right:Q",
        y=alt.Y("top:Q", axis=None, scale=alt.Scale(domain=[height, 0], nice=False)),
        y2="bottom:Q",
        color=_colour(),
    )


def _tokens() -> alt.LayerChart:
    """A row a device, a box a token, with its position."""
    height = ROW * max(DEVICES)
    first, wide = 66, (WIDTH - 66) / (max(LENGTHS) / min(DEVICES))
    tokens = _placed(alt.Chart(alt.sequence(0, max(LENGTHS), as_="t"))).transform_calculate(
        left=f"{first} + {wide:g}*datum.place",
        right=f"{first} + {wide:g}*(datum.place + 1)",
        top=f"{ROW}*datum.device",
        bottom=f"{ROW}*datum.device + {ROW - 4}",
        middle=f"{first} + {wide:g}*(datum.place + 0.5)",
        centre=f"{ROW}*datum.device + {ROW / 2 - 2}",
    )
    names = _devices().transform_calculate(
        text="'device ' + datum.device", centre=f"{ROW}*datum.device + {ROW / 2 - 2}"
    )
    y = alt.Y("centre:Q", axis=None, scale=alt.Scale(domain=[height, 0], nice=False))
    numbers = tokens.mark_text(color=PAPER, fontSize=11, fontWeight="bold").encode(
        x=alt.X("middle:Q", axis=None, scale=alt.Scale(domain=[0, WIDTH], nice=False)),
        y=y,
        text="t:N",
    )
    words = names.mark_text(align="left", color=INK, fontSize=13).encode(
        x=alt.value(0), y=y, text="text:N"
    )
    return alt.layer(_boxes(tokens, height), numbers, words).properties(
        width=WIDTH, height=height, name="tokens"
    )


def _pairs() -> alt.LayerChart:
    """A row a query, a column a key, in the colour of the query's device."""
    most = max(LENGTHS)
    both = [(m, n) for m in range(most) for n in range(m + 1)]
    rows = chart.data(t=[m for m, _ in both], n=[n for _, n in both])
    side = f"{WIDTH}/S"
    pairs = _placed(alt.Chart(rows)).transform_calculate(
        left=f"{side}*datum.n",
        right=f"{side}*(datum.n + 1)",
        top=f"{side}*datum.t",
        bottom=f"{side}*(datum.t + 1)",
    )
    words = [
        chart.reading("'a row a query, 0 at the top'", x=WIDTH - 190, y=16, size=13),
        chart.reading("'a column a key'", x=WIDTH - 190, y=36, size=13),
    ]
    return alt.layer(_boxes(pairs, WIDTH), *words).properties(width=WIDTH, height=WIDTH)


def _work() -> alt.LayerChart:
    """The pairs of each device: a bar and their number."""
    height = ROW * max(DEVICES)
    counted = _placed(alt.Chart(alt.sequence(0, max(LENGTHS), as_="t"))).transform_aggregate(
        before="sum(t)", own="count()", groupby=["device"]
    )
    bars = counted.transform_calculate(
        pairs="datum.before + datum.own",
        left="66",
        right=f"66 + {WIDTH - 110}*datum.pairs/(S*(S + 1)/2)",
        top=f"{ROW}*datum.device",
        bottom=f"{ROW}*datum.device + {ROW - 4}",
        centre=f"{ROW}*datum.device + {ROW / 2 - 2}",
        beyond=f"72 + {WIDTH - 110}*datum.pairs/(S*(S + 1)/2)",
        text="'device ' + datum.device",
    )
    y = alt.Y("centre:Q", axis=None, scale=alt.Scale(domain=[height, 0], nice=False))
    x = alt.X("beyond:Q", axis=None, scale=alt.Scale(domain=[0, WIDTH], nice=False))
    ink = {"align": "left", "color": INK, "fontSize": 13}
    number = bars.mark_text(**ink).encode(x=x, y=y, text="pairs:Q")
    words = bars.mark_text(**ink).encode(x=alt.value(0), y=y, text="text:N")
    return alt.layer(_boxes(bars, height), number, words).properties(
        width=WIDTH, height=height, name="work"
    )


def _devices() -> alt.Chart:
    """A row a device in use."""
    numbers = alt.Chart(alt.sequence(0, max(DEVICES), as_="device"))
    return numbers.transform_filter("datum.device < P")
