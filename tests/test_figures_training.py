"""The figures of trained models draw the numbers that they are given, and say them in their alt."""

import html
import json
import re
from functools import cache
from itertools import chain, pairwise

import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

from rope.book.mime import THEME_COLOURS, _smallest_text
from rope.figures import inside, training
from rope.figures.by_position import base_curve, by_position, by_position_panels
from rope.figures.trained_attention import attention_maps, encode
from rope.figures.ways import (
    LINE_HEIGHT,
    LOOKS,
    OTHERS,
    apart,
    label,
    look,
    spread,
)
from rope.training import POSITIONS

EDGES = [0, 16, 64, 128, 512, 2048]
STEPS = [0, 20, 40]


def curves(**ends):
    """Two seeds a way, 0.2 apart at the end."""
    return {
        name: [{"step": STEPS, "loss": [4.6, 3.0, end + shift]} for shift in (-0.1, 0.1)]
        for name, end in ends.items()
    }


ALL = curves(**{name: 2 + 0.01 * k for k, name in enumerate(POSITIONS)})
LATE = {name: [[2.0, 1.8, 1.7, 2.5, 3.5], [2.0, 1.8, 1.9, 2.7, 4.5]] for name in POSITIONS}
LATE["learned"] = [[2.0, 1.9, 1.8, None, None]] * 2
FEW = {name: LATE[name] for name in ("rope", "learned")}
NORMS = [[[1.0, 0.5, 0.25], [0.5, 0.5, 0.125]], [[0.5, 4.0, 0.5], [0.5, 0.75, 1.0]]]
WAVES = [6.28, 62.8, 628.0]
RECALL = {
    name: [{"distance": [1, 3], "accuracy": [0.9, share]}] * 2
    for name, share in (("none", 0.1), ("rope", 0.8))
}
COST = {"seconds": {"softmax": [1.0, 4.0, 16.0], "linear": [2.0, 4.0, None]}}
LOSSES = {"within": [[1.5, 1.7], [1.25, 1.25]], "beyond": [[3.0], [2.0]]}
DRAWINGS = {
    "loss curves": lambda: training.loss_curves(ALL),
    "loss curves in one": lambda: training.loss_curves(ALL, reference=None),
    "final spread": lambda: training.final_spread({"rope": [1.5, 1.7], "none": [2.0, 2.2]}),
    "by position": lambda: by_position(LATE, EDGES, 128),
    "panels": lambda: by_position_panels({"plain": FEW, "tuned": FEW}, EDGES, 128, log=True),
    "norms": lambda: inside.norm_heat_map(NORMS, NORMS),
    "ablation": lambda: inside.ablation([[0.1, 0.3, 0.0]], [[0.2, 0.1, 0.5]], WAVES, 128),
    "by distance": lambda: inside.mean_by_distance(NORMS, [(0, 0), (1, 1)]),
    "base": lambda: base_curve([100, 10_000], LOSSES, bound=4000),
    "recall": lambda: training.recall(RECALL, chance=1 / 16),
    "cost": lambda: training.cost_against_length([128, 256, 512], COST),
}


@cache
def drawn(name):
    return DRAWINGS[name]()


def texts(svg):
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_fits_a_phone(name):
    made = drawn(name)
    width = re.search(r'viewBox="0 0 ([\d.]+)', made.svg)
    assert float(width[1]) <= 5.2 * 72 + 1
    assert not re.search(r"\bnan\b", made.svg + made.alt)
    assert _smallest_text(made.svg) >= 10
    assert "<image" not in made.svg  # its bytes would follow the machine's zlib


@pytest.mark.parametrize("name", ["norms", "loss curves in one"])
def test_a_drawing_is_the_same_every_time(name):
    assert DRAWINGS[name]().svg == drawn(name).svg


def test_each_of_the_eight_ways_has_a_look_of_its_own():
    assert set(LOOKS) == set(POSITIONS)
    assert len({look(name, LOOKS)["color"] for name in LOOKS}) == len(LOOKS)
    assert len({str(look(name, LOOKS)["linestyle"]) for name in LOOKS}) == len(LOOKS)
    assert len(set(OTHERS)) == len({dash for _, dash in OTHERS}) == len(OTHERS)
    assert {colour for _, colour, _ in LOOKS.values()} <= set(THEME_COLOURS)
    crowd = [str(k) for k in range(len(OTHERS) + 1)]
    with pytest.raises(ValueError, match="9 lines in one figure; at most 8"):
        look("0", crowd)


