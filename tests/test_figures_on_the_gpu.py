"""The figures of "As fast as memory allows": they draw what is counted."""

import html
import json
import re

import pytest
import vl_convert

from rope.figures.on_the_gpu import LANES, LOADS, coalescing, lines_touched, roofline

SIZES = {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def shown(**values):
    """What the chart reads out: peak, rate, ridge, intensity, share of the peak in percent."""
    spec = roofline().to_dict()
    for parameter in spec["params"]:
        if parameter["name"] in values:
            parameter["value"] = values[parameter["name"]]
    svg = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version="5.20")
    text = html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg)))
    found = re.search(
        r"machine: (\S+) operations/s, (\S+) bytes/s its ridge: (\S+) operations for each byte "
        r"rotation: (\S+) for each byte, (\S+)% of the peak",
        text,
    )
    assert found is not None, text
    return [float(group.rstrip("MGTP")) * SIZES.get(group[-1], 1) for group in found.groups()]


@pytest.mark.parametrize(
    ("arithmetic", "memory", "e", "moved"),
    [(13.826, 12.525, 2, 1), (11, 10, 4, 4.5), (9, 13.5, 2, 1)],
)
def test_the_roof_is_the_lower_of_two_limits(arithmetic, memory, e, moved):
    peak, rate, intensity = 10**arithmetic, 10**memory, 6 / (4 * e * moved)
    share = min(peak, intensity * rate) / peak
    expected = [peak, rate, peak / rate, intensity, 100 * share]
    found = shown(arithmetic=arithmetic, memory=memory, e=e, moved=moved)
    assert found == pytest.approx(expected, rel=6e-3)  # three digits are shown


def test_every_lane_gets_its_plane_and_the_drawing_counts_the_lines():
    svg = coalescing().svg
    for (name, loads), lines in zip(LOADS.items(), (2, 4, 2), strict=True):
        half = name.startswith("half")
        for lane in range(LANES):
            plane = [place for load in loads for place in load[lane]]
            assert plane == ([lane, lane + LANES] if half else [2 * lane, 2 * lane + 1])
        assert sum(map(lines_touched, loads)) == lines and f"{name}: {lines} lines" in svg
    assert lines_touched([[32 * lane] for lane in range(LANES)]) == LANES
