"""Compare the chapters' interactive figures with the package at a few slider settings."""

import html
import json
import math
import re

import numpy as np
import pytest
import torch
import vl_convert

from rope.book.figures import a_real_model, precision, properties
from rope.book.figures import eulers_formula as euler
from rope.book.figures import rotation_in_two_dimensions as plane
from rope.book.figures import why_rotation as why
from rope.reference import inverse_frequencies, rotation_matrix, score


def rendered(chart, **values):
    """Render an interactive figure as SVG with its sliders at these values."""
    spec = chart.to_dict()
    for parameter in spec["params"]:
        if parameter["name"] in values:
            parameter["value"] = values.pop(parameter["name"])
    assert not values, f"the chart has no slider for {values}"
    svg = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version="5.20")
    return html.unescape(svg).replace("−", "-")


def texts(svg):
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


@pytest.mark.parametrize(
    ("chart", "values", "words"),
    [
        (plane.turning_pair(), {"n": 4, "shift": 7}, f"{score(plane.Q, plane.K, 2, 4, [0.2]):.3f}"),
        (plane.seen_from_the_query(), {"offset": -3, "lead": 2}, f"score = {math.cos(0.4):.3f}"),
        (plane.score_tables({"": np.eye(9)}), {"steps": 4}, "query 5, key 4: score 0.00"),
        (euler.product_of_numbers(), {"angle": 5.8, "stretch": 0.4}, "zw: length 0.52, angle 6.19"),
        (euler.seen_from_q(), {"alpha": 1, "beta": 2, "part": 0.3}, f": {math.sin(1):.2f}"),
        (euler.marching(), {"m": 7}, "-0.505 +0.863 i"),
    ],
)
def test_a_chart_shows_the_right_number(chart, values, words):
    assert words in rendered(chart, **values)


@pytest.mark.parametrize(("m", "n"), [(5, 4), (12, 7)])
def test_the_ellipses_are_the_orbits_of_one_matrix(m, n):
    stretch = np.diag([2.0, 1.0])
    M = stretch @ rotation_matrix(1, [math.pi / 6]) @ np.linalg.inv(stretch)
    query, key = why.on_ellipses(m, n)
    power = np.linalg.matrix_power
    assert query == pytest.approx(power(np.linalg.inv(M).T, m) @ why.QUERY, abs=2**-44)
    assert key == pytest.approx(power(M, n) @ why.KEY, abs=2**-44)
    if m - n == 1:  # as in the figure's arrows
        assert f"stays at {query @ key:.3f}" in why.ellipses().alt


@pytest.mark.parametrize(
    ("block", "growth", "theta", "family"),
    [(0, 0.1, 2.5, "outside the circle"), (1, 0, 0, "twice at 1: ALiBi")],
)
def test_the_scores_beside_the_eigenvalues_are_powers_of_the_matrix(block, growth, theta, family):
    step = math.exp(growth) * rotation_matrix(1, [theta])
    M = np.block([[step, np.eye(2)], [np.zeros((2, 2)), step]]) if block else step
    key = 0.25 * np.eye(4)[2] if block else np.eye(2)[0]
    svg = rendered(why.eigenvalue_map(), block=why.BLOCKS[block], growth=growth, theta=theta)
    assert family in texts(svg)
    dots = dict(re.findall(r'aria-label="n - m: (-?\d+); score: ([-\de.]+)"', svg))
    for r in range(-why.REACH, why.REACH + 1):
        expected = np.linalg.matrix_power(M, r)[0] @ key
        if abs(expected) < 2.4:
            assert float(dots[str(r)]) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("bits", "dtype", "power", "place"),
    [
        (8, torch.bfloat16, 8.006, 0),  # position 257, which bfloat16 rounds to 256
        (8, torch.bfloat16, 10.01, 2),
        (11, torch.float16, 13, 31),
    ],
)
def test_the_chart_rounds_as_the_format_does(bits, dtype, power, place):
    m = round(2**power)
    svg = rendered(precision.rounded_angle(), power=power, bits=bits, plane=place)
    pattern = r"angle (\S+), rounded (\S+) cosine (\S+), rounded (\S+) angle off by (\S+)"
    numbers = re.search(pattern, " ".join(texts(svg)))
    angle, rounded, cosine, rounded_cosine, error = map(float, numbers.groups())
    theta = torch.tensor(inverse_frequencies(precision.DIM, precision.BASE)[place])
    product = torch.tensor(float(m)).double().to(dtype).double() * theta.to(dtype).double()
    expected, true = product.to(dtype).item(), m * theta.item()  # PyTorch's casts, from float64
    assert angle == pytest.approx(true, rel=1e-6)  # seven digits are shown
    assert rounded == pytest.approx(expected, rel=1e-6)
    assert cosine == pytest.approx(np.cos(true), abs=6e-5)  # four decimals
    assert rounded_cosine == pytest.approx(np.cos(expected), abs=6e-5)
    assert error == pytest.approx(abs(expected - true), rel=0.06)  # two digits


def test_the_mean_over_planes_is_read_at_the_chosen_distance():
    mean = np.cos(46 * inverse_frequencies(16, 100.0)).mean()
    svg = rendered(properties.decay_chart(), d=16, logbase=2, distance=46)
    assert f"mean at 46: {mean:.3f}" in svg


def test_the_map_of_a_head_shows_its_weights():
    weights = torch.rand(5, 5, generator=torch.Generator().manual_seed(0)).tril()
    maps = a_real_model.head_maps({"all": weights, "half": weights / 2}, [*"abcde"])
    svg = rendered(maps, head="half")
    shown = [float(x) for x in re.findall(r'role="graphics-symbol"[^>]* opacity="([^"]*)"', svg)]
    right = [
        0.03 + 0.97 * (weights[m, n].item() / 2) ** 0.5 for m in range(5) for n in range(m + 1)
    ]
    assert shown == pytest.approx(right, abs=0.01)
