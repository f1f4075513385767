"""The figures of "Images and video" draw what the package computes, and say what they show."""

import json
import math
import re

import pytest
import torch
import vl_convert

import rope
from rope.axes import axis_tables, mrope_position_ids
from rope.book.mime import THEME_COLOURS
from rope.figures.axes import attention_maps, hands, mrope_ids, section_map
from rope.figures.two_waves import LOW_TO_HIGH, REACH, START, two_waves, wave_frequencies

THETA = torch.tensor([[0.5, 0.0], [0.0, 0.3]], dtype=torch.float64)
ORDERS = {"contiguous": ([16, 24, 24], False), "interleaved": ([24, 20, 20], True)}
SEGMENTS = [8, (1, 4, 6), 4, (3, 2, 4), 4]


def package_scores(theta, places):
    """Scores of the query at the origin with a key at each place, both (1, 0) in each plane."""
    cos, sin = axis_tables(places, theta, dtype=torch.float64)
    x = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64).expand(1, 1, places.shape[1], 4)
    keys = rope.rotary_embedding(x, cos, sin, interleaved=True)[0, 0]
    return keys @ x[0, 0, 0]


def drawn(values):
    """The SVG of the moving figure with its sliders at these values."""
    spec = two_waves().to_dict()
    for parameter in spec["params"]:
        if parameter["name"] in values:
            parameter["value"] = values[parameter["name"]]
    return vl_convert.vegalite_to_svg(json.dumps(spec), vl_version="5.20").replace("−", "-")


SETTINGS = [START, {"direction_0": 30, "wave_0": 5, "direction_1": 135, "wave_1": 9.5}]


@pytest.mark.parametrize("values", SETTINGS)
def test_the_moving_figure_draws_the_packages_scores(values):
    svg = drawn(values)
    theta = wave_frequencies(
        (values["direction_0"], values["direction_1"]), (values["wave_0"], values["wave_1"])
    )
    labels = re.findall(
        r'aria-label="columns to the right: (-?\d+); rows down: (-?\d+); score: ([-\de.]+)"', svg
    )
    assert len(labels) == (2 * REACH + 1) ** 2
    columns, rows, scores = (
        torch.tensor([float(label[i]) for label in labels], dtype=torch.float64) for i in range(3)
    )
    expected = package_scores(theta, torch.stack([rows, columns]))
    # Twelve significant digits of a number below 2: half of 1e-11, and what float64 rounds.
    torch.testing.assert_close(scores, expected, rtol=0, atol=6e-12)


@pytest.mark.parametrize("values", SETTINGS)
def test_the_mixed_difference_it_reads_out_is_the_packages(values):
    theta = wave_frequencies(
        (values["direction_0"], values["direction_1"]), (values["wave_0"], values["wave_1"])
    )
    corners = torch.tensor([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
    mixed = (package_scores(theta, corners) * torch.tensor([1, -1, -1, 1])).sum().item()
    by_formula = -4 * (theta[0].sin() * theta[1].sin()).sum().item()
    assert mixed == pytest.approx(by_formula, abs=2**-48)
    assert f"mixed difference: {mixed + 0.0:.3f}".replace("-0.000", "0.000") in drawn(values)


def test_the_page_leaves_the_blended_colours_alone():
    assert not set(LOW_TO_HIGH) & set(THEME_COLOURS)


def test_it_opens_on_an_axial_head():
    theta = wave_frequencies((START["direction_0"], START["direction_1"]), (6, 8))
    assert abs(theta[1, 0]) < 2**-52
    assert abs(theta[0, 1]) < 2**-50
    assert "mixed difference: 0.000" in drawn(START)


def test_hands_stand_at_the_angles_of_the_positions():
    svg = hands(THETA, 2, 3).svg
    for place in ("(0, 0)", "(1, 2)"):
        assert place in svg
    line = r'd="M ([\d.]+) ([\d.]+)\s+L ([\d.]+) ([\d.]+) "[^>]*stroke: (#0072b2|#d55e00)'
    hands_drawn = [[float(x) for x in found[:4]] for found in re.findall(line, svg)]
    angles = [math.atan2(y0 - y1, x1 - x0) for x0, y0, x1, y1 in hands_drawn]  # y points down
    expected = [a for row in range(2) for column in range(3) for a in (0.5 * row, 0.3 * column)]
    # A hand is 24 points long; each of its four numbers is rounded to a hundredth of a point.
    assert angles == pytest.approx(expected, abs=4 * 0.005 / 24)


def test_attention_maps_write_the_large_weights_only():
    one = torch.full((7, 7), 0.5 / 48)
    one[2, 2] = 0.5
    svg = attention_maps(one_head=one, other_head=torch.full((7, 7), 1 / 49)).svg
    assert svg.count(">.50</text>") == 1
    assert "one head" in svg
    assert ">.02<" not in svg


def test_attention_maps_draw_squares_with_the_weights_for_areas():
    half = torch.zeros(7, 7)
    half[2, 2], half[4, 4] = 0.5, 0.25
    svg = attention_maps(one_head=half, other_head=torch.zeros(7, 7)).svg
    corners = re.findall(r'd="M ([\d.]+) ([\d.]+)\s+L ([\d.]+) [^"]*" [^>]*fill: #0072b2', svg)
    sides = [abs(float(x1) - float(x0)) for x0, _, x1 in corners]
    # Two sides of some 15 points, each of its ends rounded to a hundredth of a point.
    assert sides[0] ** 2 / sides[1] ** 2 == pytest.approx(2, rel=2 * 0.02 / min(sides))


def marks(svg):
    """How many markers an SVG draws in each of the three axes' colours."""
    return [
        len(re.findall(f"<use [^>]*fill: {colour}", svg))
        for colour in ("#0072b2", "#d55e00", "#00936b")
    ]


def test_section_map_has_a_mark_for_each_plane_of_each_axis():
    for name, (sections, interleaved) in ORDERS.items():
        drawing = section_map(1e6, **{name: (sections, interleaved)}).svg
        assert marks(drawing) == [size + 1 for size in sections]  # and one in the legend
    both = section_map(1e6, **ORDERS).svg
    for word in (*ORDERS, "time", "height", "width"):
        assert word in both


def test_mrope_picture_names_the_parts_and_marks_each_token_three_times():
    picture = mrope_ids(SEGMENTS)
    assert picture.svg.count("text</text>") == 3
    assert "image</text>" in picture.svg
    assert "video</text>" in picture.svg
    tokens = mrope_position_ids(SEGMENTS).shape[1]
    assert marks(picture.svg) == [tokens] * 3
