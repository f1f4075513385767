"""The figures of "How exact must it be?": the chart rounds as PyTorch's number formats do."""

import html
import json
import re

import numpy as np
import pytest
import torch
import vl_convert

from rope.figures.precision import BASE, DIM, error_by_position, rounded_angle, score_shift
from rope.reference import inverse_frequencies

FORMATS = {8: torch.bfloat16, 11: torch.float16, 24: torch.float32}


def shown(power, bits, plane):
    """What the chart reads out: the angle, the rounded angle, both cosines, the error."""
    spec = rounded_angle().to_dict()
    values = {"power": power, "bits": bits, "plane": plane}
    for parameter in spec["params"]:
        if parameter["name"] in values:
            parameter["value"] = values[parameter["name"]]
    svg = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version="5.20")
    words = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))
    text = html.unescape(words).replace("−", "-")
    pattern = r"angle (\S+), rounded (\S+) cosine (\S+), rounded (\S+) angle off by (\S+)"
    found = re.search(pattern, text)
    assert found is not None, text
    return [float(group) for group in found.groups()]


def rounded_by_torch(m, plane, dtype):
    """rd(rd(m) rd(theta)), each rounding PyTorch's own cast from float64."""
    theta = torch.tensor(inverse_frequencies(DIM, BASE)[plane])
    position = torch.tensor(m, dtype=torch.float64)
    product = position.to(dtype).double() * theta.to(dtype).double()
    return product.to(dtype).double().item()


@pytest.mark.parametrize(
    ("bits", "power", "plane"),
    [(8, 0, 0), (8, 10.01, 2), (11, 13, 31), (24, 20, 1)],
)
def test_the_chart_rounds_as_the_format_does(bits, power, plane):
    m = round(2**power)
    angle, rounded, cosine, rounded_cosine, error = shown(power, bits, plane)
    expected = rounded_by_torch(m, plane, FORMATS[bits])
    true = m * inverse_frequencies(DIM, BASE)[plane]
    assert angle == pytest.approx(true, rel=1e-6)  # seven digits are shown
    assert rounded == pytest.approx(expected, rel=1e-6)
    assert cosine == pytest.approx(np.cos(true), abs=6e-5)  # four decimals
    assert rounded_cosine == pytest.approx(np.cos(expected), abs=6e-5)
    assert error == pytest.approx(abs(expected - true), rel=0.06)  # two digits


def test_a_position_beyond_the_format_is_its_neighbour():
    assert round(2**8.006) == 257
    assert shown(8.006, 8, 0)[1] == 256
    assert shown(8.006, 9, 0)[1] == 257


@pytest.mark.parametrize("draw", [error_by_position, score_shift])
def test_plots_name_each_curve_and_carry_alt_text(draw):
    curves = {"one": [1e-3, 1e-2, 1e-1], "other": [1e-7, 1e-7, 1e-7]}
    made = draw([16, 256, 4096], curves)
    assert made.alt
    for name in curves:
        assert name in made.svg