def test_a_band_goes_from_the_least_to_the_greatest_seed():
    mean, low, high = spread([[1, 5], [2, 3], [6, 4]])
    assert (mean, low, high) == ([3, 4], [1, 3], [6, 5])
    for runs in ([], [[1], [1, 2]]):
        with pytest.raises(ValueError, match="all seeds must have equally many"):
            spread(runs)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8).map(sorted))
def test_labels_end_up_apart_and_no_farther_than_they_must(places):
    moved = apart(places, gap=10, top=100)
    assert all(b - a >= 10 - 1e-9 for a, b in pairwise(moved))
    assert moved[0] >= -1e-9 and moved[-1] <= 100 + 1e-9
    if all(b - a >= 10 for a, b in pairwise(places)):
        assert moved == pytest.approx(places)


@pytest.mark.parametrize("name", ["loss curves in one", "by position"])
def test_labels_at_the_ends_of_lines_do_not_collide(name):
    found = re.findall(r'<text [^>]*?y="([\d.]+)"[^>]*>([^<]+)</text>', drawn(name).svg)
    heights = sorted(
        float(y) for y, words in found if words.split(" (")[0] in map(label, POSITIONS)
    )
    assert len(heights) == len(POSITIONS)
    gaps = [b - a for a, b in pairwise(heights)]
    assert min(gaps) > LINE_HEIGHT - 1  # the layout moves the axes a little after the labels


def test_loss_curves_are_sorted_and_said():
    made = training.loss_curves(curves(none=2.5, rope=1.5))
    assert "After 40 steps, lowest first: RoPE 1.500 (1.400 to 1.600), no positions" in made.alt
    assert "2 seeds" in made.alt
    words = texts(made.svg)
    assert words.index("RoPE") < words.index("no positions")
    assert {"1.500", "2.500", "step (grey: RoPE)"} <= set(words)


def test_seeds_looked_at_after_different_steps_are_refused():
    odd = curves(rope=2.0)
    odd["rope"][1] = {"step": [0, 10, 40], "loss": [4.0, 3.0, 2.0]}
    with pytest.raises(ValueError, match="seeds of 'rope' do not share their values of 'step'"):
        training.loss_curves(odd)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: training.loss_curves({}),
        lambda: training.final_spread({}),
        lambda: by_position({}, EDGES, 128),
        lambda: training.recall({}, chance=0.1),
        lambda: training.cost_against_length([], {}),
    ],
)
def test_nothing_to_draw_is_said(draw):
    with pytest.raises(ValueError, match="nothing to draw"):
        draw()


def test_final_spread_says_mean_and_interval_of_each_row():
    alt = training.final_spread({"none": [3.0, 3.0, 3.0], "rope": [1.0, 2.0, 3.0]}).alt
    assert "Lowest first: RoPE 2.000 (-0.484 to 4.484), no positions 3.000 (3.000 to 3.000)" in alt
    assert training.final_spread({"rope": [1.5]}).alt.endswith("Lowest first: RoPE 1.500.")


def test_a_way_that_ends_early_gets_a_cross_and_says_so():
    made = drawn("by position")
    assert "learned 1.80, 1.80 from 64 to 128, where it ends" in made.alt
    assert "RoPE 1.80, 4.00 from 512 to 2,048" in made.alt
    assert "learned (to 128)" in texts(made.svg)
    assert "trained length 128" in texts(made.svg)
    with pytest.raises(ValueError, match="'rope' has 2 values for 5 stretches"):
        by_position({"rope": [[1.0, 2.0]]}, EDGES, 128)


