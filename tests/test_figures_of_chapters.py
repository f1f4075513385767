"""The chapters' figures draw what the package computes, fit a phone, and say what they show."""

import cmath
import html
import json
import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import vl_convert

import rope
from rope.axes import axis_tables
from rope.book.figures import eulers_formula as euler
from rope.book.figures import (
    finding_a_token,
    intro,
    keys_that_move,
    longer_context,
    precision,
    properties,
    training,
)
from rope.book.figures import many_dimensions as many
from rope.book.figures import more_than_one_axis as axes
from rope.book.figures import rotation_in_two_dimensions as plane
from rope.book.figures import what_the_model_uses as uses
from rope.book.figures import why_rotation as why
from rope.book.figures.beyond_the_trained_length import (
    attention_by_distance,
    by_position,
    undone,
)
from rope.book.figures.on_the_gpu import (
    LANES,
    LOADS,
    coalescing,
    decoding,
    lines_touched,
    roofline,
    tiles,
)
from rope.book.figures.seeds import LINE_HEIGHT, label
from rope.book.training import POSITIONS
from rope.extensions import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, YaRN
from rope.reference import inverse_frequencies, rotation_matrix, score


def rendered(chart, **values):
    """A moving figure as SVG with its sliders at these values, its Vega expressions evaluated."""
    spec = chart.to_dict()
    for parameter in spec["params"]:
        if parameter["name"] in values:
            parameter["value"] = values.pop(parameter["name"])
    assert not values, f"no such slider: {values}"
    svg = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version="5.20")
    return html.unescape(svg).replace("−", "-")


def texts(svg):
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def curves(**ends):
    """Two seeds a method, 0.2 apart at the end."""
    return {
        name: [{"step": [0, 20, 40], "loss": [4.6, 3.0, end + shift]} for shift in (-0.1, 0.1)]
        for name, end in ends.items()
    }


LATE = {name: [[2.0, 1.8, 1.7, 2.5, 3.5], [2.0, 1.8, 1.9, 2.7, 4.5]] for name in POSITIONS}
LATE["learned"] = [[2.0, 1.9, 1.8, None, None]] * 2
MAPS = [
    [[[1, 0, 0], [0.25, 0.75, 0], [0.1, 0.2, 0.7]], [[1, 0, 0], [1, 0, 0], [1, 0, 0]]],
    [[[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0.5, 0.5, 0], [0.123, 0.456, 0.421]]],
]
HANDS = torch.tensor([[[1, 1j]], [[-1, 1]], [[1j, 1j]]], dtype=torch.complex128)  # 3 frames
PATH = torch.tensor([1 + 2j, 1.5 + 2j, 2.5 + 1j], dtype=torch.complex128)  # cells of 0.5
DRAWINGS = {
    "falling": properties.falling,
    "angles met": lambda: longer_context.angles_met(
        0.01, {"as trained": 0.01, "PI": 0.0025, "long": 0.02}, trained=100, length=400
    ),
    "lost": lambda: precision.angles_lost([0.0, 0.5, 0.001, 0.1], 64),
    "loss curves": lambda: training.loss_curves(
        curves(**{name: 2 + 0.01 * k for k, name in enumerate(POSITIONS)})
    ),
    "above RoPE": lambda: training.above_reference(
        {"short": {"none": [0.5, 0.7], "xpos": [-0.02, -0.04]}}
    ),
    "cells": lambda: keys_that_move.cells(0.5, {3: (PATH, PATH[:1].expand(3)), 9: (PATH, PATH)}),
    "tiles": lambda: tiles(5, (18, 9), 4, (0, 2)),
    "decoding": lambda: decoding(7),
    "cost": lambda: properties.cost_against_length(
        [128, 256, 512], {"seconds": {"softmax": [1.0, 4.0, 16.0], "linear": [2.0, 4.0, None]}}
    ),
    "by plane": lambda: uses.by_plane(
        {"stopped": [[0.1, 0.3, 0.0], [0.1, 0.1, 0.0]], "silenced": [[0.2, 0.1, 0.5]]},
        [6.28, 62.8, 628.0],
        128,
    ),
    "by position": lambda: by_position(LATE, [0, 16, 64, 128, 512, 2048], 128),
    "undone": lambda: undone({"few": {"last": [0.5, 0.7], "random": [0.1, 0.1]}}, {"few": 1}),
}
SAID = {
    "falling": "plane 40 at 0.94, plane 50 at -1.00, plane 63 at 0.89, the mean at -0.09",
    "angles met": "from 0 to 0.99 radians: the angles of the distances in 100 tokens. In a text "
    "of 400, as trained: on to 3.99, new from 1.00; PI: to 1.00, none new; long: on to 7.98,",
    "lost": "of 4 planes 3 by more than 1/20 radian, 2 by more than 1/2 radian, 2 by more than "
    "half",
    "loss curves": "After 40 steps, lowest first: no positions 2.000 (1.900 to 2.100)",
    "above RoPE": "short: xPos -0.030 ± 0.127, no positions +0.600 ± 1.271",
    "cells": "Plane 3, 2 moves: the exact pair is in 3 cells and ends 3.0 cells right and 2.0 "
    "down; the stored one is in 1 and ends 0.0 cells right and 0.0 down.",
    "tiles": "2 times 8 tiles of 4 tokens and 4 heads, 5 across for queries and 3 for keys",
    "decoding": "launches 9 kernels one after another, 7 of them the rotation's",
    "cost": "softmax: 1 at 128, 16 at 512, at the end growing as S to the power 2.0",
    "by plane": "stopped: 0.100, 0.200, 0.000; silenced: 0.200, 0.100, 0.500",
    "by position": "RoPE 1.80, 4.00 from 512 to 2,048",
    "undone": "few: expected 100%, last 60% ± 127%, random 10% ± 0%.",
}


