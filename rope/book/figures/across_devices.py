"""Show which device computes which query-key pairs: chapter "Across devices"."""

from typing import Any

import altair as alt

from rope.book.figures import chart
from rope.book.figures.style import COLORS, INK

LENGTHS, DEVICES = (8, 16, 24), (2, 4)
WIDTH, ROW = 300, 24
LEFT = 66  # the width of the device names, in pixels; the boxes begin there
PART = "floor(datum.t*2*P/S)"  # which of the text's 2P equal parts holds token t
#: Vega expressions by scheme: for the device that holds token t, and for t's place on that device.
DEVICE = {
    "contiguous": "floor(datum.t*P/S)",
    "head-tail": f"({PART} < P ? {PART} : 2*P - 1 - {PART})",
    "round robin": "datum.t % P",
}
PLACE = {
    "contiguous": "datum.t % (S/P)",
    "head-tail": f"(datum.t % (S/(2*P)) + ({PART} < P ? 0 : S/(2*P)))",
    "round robin": "floor(datum.t/P)",
}
#: The top, bottom, and center of a device's row, in pixels from the top of the view.
LINES = {
    "top": f"{ROW}*datum.device",
    "bottom": f"{ROW}*datum.device + {ROW - 4}",
    "center": f"{ROW}*datum.device + {ROW / 2 - 2}",
}


def split() -> Any:
    """Show each device's tokens and causal pairs, with menus for scheme, devices, and length."""
    return chart.finish(
        alt.vconcat(_tokens(), _pairs(), spacing=6).add_params(
            chart.menu("scheme", DEVICE, "head-tail", "scheme"),
            chart.menu("P", DEVICES, 2, "devices"),
            chart.menu("S", LENGTHS, 8, "tokens"),
        ),
        alt_text="Above, one row per device: the positions of the tokens that it holds. Below, the "
        "causal pairs of query and key, a triangle whose rows have the color of the device that "
        "holds the query, and how many pairs each device has. Eight tokens over two "
        "devices: head-tail gives 18 pairs to each, contiguous parts 10 and 26, round robin "
        "16 and 20.",
    )


def _placed(tokens: alt.Chart) -> alt.Chart:
    """Keep the rows whose token index t is below S, and add the columns `device` and `place`."""
    return tokens.transform_filter("datum.t < S").transform_calculate(
        device=chart.chosen("scheme", DEVICE), place=chart.chosen("scheme", PLACE)
    )


def _tokens() -> alt.LayerChart:
    """Draw one row per device and one box per token, labeled with its position."""
    wide = (WIDTH - LEFT) / (max(LENGTHS) / min(DEVICES))
    tokens = _placed(alt.Chart(alt.sequence(0, max(LENGTHS), as_="t"))).transform_calculate(
        left=f"{LEFT} + {wide:g}*datum.place",
        right=f"{LEFT - 1} + {wide:g}*(datum.place + 1)",
        middle=f"{LEFT} + {wide:g}*(datum.place + 0.5)",
        **LINES,
    )
    devices = alt.Chart(alt.sequence(0, max(DEVICES), as_="device"))
    names = devices.transform_filter("datum.device < P").transform_calculate(
        text="'device ' + datum.device", left="0", **LINES
    )
    numbers = tokens.mark_text(color=INK, fontSize=11)
    numbers = numbers.encode(**chart.pixels("middle", "center"), text="t:N")
    whole = alt.layer(_boxes(tokens, opacity=0.45), _text(names), numbers)  # the text on top
    return whole.properties(width=WIDTH, height=ROW * max(DEVICES), name="tokens")


def _pairs() -> alt.LayerChart:
    """Draw a map of queries (rows) and keys (columns), and print each device's number of pairs."""
    most, side = max(LENGTHS), f"{WIDTH}/S"
    rows = chart.table(("t", "n"), ((m, n) for m in range(most) for n in range(m + 1)))
    pairs = _placed(alt.Chart(rows)).transform_calculate(
        left=f"{side}*datum.n",
        right=f"{side}*(datum.n + 1) - 1",
        top=f"{side}*datum.t",
        bottom=f"{side}*(datum.t + 1) - 1",
    )
    counted = _placed(alt.Chart(alt.sequence(0, most, as_="t"))).transform_aggregate(
        before="sum(t)", own="count()", groupby=["device"]
    )
    count = "'device ' + datum.device + ': ' + (datum.before + datum.own) + ' pairs'"
    words = counted.transform_calculate(text=count, left=f"{WIDTH - 130}", **LINES)
    row = chart.reading("'row: query'", x=WIDTH - 80, y=112, size=13)
    column = chart.reading("'column: key'", x=WIDTH - 80, y=132, size=13)
    whole = alt.layer(_boxes(pairs), _text(words), row, column)
    return whole.properties(width=WIDTH, height=WIDTH, name="pairs")


def _boxes(rows: alt.Chart, opacity: float = 1) -> alt.Chart:
    """Draw rectangles from (left, top) to (right, bottom), in pixels."""
    devices = range(max(DEVICES))
    colors = alt.Scale(domain=[*devices], range=[*COLORS[: len(devices)]])
    color = alt.Color("device:N", scale=colors, legend=None)
    boxes = rows.mark_rect(opacity=opacity).encode(color=color, x2="right:Q", y2="bottom:Q")
    return boxes.encode(**chart.pixels("left", "top"))


def _text(rows: alt.Chart) -> alt.Chart:
    """Draw each row's `text`, left-aligned at the pixel (left, center)."""
    words = rows.mark_text(align="left", color=INK, fontSize=13)
    return words.encode(**chart.pixels("left", "center"), text="text:N")