def test_the_heat_map_gives_each_cell_the_colour_of_its_step():
    made = drawn("norms")
    patches = re.findall(r'<path d="([^"]*)"[^>]*style="fill: (#[0-9a-f]{6})"', made.svg)
    colours = inside._colours(8)
    cells = {}
    for path, colour in patches:
        if colour in colours:
            cells[colour] = cells.get(colour, 0) + path.count("z")
    norms = list(chain(*chain(*NORMS)))
    counted = [2 * sum(0.5 * k <= norm < 0.5 * k + 0.5 for norm in norms) for k in range(8)]
    counted[-1] += 2  # 4.0 itself, the end of the last step
    assert [cells.get(colour, 0) for colour in colours] == counted
    assert "the largest is 4.00, plane 1 of head 0 in layer 1" in made.alt
    assert not set(colours) & set(THEME_COLOURS)
    with pytest.raises(ValueError, match="both must be"):
        inside.norm_heat_map(NORMS, NORMS[:1])


def test_ablation_says_which_planes_matter_and_which_are_longer_than_the_text():
    alt = drawn("ablation").alt
    assert "Not turned: most 0.3000 at plane 1" in alt
    assert "Left out: most 0.5000 at plane 2" in alt
    assert "Planes from 2 on have longer ones than the trained 128." in alt
    with pytest.raises(ValueError, match="3 planes for 2 wavelengths"):
        inside.ablation([[0.1] * 3], [[0.1] * 3], WAVES[:2], 128)


def test_mean_by_distance_averages_all_heads():
    made = inside.mean_by_distance(NORMS, [(1, 0)])
    assert "layer 1, head 0: 0.5 at 0, greatest 4 at 1, 0.5 at 2" in made.alt
    assert "the mean of all heads, bold: 0.625 at 0, greatest 1.44 at 1, 0.469 at 2" in made.alt
    with pytest.raises(ValueError, match=r"head \(2, 0\) is not there"):
        inside.mean_by_distance(NORMS, [(2, 0)])


def test_base_recall_and_cost_say_what_they_draw():
    base = drawn("base")
    assert "within: 1.600 at 100, 1.250 at 10,000; beyond: 3.000 at 100" in base.alt
    assert "bound 4,000" in texts(base.svg)
    recall = drawn("recall").alt
    assert "RoPE 0.85, from 0.80 to 0.90; no positions 0.50, from 0.10 to 0.90" in recall
    cost = drawn("cost").alt
    assert "softmax: 1 at 128, 16 at 512, at the end growing as S to the power 2.0" in cost
    assert "linear: 2 at 128, 4 at 256, at the end growing as S to the power 1.0" in cost


MAPS = [
    [[[1, 0, 0], [0.25, 0.75, 0], [0.1, 0.2, 0.7]], [[1, 0, 0], [1, 0, 0], [1, 0, 0]]],
    [[[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0.5, 0.5, 0], [0.123, 0.456, 0.421]]],
]


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (0, 1), (1, 1)])
def test_the_chart_draws_the_chosen_head(layer, head):
    spec = attention_maps(MAPS, "a b").to_dict()
    for parameter in spec["params"]:
        if parameter["name"] in ("layer", "head"):
            parameter["value"] = {"layer": layer, "head": head}[parameter["name"]]
    svg = html.unescape(vl_convert.vegalite_to_svg(json.dumps(spec), vl_version="5.20"))
    found = re.findall(r'aria-label="key: (\d); query: (\d); weight: ([\d.]+)"', svg)
    drawn = {(int(m), int(n)): float(weight) for n, m, weight in found}
    chosen = MAPS[layer][head]
    assert drawn == {(m, n): chosen[m][n] for m in range(3) for n in range(m + 1)}
    back = sum(w * (m - n) for m, row in enumerate(chosen) for n, w in enumerate(row)) / 3
    assert f"layer {layer}, head {head}: looks back {back:.1f} on average" in svg
    assert svg.count(">␣</text>") == 2


def test_the_charts_text_fits_and_its_data_stay_small():
    size = 32
    even = [[1 / (m + 1) if n <= m else 0.0 for n in range(size)] for m in range(size)]
    stored = json.dumps(attention_maps([[even] * 4] * 4, "x" * size).to_dict())
    assert len(stored) < 30_000
    assert len(encode(even)) == size * (size + 1)
    with pytest.raises(ValueError, match="text has 2 characters for 3 rows"):
        attention_maps(MAPS, "ab")