@pytest.mark.parametrize("name", SAID)
def test_the_alternative_text_says_the_numbers_that_are_drawn(name):
    made = DRAWINGS[name]()
    assert SAID[name] in made.alt
    assert not re.search(r"\bnan\b", made.svg + made.alt)


def test_the_far_keys_share_is_read_at_each_length():
    mass = {"rope": {4: [0.5, 0.25, 0.25], 8: [0.4, 0.1, 0.2, 0.3]}}
    chart = attention_by_distance(mass, (0, 1, 2, 4, 8), 4)
    assert "RoPE: 30% from distance 4 on, at 8" in chart.to_dict()["description"]
    svg = rendered(chart, method="RoPE", read="8")
    assert "from distance 4 on: 30% (of the keys: 50%)" in svg


def test_the_errors_of_moved_keys_are_read_at_each_move():
    still = HANDS[:1].expand(3, -1, -1)
    off = torch.tensor([[0.0, 0.0], [0.002, 0.5], [0.003, 0.75]])
    chart = keys_that_move.hands([0, 40, 80], [3, 9], HANDS, still, off)
    assert "after 80 moves, in degrees: plane 3 90, plane 9 0." in chart.to_dict()["description"]
    read = texts(rendered(chart, s=80))[:2]
    assert read == ["— moved once: off by 0.3%", "- - one by one: off by 75%"]


@pytest.mark.parametrize(("m", "n", "shift"), [(2, 8, 0), (31, 4, 30)])
def test_turning_pair_draws_the_packages_score(m, n, shift):
    expected = score(np.array(plane.Q), np.array(plane.K), m, n, np.array([plane.THETA]))
    assert f"q · k = {expected:.3f}" in rendered(plane.turning_pair(), m=m, n=n, shift=shift)


@pytest.mark.parametrize(("angle", "stretch"), [(0.9, 1.2), (5.8, 0.4)])
def test_the_product_is_drawn_where_the_numbers_multiply(angle, stretch):
    svg = rendered(euler.product_of_numbers(), angle=angle, stretch=stretch)
    expected = cmath.rect(stretch, angle) * euler.W
    turn = cmath.phase(expected) % math.tau
    assert f"zw: length {abs(expected):.2f}, angle {turn:.2f}" in svg


@pytest.mark.parametrize(("m", "n"), [(5, 4), (12, 7)])
def test_the_ellipses_are_the_orbits_of_one_matrix(m, n):
    stretch = np.diag([2.0, 1.0])
    M = stretch @ rotation_matrix(1, [math.pi / 6]) @ np.linalg.inv(stretch)
    query, key = why.on_ellipses(m, n)
    power = np.linalg.matrix_power
    assert query == pytest.approx(power(np.linalg.inv(M).T, m) @ why.QUERY, abs=2**-44)
    assert key == pytest.approx(power(M, n) @ why.KEY, abs=2**-44)
    if m - n == 1:
        assert f"stays at {query @ key:.3f}" in why.ellipses().alt


@pytest.mark.parametrize("encoding", [why.ADDED, "rotated"])
def test_the_third_key_lies_in_its_ring_unless_positions_are_added(encoding):
    """It is a sum of the other two before they are moved, and after where the move is linear."""
    shares, miss = np.array([-0.5, 0.9]), 0.0
    if encoding == why.ADDED:
        added = np.array([why.added(n + 1) - why.added(n) for n in why.PLACES.values()])
        miss = np.linalg.norm(shares @ added[:2] - added[2])
    svg = rendered(why.one_matrix(), encoding=encoding, first=shares[0], second=shares[1])
    assert f"off by {miss:.3f}" in texts(svg)


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
        (8, torch.bfloat16, 8.006, 0),  # position 257, which bfloat16 holds as 256
        (8, torch.bfloat16, 10.01, 2),
        (11, torch.float16, 13, 31),
    ],
)
def test_the_chart_rounds_as_the_format_does(bits, dtype, power, place):
    m = round(2**power)
    svg = rendered(precision.rounded_angle(), power=power, bits=bits, plane=place)
    pattern = r"angle (\S+), rounded (\S+) cosine (\S+), rounded (\S+) angle off by (\S+)"
    found = re.search(pattern, " ".join(texts(svg)))
    angle, rounded, cosine, rounded_cosine, error = map(float, found.groups())
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


LONG = tuple(1.0 + 1.3 * j for j in range(48))
SEARCHED = {"base": 10_000.0, "length": 4096, "factor": 32.0}


EXTENSIONS = {
    longer_context.PI: lambda s, length: Linear(s),
    longer_context.NTK: lambda s, length: NTK(s),
    longer_context.DYNAMIC: DynamicNTK,
    longer_context.YARN: YaRN,
    longer_context.LLAMA3: Llama3,
    longer_context.LONGROPE: lambda s, length: LongRoPE((1.0,) * 48, LONG, 4096, factor=32.0),
    longer_context.PROPORTIONAL: lambda s, length: Proportional(longer_context.KEPT),
}


@pytest.mark.parametrize("method", longer_context.RATIOS)
def test_every_plane_is_drawn_at_the_packages_ratio(method):
    s, power, logbase, plane = 8, 13, 5.7, 40
    chart = longer_context.spectrum(LONG, **SEARCHED)
    svg = rendered(chart, method=method, factor=s, loglength=power, logbase=logbase, plane=plane)
    dim, base, length = longer_context.DIM, 10.0**logbase, 2**power
    if method == longer_context.LONGROPE:  # the sliders do not move it
        dim, base, length, s = 2 * len(LONG), *SEARCHED.values()
    longest = int(s * length)
    plain = rope.inverse_frequencies(dim, base)
    changed = EXTENSIONS[method](float(s), length).scale(plain, base, longest)
    dots = dict(re.findall(r'aria-label="j: (\d+); θ′ / θ: ([\d.e-]+)"', svg))
    ratios = torch.tensor([float(dots[str(j)]) for j in range(len(dots))], dtype=torch.float64)
    # Vega's labels hold 12 decimals and the searched factors six significant digits.
    torch.testing.assert_close(ratios, changed / plain, rtol=1e-6, atol=1e-6)
    angles = torch.arange(longest)[:, None] * changed % (2 * torch.pi)
    unseen = int((angles >= plain * length).any(dim=0).sum())  # at some distance
    assert f"within {longest:,} tokens: new angles in {unseen} planes" in svg
    assert f"plane {plane} has {ratios[plane]:.3f} of its frequency" in svg


def test_the_head_weighs_its_keys_by_the_packages_scores():
    theta = inverse_frequencies(many.DIM)
    phases = {f"phase_{j}": round(2 * theta[j], 2) for j in range(3)}
    query, key = np.zeros(many.DIM), np.zeros(many.DIM)
    for j, phase in enumerate(phases.values()):
        query[2 * j], key[2 * j : 2 * j + 2] = 6.0, (math.cos(phase), math.sin(phase))
    scores = torch.tensor([score(query, key, many.LAST, n, theta) for n in range(many.LAST + 1)])
    svg = rendered(many.head_score(), **phases)
    assert f"most at n - m = -2: {scores.softmax(0)[-3]:.3f}" in svg


def package_scores(theta, places):
    """Scores of the query at the origin with a key at each place, both (1, 0) in each plane."""
    cos, sin = axis_tables(places, theta, dtype=torch.float64)
    x = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64).expand(1, 1, places.shape[1], 4)
    keys = rope.rotary_embedding(x, cos, sin, interleaved=True)[0, 0]
    return keys @ x[0, 0, 0]


def test_two_waves_draw_the_packages_scores_and_mixed_difference():
    values = {"direction_0": 30, "wave_0": 5, "direction_1": 135, "wave_1": 9.5}
    svg = rendered(axes.two_waves(), **values)
    directions, waves = (
        torch.tensor([values[f"{name}_{j}"] for j in (0, 1)], dtype=torch.float64)
        for name in ("direction", "wave")
    )
    turns = directions * (math.pi / 180)
    theta = torch.stack([turns.cos(), turns.sin()]) * (math.tau / waves)
    labels = re.findall(
        r'aria-label="columns to the right: (-?\d+); rows down: (-?\d+); score: ([-\de.]+)"', svg
    )
    assert len(labels) == (2 * axes.REACH + 1) ** 2
    columns, rows, scores = torch.tensor(
        [[float(value) for value in found] for found in labels], dtype=torch.float64
    ).T
    expected = package_scores(theta, torch.stack([rows, columns]))
    # Twelve significant digits of a number below 2: half of 1e-11, and what float64 rounds.
    torch.testing.assert_close(scores, expected, rtol=0, atol=6e-12)
    corners = torch.tensor([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
    mixed = (package_scores(theta, corners) * torch.tensor([1, -1, -1, 1])).sum().item()
    assert f"mixed difference: {mixed:.3f}" in svg


def test_the_map_links_each_chapter_of_the_table_of_contents():
    toc = (Path(__file__).parents[1] / "_toc.yml").read_text(encoding="utf-8")
    chapters = re.findall(r"file: chapters/(\w+)", toc.split("caption: Reference")[0])
    links = re.findall(r'xlink:href="(\w+)\.html"', intro.book_map().svg)
    assert list(dict.fromkeys(links)) == [name for name in chapters if name != "intro"]


@pytest.mark.parametrize("name", ["loss curves", "by position"])
def test_labels_at_the_ends_of_lines_do_not_collide(name):
    found = re.findall(r'<text [^>]*?y="([\d.]+)"[^>]*>([^<]+)</text>', DRAWINGS[name]().svg)
    ends = [float(y) for y, words in found if words.split(" (")[0] in map(label, POSITIONS)]
    assert len(ends) == len(POSITIONS)
    # The layout moves the axes a little after the labels.
    assert min(b - a for a, b in pairwise(sorted(ends))) > LINE_HEIGHT - 1


def test_recall_reads_the_chosen_method_at_the_chosen_question():
    answers = {
        name: [{"distance": [1, 2], "accuracy": [0.9, share]} for share in shares]
        for name, shares in (("none", (0.1, 0.3)), ("rope", (0.7, 0.9)))
    }
    floors = {"commonest": 0.16, "guessing": 1 / 16}
    chart = finding_a_token.recall(answers, curves(none=2.7, rope=0.5), floors, 2.77)
    said = chart.to_dict()["description"]
    assert "commonest 0.16, guessing 0.06" in said and "no positions 0.55; RoPE 0.85" in said
    read = texts(rendered(chart, method="no positions", t=2))
    assert "no positions is asked for the symbol 3 places back:" in read
    assert "0.20 right (seeds 0.10 to 0.30)" in read


def test_the_chart_draws_the_chosen_head():
    chart = uses.attention_maps(MAPS, "a b")
    said = chart.to_dict()["description"]
    assert "head 0 of layer 1 looks back the least, by 0.0 characters" in said
    assert "head 1 of layer 0 the most, by 1.0" in said
    svg = rendered(chart, layer=1, head=1)
    found = re.findall(r'aria-label="key: (\d); query: (\d); weight: ([\d.]+)"', svg)
    weight = {(int(m), int(n)): float(weight) for n, m, weight in found}
    assert weight == {(m, n): MAPS[1][1][m][n] for m in range(3) for n in range(m + 1)}
    back = (0.5 + 0.456 + 2 * 0.123) / 3
    assert f"layer 1, head 1: looks back {back:.1f} on average" in svg


SIZES = {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


@pytest.mark.parametrize(
    ("arithmetic", "memory", "e", "moved"),
    [(11, 10, 4, 4.5), (9, 13.5, 2, 1)],  # below the ridge and above it
)
def test_the_roof_is_the_lower_of_two_limits(arithmetic, memory, e, moved):
    peak, rate, intensity = 10**arithmetic, 10**memory, 6 / (4 * e * moved)
    share = min(peak, intensity * rate) / peak
    expected = [peak, rate, peak / rate, intensity, 100 * share]
    svg = rendered(roofline(), arithmetic=arithmetic, memory=memory, e=e, moved=moved)
    found = re.search(
        r"machine: (\S+) operations/s, (\S+) bytes/s its ridge: (\S+) operations for each byte "
        r"rotation: (\S+) for each byte, (\S+)% of the peak",
        " ".join(texts(svg)),
    )
    read = [float(group.rstrip("MGTP")) * SIZES.get(group[-1], 1) for group in found.groups()]
    assert read == pytest.approx(expected, rel=6e-3)  # three digits are shown


def test_every_lane_gets_its_plane_and_the_drawing_counts_the_lines():
    svg = coalescing().svg
    for (name, loads), lines in zip(LOADS.items(), (2, 4, 2), strict=True):
        half = name.startswith("half")
        for lane in range(LANES):
            plane = [place for load in loads for place in load[lane]]
            assert plane == ([lane, lane + LANES] if half else [2 * lane, 2 * lane + 1])
        assert sum(map(lines_touched, loads)) == lines and f"{name}: {lines} lines" in svg
    assert lines_touched([[32 * lane] for lane in range(LANES)]) == LANES


def test_readme_opens_with_its_picture_whose_arrow_turns_by_the_definition():
    root = Path(__file__).parents[1]
    file = "rope/book/figures/static/readme.svg"
    svg = intro.readme()
    assert (root / file).read_text(encoding="utf-8") == svg
    assert re.search(rf"^!\[.{{50,}}\]\({file}\)$", (root / "README.md").read_text("utf-8"), re.M)
    frames = dict(re.findall(r"@keyframes (\w+)\{(.*)\}", svg))
    swung = [float(x) for x in re.findall(r"scale\(1,(\S+?)\)", frames["swing"])]
    alone = [score(plane.Q, plane.K, 24, n, [plane.THETA]) for n in range(25)]
    assert swung == pytest.approx(alone, abs=0.00051)
