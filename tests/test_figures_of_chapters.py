"""The chapters' figures draw what the package computes, fit a phone, and say what they show."""

import cmath
import html
import json
import math
import re
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import vl_convert

import rope
from rope.axes import axis_tables, mrope_position_ids
from rope.book.figures import eulers_formula as euler
from rope.book.figures import (
    finding_a_token,
    from_maths_to_pytorch,
    intro,
    is_my_rope_right,
    keys_that_move,
    longer_context,
    precision,
    properties,
    style,
    training,
    two_layouts,
    why_position,
)
from rope.book.figures import many_dimensions as many
from rope.book.figures import more_than_one_axis as axes
from rope.book.figures import rotary_attention as attention
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
    step,
    tiles,
)
from rope.book.figures.seeds import LINE_HEIGHT, label
from rope.book.mime import THEME_COLOURS, inline_svg
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


THETA = torch.tensor([[0.5, 0.0], [0.0, 0.3]], dtype=torch.float64)
ORDERS = {"contiguous": ([16, 24, 24], False), "interleaved": ([24, 20, 20], True)}
SEGMENTS = [8, (1, 4, 6), 4, (3, 2, 4), 4]
EDGES = [0, 16, 64, 128, 512, 2048]
ALL = curves(**{name: 2 + 0.01 * k for k, name in enumerate(POSITIONS)})
LATE = {name: [[2.0, 1.8, 1.7, 2.5, 3.5], [2.0, 1.8, 1.9, 2.7, 4.5]] for name in POSITIONS}
LATE["learned"] = [[2.0, 1.9, 1.8, None, None]] * 2
WAVES = [6.28, 62.8, 628.0]
ABOVE = {"none": [0.5, 0.7], "xpos": [-0.02, -0.04]}
PLANES = {"stopped": [[0.1, 0.3, 0.0], [0.1, 0.1, 0.0]], "silenced": [[0.2, 0.1, 0.5]]}
RECALL = {
    name: [{"distance": [1, 2], "accuracy": [0.9, share]} for share in shares]
    for name, shares in (("none", (0.1, 0.3)), ("rope", (0.7, 0.9)))
}
FOUND = {
    "methods": {"none": [[1.0, 1.0, 0.9], [1.0, 1.0, 0.7]], "learned": [[1.0, 0.9, None]]},
    "bases": {"100": [[1.0, 0.5, 0.1]], "10,000": [[1.0, 1.0, 0.4]]},
}
ENDS = {"negative": [28], "lost": [119, 127], "lost too": [191]}
PADDED = torch.tensor([[-1, 0, 1], [0, 1, 2]])
COST = {"seconds": {"softmax": [1.0, 4.0, 16.0], "linear": [2.0, 4.0, None]}}
FLOORS = {"commonest": 0.16, "guessing": 1 / 16}
LOSSES = {"within": [[1.5, 1.7], [1.25, 1.25]], "beyond": [[3.0], [2.0]]}
ERRORS = {"one": [1e-3, 1e-2, 1e-1], "other": [1e-7, 1e-7, 1e-7]}
MAPS = [
    [[[1, 0, 0], [0.25, 0.75, 0], [0.1, 0.2, 0.7]], [[1, 0, 0], [1, 0, 0], [1, 0, 0]]],
    [[[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0.5, 0.5, 0], [0.123, 0.456, 0.421]]],
]
FAULTS = {
    "late": (range(5, 8), {"p": [7, 9, 12], "r": [8, 11, 13]}),
    "doubled": (range(9), {"p": [2 * m for m in range(9)], "r": [1.5 * m for m in range(9)]}),
}
HANDS = torch.tensor([[[1, 1j]], [[-1, 1]], [[1j, 1j]]], dtype=torch.complex128)  # 3 frames
PATH = torch.tensor([1 + 2j, 1.5 + 2j, 2.5 + 1j], dtype=torch.complex128)  # cells of 0.5
HALVES = torch.tensor([[0.25, 0.75], [0.75, 0.25]], dtype=torch.float64)
CALLS = {"dense": [12.0, 1.25], "halves": [4.5, 4.5]}, {"dense": [90.0, 18.0], "halves": [6.0, 7.0]}
DRAWINGS = {
    "map": intro.book_map,
    "bytes": lambda: from_maths_to_pytorch.time_against_bytes([6, 256], *CALLS),
    "seen from q": euler.seen_from_q,
    "two orders": lambda: why_position.two_orders("b", ["a b", "b a"], HALVES, HALVES),
    "one plane": two_layouts.one_plane,
    "pairing": lambda: two_layouts.pairing(8),
    "seen from the query": plane.seen_from_the_query,
    "falling": properties.falling,
    "angles met": lambda: longer_context.angles_met(
        0.01, {"as trained": 0.01, "PI": 0.0025, "long": 0.02}, trained=100, length=400
    ),
    "ellipses": why.ellipses,
    "errors": lambda: precision.error_by_position([16, 256, 4096], ERRORS),
    "lost": lambda: precision.angles_lost([0.0, 0.5, 0.001, 0.1], 64),
    "hands": lambda: axes.hands(THETA, 2, 3),
    "sections": lambda: axes.section_map(1e6, **ORDERS),
    "mrope": lambda: axes.mrope_ids(SEGMENTS),
    "faults": lambda: is_my_rope_right.positions_shown(
        FAULTS, {"late": "query-key-offset", "doubled": "frequencies"}
    ),
    "loss curves": lambda: training.loss_curves(ALL),
    "found by distance": lambda: finding_a_token.found_by_distance(
        FOUND, [31, 127, 255], 128, 1 / 16
    ),
    "predicted": lambda: finding_a_token.predicted(
        {"half": ([1.5, -2.0], [[1.0, 0.75], [1.0, 0.25]])}, [31, 255], {"100": ENDS}, 128
    ),
    "above RoPE": lambda: training.above_reference({"short": ABOVE, "long": ABOVE}),
    "cells": lambda: keys_that_move.cells(0.5, {3: (PATH, PATH[:1].expand(3)), 9: (PATH, PATH)}),
    "tiles": lambda: tiles(5, (18, 9), 4, (0, 2)),
    "decoding": lambda: decoding(7),
    "padded": lambda: attention.padded_picture(PADDED, PADDED[:, None] <= PADDED[:, :, None]),
    "cost": lambda: properties.cost_against_length([128, 256, 512], COST),
    "by plane": lambda: uses.by_plane(PLANES, WAVES, 128),
    "drop": lambda: uses.drop_by_plane({"far": (WAVES, [WAVES], [WAVES, WAVES])}),
    "base": lambda: uses.base_curve([100, 10_000], LOSSES, bound=4000),
    "by position": lambda: by_position(LATE, EDGES, 128),
    "undone": lambda: undone({"few": {"last": [0.5, 0.7], "random": [0.1, 0.1]}}, {"few": 1}),
}


@cache
def drawn(name):
    return DRAWINGS[name]()


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_fits_a_phone(name):
    made = drawn(name)
    assert not re.search(r"\bnan\b", made.svg + made.alt)
    assert "<image" not in made.svg  # its bytes would follow the machine's zlib
    narrowest = re.search(r"--rope-narrowest: (\d+)px", inline_svg(made.svg))
    assert int(narrowest[1]) <= 0.9 * 5.2 * 72 + 1  # ten-point text on 5.2 inches, shown at 9 px


SAID = {
    "two orders": [
        "a b: a 0.25, b 0.75; b becomes (0.25, 0.75).",
        "b a: b 0.75, a 0.25; b becomes (0.75, 0.25).",
    ],
    "loss curves": [
        "mean of 2 seeds",
        "After 40 steps, lowest first: no positions 2.000 (1.900 to 2.100)",
    ],
    "predicted": [
        "half: 31: 1.5, 1.00, 255: -2.0, 0.50. base 100: negative 28; lost 119, 127; lost too 191."
    ],
    "above RoPE": [
        "short: xPos -0.030 ± 0.127, no positions +0.600 ± 1.271",
        "Final loss minus RoPE's",
    ],
    "cells": [
        "Plane 3, 2 moves: the exact pair is in 3 cells and ends 3.0 cells right and 2.0 down; "
        "the stored one is in 1 and ends 0.0 cells right and 0.0 down.",
        "the stored one is in 3 and ends 3.0 cells right and 2.0 down.",
    ],
    "tiles": ["2 times 8 tiles of 4 tokens and 4 heads, 5 across for queries and 3 for keys"],
    "decoding": ["launches 9 kernels one after another, 7 of them the rotation's"],
    "padded": [
        "Row 0: slots 0 to 2 hold positions -1, 0, 1, the last one the next token's. In its mask "
        "6 of 9 cells are open; the lines of 0 slots are empty.",
        "Row 1: slots 0 to 2 hold positions 0, 1, 2,",
    ],
    "cost": [
        "softmax: 1 at 128, 16 at 512, at the end growing as S to the power 2.0",
        "linear: 2 at 128, 4 at 256, at the end growing as S to the power 1.0",
    ],
    "bytes": ["6, 256 vectors a position: dense (12.0, 90.0), (1.2, 18.0); halves (4.5, 6.0),"],
    "falling": ["plane 40 at 0.94, plane 50 at -1.00, plane 63 at 0.89, the mean at -0.09"],
    "angles met": [
        "from 0 to 0.99 radians: the angles of the distances in 100 tokens. In a text of 400, as "
        "trained: on to 3.99, new from 1.00; PI: to 1.00, none new; long: on to 7.98,"
    ],
    "by plane": [
        "stopped: 0.100, 0.200, 0.000; silenced: 0.200, 0.100, 0.500",
        "those of the planes from 2 on are longer than the trained 128",
    ],
    "base": ["within: 1.600 at 100, 1.250 at 10,000; beyond: 3.000 at 100"],
    "lost": [
        "of 4 planes 3 by more than 1/20 radian, 2 by more than 1/2 radian, 2 by more than half"
    ],
    "by position": [
        "learned 1.80, 1.80 from 64 to 128, where it ends",
        "RoPE 1.80, 4.00 from 512 to 2,048",
    ],
    "undone": ["few: expected 100%, last 60% ± 127%, random 10% ± 0%."],
}
WRITTEN = {
    "seen from q": {"area 3", "dot product 4"},
    "cells": {"plane 3, 2 moves", "plane 9, 2 moves", "exact", "stored"},
    "padded": {"−1", "row 0: slots", "row 1: slots", "slot of the query"},
    "two orders": {"a b: b becomes (0.25, 0.75)", "0.75", "weight of b"},
    "by position": {"learned (to 128)", "trained length 128"},
    "undone": {"few: last", "few: random", "share of the rise undone"},
    "base": {"bound 4,000"},
    "tiles": {"18 heads of queries", "9 of keys", "cos, sin"},
    "decoding": {"eager: 9 launches", "time, a scheme: lengths are chosen, not measured"},
}


@pytest.mark.parametrize("name", SAID)
def test_the_alternative_text_says_the_numbers_that_are_drawn(name):
    assert [words for words in SAID[name] if words not in drawn(name).alt] == []


@pytest.mark.parametrize("name", WRITTEN)
def test_a_drawing_names_what_it_draws(name):
    assert set(texts(drawn(name).svg)) >= WRITTEN[name]


def test_a_text_that_is_not_the_weights_is_refused():
    with pytest.raises(ValueError, match="text has 2 characters for 3 rows"):
        uses.attention_maps(MAPS, "ab")


STEPS = (0, 1, 2, 4, 8)
MASS = {"rope": {4: [0.5, 0.25, 0.25], 8: [0.4, 0.1, 0.2, 0.3]}, "learned": {4: [0.5, 0.5, 0.0]}}


@pytest.mark.parametrize(("method", "step", "far"), [("RoPE", 0, 0), ("RoPE", 1, 30)])
def test_the_far_keys_share_is_read_at_each_length(method, step, far):
    chart = attention_by_distance(MASS, STEPS, 4)
    svg = rendered(chart, method=method, read=str(4 * 2**step))
    assert f"from distance 4 on: {far}% (of the keys: {50 * step}%)" in svg
    assert f"{method}, {4 * 2**step} characters" in svg
    assert "RoPE: 30% from distance 4 on, at 8" in chart.to_dict()["description"]


@pytest.mark.parametrize("frame", [0, 1, 2])
def test_the_chosen_moves_are_drawn_and_their_errors_read(frame):
    """Solid hands turn, dashed ones stay where they were: both in the dial of their plane."""
    still = HANDS[:1].expand(3, -1, -1)
    off = torch.tensor([[0.0, 0.0], [0.002, 0.5], [0.003, 0.75]])
    chart = keys_that_move.hands([0, 40, 80], [3, 9], HANDS, still, off)
    svg = rendered(chart, s=40 * frame)
    once, steps = off[frame].tolist()
    assert texts(svg)[:2] == [
        f"— moved once: off by {once:.1%}", f"- - one by one: off by {steps:.0%}"
    ]  # fmt: skip
    assert texts(svg)[-2:] == ["3", "9"]
    ends = re.findall(r'"x: ([\d.]+); y: ([\d.]+); x2: ([\d.]+); y2: ([\d.]+)"', svg)
    hands = [complex(float(x2) - float(x), float(y) - float(y2)) for x, y, x2, y2 in ends]
    drawn_hands = torch.tensor(hands, dtype=torch.complex128) / keys_that_move.REACH
    expected = torch.cat((HANDS[frame, 0], still[frame, 0]))
    torch.testing.assert_close(drawn_hands, expected, rtol=0, atol=0.01)
    assert "after 80 moves, in degrees: plane 3 90, plane 9 0." in chart.to_dict()["description"]


def test_each_step_is_drawn_at_the_position_that_its_plane_shows():
    made = drawn("faults")
    assert {"a  late", "query-key-offset", "b  doubled", "frequencies"} <= {*texts(made.svg)}
    assert "a, late (query-key-offset): at 7 they show 12, 13, off by up to 5, 6;" in made.alt
    paths = re.findall(r'<path d="M ([^"]*?) " clip-path[^>]*stroke: (#\w+)', made.svg)
    heights = [
        (colour, [float(point.split()[1]) for point in path.split(" L ")]) for path, colour in paths
    ]
    lines = iter(line for line in heights if line[0] in (style.MUTED, *style.COLOURS))
    for given, planes in FAULTS.values():
        _, right = next(lines)  # the thin line gives the scale
        for shown, colour in zip(planes.values(), style.COLOURS, strict=False):
            drawn_in, stairs = next(lines)
            part = (np.array(stairs) - right[0]) / (right[-1] - right[0])
            steps = [step for step, _ in groupby((given[0] + part * (len(given) - 1)).round(1))]
            assert (drawn_in, steps) == (colour, shown)


@pytest.mark.parametrize(("m", "n", "shift"), [(0, 0, 0), (2, 8, 0), (2, 8, 30), (31, 4, 1)])
def test_turning_pair_draws_the_packages_score(m, n, shift):
    expected = score(np.array(plane.Q), np.array(plane.K), m, n, np.array([plane.THETA]))
    assert f"q · k = {expected:.3f}" in rendered(plane.turning_pair(), m=m, n=n, shift=shift)


@pytest.mark.parametrize(("angle", "stretch"), [(0, 1), (0.9, 1.2), (3.3, 0.4), (5.8, 1.4)])
def test_the_product_is_drawn_where_the_numbers_multiply(angle, stretch):
    svg = rendered(euler.product_of_numbers(), angle=angle, stretch=stretch)
    expected = cmath.rect(stretch, angle) * euler.W
    turn = cmath.phase(expected) % math.tau
    assert f"zw: length {abs(expected):.2f}, angle {turn:.2f}" in svg


@pytest.mark.parametrize(("m", "n"), [(2, 1), (5, 4), (12, 7)])
def test_the_ellipses_are_the_orbits_of_one_matrix(m, n):
    stretch = np.diag([2.0, 1.0])
    M = stretch @ rotation_matrix(1, [math.pi / 6]) @ np.linalg.inv(stretch)
    query, key = why.on_ellipses(m, n)
    power = np.linalg.matrix_power
    assert query == pytest.approx(power(np.linalg.inv(M).T, m) @ why.QUERY, abs=2**-44)
    assert key == pytest.approx(power(M, n) @ why.KEY, abs=2**-44)
    if m - n == 1:
        assert f"stays at {query @ key:.3f}" in drawn("ellipses").alt


@pytest.mark.parametrize("encoding", why.MOVES)
@pytest.mark.parametrize(("first", "second"), [(0.6, 0.7), (-0.5, 0.9)])
def test_the_third_key_lies_in_its_ring_unless_positions_are_added(encoding, first, second):
    shares, keys = np.array([first, second]), np.array([*why.KEYS.values()])
    here, places = np.vstack([keys, shares @ keys]), [*why.PLACES.values()]
    moved = here @ why.MOVES[encoding].T
    if encoding == why.ADDED:
        moved += [why.added(n + 1) - why.added(n) for n in places]
    miss = np.linalg.norm(shares @ moved[:2] - moved[2])
    assert (miss > 0.1) == (encoding == why.ADDED)
    svg = rendered(why.one_matrix(), encoding=encoding, first=first, second=second)
    assert f"off by {miss:.3f}" in texts(svg)


@pytest.mark.parametrize(
    ("block", "growth", "theta", "turns", "family"),
    [
        (0, 0, 0.6, 0, "on the circle: rotary"),
        (0, 0.1, 2.5, 1, "outside the circle"),
        (0, 0, 0, 0, "at 1: no position"),
        (1, 0, 0, 0, "twice at 1: ALiBi"),
        (1, -0.1, 0.6, 2, "inside the circle"),
    ],
)
def test_the_eigenvalues_dots_are_powers_of_the_matrix(block, growth, theta, turns, family):
    step = math.exp(growth) * rotation_matrix(1, [theta])
    M, e = (np.block([[step, np.eye(2)], [np.zeros((2, 2)), step]]), np.eye(4)) if block else (
        step, np.eye(2),
    )  # fmt: skip
    key = 0.25 * e[2] if block else e[0]
    svg = rendered(
        why.eigenvalue_map(), block=why.BLOCKS[block], growth=growth, theta=theta, turns=turns
    )
    assert family in texts(svg)
    dots = dict(re.findall(r'aria-label="n - m: (-?\d+); score: ([-\de.]+)"', svg))  # drawn last
    for r in range(-why.REACH, why.REACH + 1):
        expected = e[0] @ np.linalg.matrix_power(M, r) @ key
        if abs(expected) < 2.4:
            assert float(dots[str(r)]) == pytest.approx(expected, abs=1e-9)
    places = re.findall(r'aria-label="x: ([-\de.]+); y: ([-\de.]+)"', svg)
    found = [complex(float(x), float(y)) for x, y in places]
    for eigenvalue in np.linalg.eigvals(step):
        assert min(abs(eigenvalue - place) for place in found) < 1e-9


def shown(power, bits, place):
    """What the chart reads out: the angle, the rounded angle, both cosines, the error."""
    svg = rendered(precision.rounded_angle(), power=power, bits=bits, plane=place)
    pattern = r"angle (\S+), rounded (\S+) cosine (\S+), rounded (\S+) angle off by (\S+)"
    found = re.search(pattern, " ".join(texts(svg)))
    return [float(group) for group in found.groups()]


@pytest.mark.parametrize(
    ("bits", "dtype", "power", "place"),
    [
        (8, torch.bfloat16, 0, 0),
        (8, torch.bfloat16, 10.01, 2),
        (11, torch.float16, 13, 31),
        (24, torch.float32, 20, 1),
    ],
)
def test_the_chart_rounds_as_the_format_does(bits, dtype, power, place):
    m = round(2**power)
    angle, rounded, cosine, rounded_cosine, error = shown(power, bits, place)
    theta = torch.tensor(inverse_frequencies(precision.DIM, precision.BASE)[place])
    product = torch.tensor(float(m)).double().to(dtype).double() * theta.to(dtype).double()
    expected, true = product.to(dtype).item(), m * theta.item()  # PyTorch's casts, from float64
    assert angle == pytest.approx(true, rel=1e-6)  # seven digits are shown
    assert rounded == pytest.approx(expected, rel=1e-6)
    assert cosine == pytest.approx(np.cos(true), abs=6e-5)  # four decimals
    assert rounded_cosine == pytest.approx(np.cos(expected), abs=6e-5)
    assert error == pytest.approx(abs(expected - true), rel=0.06)  # two digits


def test_a_position_beyond_the_format_is_its_neighbour():
    assert round(2**8.006) == 257
    assert shown(8.006, 8, 0)[1] == 256
    assert shown(8.006, 9, 0)[1] == 257


@pytest.mark.parametrize(("dim", "logbase", "distance"), [(128, 4, 46), (16, 2, 4096)])
def test_the_mean_over_planes_is_read_at_the_chosen_distance(dim, logbase, distance):
    mean = np.cos(distance * inverse_frequencies(dim, 10.0**logbase)).mean()
    svg = rendered(properties.decay_chart(), d=dim, logbase=logbase, distance=distance)
    assert f"mean at {distance:,}: {mean:.3f}" in svg


LONG = tuple(1.0 + 1.3 * j for j in range(48))
SEARCHED = {"base": 10_000.0, "length": 4096, "factor": 32.0}


def spectrum(method, **sliders):
    return rendered(longer_context.spectrum(LONG, **SEARCHED), method=method, **sliders)


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
@pytest.mark.parametrize(("s", "power", "logbase"), [(8, 13, 5.7), (32, 9, 3.2)])
def test_every_plane_is_drawn_at_the_packages_ratio(method, s, power, logbase):
    svg = spectrum(method, factor=s, loglength=power, logbase=logbase)
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


def test_the_reading_follows_its_slider_and_stays_on_a_plane():
    expected = 9.0 ** (-80 / 126)  # plane 40 of 64
    svg = spectrum(longer_context.NTK, plane=40, factor=9)
    assert f"plane 40 has {expected:.3f} of its frequency" in svg
    assert "plane 47 has" in spectrum(longer_context.LONGROPE, plane=63)


@pytest.mark.parametrize("back", [1, 2])
def test_the_head_weighs_its_keys_by_the_packages_scores(back):
    theta = inverse_frequencies(many.DIM)
    phases = {f"phase_{j}": round(back * theta[j], 2) for j in range(3)}
    query, key = np.zeros(many.DIM), np.zeros(many.DIM)
    for j, phase in enumerate(phases.values()):
        query[2 * j], key[2 * j : 2 * j + 2] = 6.0, (math.cos(phase), math.sin(phase))
    scores = torch.tensor([score(query, key, many.LAST, n, theta) for n in range(many.LAST + 1)])
    weight = scores.softmax(0)[-1 - back]
    assert f"most at n - m = -{back}: {weight:.3f}" in rendered(many.head_score(), **phases)


def package_scores(theta, places):
    """Scores of the query at the origin with a key at each place, both (1, 0) in each plane."""
    cos, sin = axis_tables(places, theta, dtype=torch.float64)
    x = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64).expand(1, 1, places.shape[1], 4)
    keys = rope.rotary_embedding(x, cos, sin, interleaved=True)[0, 0]
    return keys @ x[0, 0, 0]


@pytest.mark.parametrize(
    "values", [axes.START, {"direction_0": 30, "wave_0": 5, "direction_1": 135, "wave_1": 9.5}]
)
def test_two_waves_draw_the_packages_scores_and_mixed_difference(values):
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
    by_formula = -4 * (theta[0].sin() * theta[1].sin()).sum().item()
    assert mixed == pytest.approx(by_formula, abs=2**-48)
    assert f"mixed difference: {mixed + 0.0:.3f}".replace("-0.000", "0.000") in svg


def test_the_page_leaves_the_blended_colours_alone():
    assert not set(axes.LOW_TO_HIGH) & set(THEME_COLOURS)


def test_hands_stand_at_the_angles_of_the_positions():
    line = r'd="M ([\d.]+) ([\d.]+)\s+L ([\d.]+) ([\d.]+) "[^>]*stroke: (#0072b2|#d55e00)'
    found = re.findall(line, drawn("hands").svg)
    ends = [[float(x) for x in hand[:4]] for hand in found]
    angles = [math.atan2(y0 - y1, x1 - x0) for x0, y0, x1, y1 in ends]  # y points down
    expected = [a for row in range(2) for column in range(3) for a in (0.5 * row, 0.3 * column)]
    # A hand is 24 points long; each of its four numbers is rounded to a hundredth of a point.
    assert angles == pytest.approx(expected, abs=4 * 0.005 / 24)


def test_attention_maps_draw_and_write_the_large_weights_only():
    one, other = torch.full((7, 7), 1 / 49), torch.zeros(7, 7)
    one[2, 2], other[2, 2], other[4, 4] = 0.5, 0.75, 0.25
    svg = axes.attention_maps(one_head=one, other_head=other).svg
    assert [word for word in texts(svg) if "." in word] == [".50", ".75", ".25"]
    assert {"one head", "other head"} <= set(texts(svg))
    corners = re.findall(r'd="M ([\d.]+) ([\d.]+)\s+L ([\d.]+) [^"]*" [^>]*fill: #0072b2', svg)
    areas = [(float(x1) - float(x0)) ** 2 for x0, _, x1 in corners]
    # Two sides of some 15 points, each of its ends rounded to a hundredth of a point.
    ratios = [area / areas[0] for area in areas]
    assert ratios == pytest.approx([1, 1.5, 0.5], rel=2 * 0.02 / min(areas) ** 0.5)


def marks(svg):
    """How many markers an SVG draws in each of the three axes' colours."""
    colours = ("#0072b2", "#d55e00", "#00936b")
    return [len(re.findall(f"<use [^>]*fill: {colour}", svg)) for colour in colours]


@pytest.mark.parametrize("name", ORDERS)
def test_section_map_has_a_mark_for_each_plane_of_each_axis(name):
    svg = axes.section_map(1e6, **{name: ORDERS[name]}).svg
    assert marks(svg) == [size + 1 for size in ORDERS[name][0]]  # and one in the legend


def test_mrope_picture_marks_each_token_three_times():
    assert marks(drawn("mrope").svg) == [mrope_position_ids(SEGMENTS).shape[1]] * 3


def test_the_map_links_each_chapter_of_the_table_of_contents():
    toc = (Path(__file__).parents[1] / "_toc.yml").read_text(encoding="utf-8")
    chapters = re.findall(r"file: chapters/(\w+)", toc.split("caption: Reference")[0])
    links = re.findall(r'xlink:href="(\w+)\.html"', drawn("map").svg)
    assert list(dict.fromkeys(links)) == [name for name in chapters if name != "intro"]


@pytest.mark.parametrize("name", ["loss curves", "by position"])
def test_labels_at_the_ends_of_lines_do_not_collide(name):
    found = re.findall(r'<text [^>]*?y="([\d.]+)"[^>]*>([^<]+)</text>', drawn(name).svg)
    ends = [float(y) for y, words in found if words.split(" (")[0] in map(label, POSITIONS)]
    assert len(ends) == len(POSITIONS)
    # The layout moves the axes a little after the labels.
    assert min(b - a for a, b in pairwise(sorted(ends))) > LINE_HEIGHT - 1


def test_loss_curves_are_sorted_and_of_equal_steps():
    odd = curves(none=2.5, rope=1.5)
    words = texts(training.loss_curves(odd).svg)
    assert words.index("RoPE") < words.index("no positions")
    odd["rope"][1] = {"step": [0, 10, 40], "loss": [4.0, 3.0, 2.0]}
    with pytest.raises(ValueError, match="seeds of 'rope' do not share their values of 'step'"):
        training.loss_curves(odd)


@pytest.mark.parametrize(
    ("method", "t", "words"),
    [
        ("RoPE", 2, "0.80 right (seeds 0.70 to 0.90)"),
        ("no positions", 2, "0.20 right (seeds 0.10 to 0.30)"),
        ("no positions", 1, "0.90 right (seeds 0.90 to 0.90)"),
    ],
)
def test_recall_reads_the_chosen_method_at_the_chosen_question(method, t, words):
    losses = curves(none=2.7, rope=0.5)
    chart = finding_a_token.recall(RECALL, losses, FLOORS, 2.77)
    svg = rendered(chart, method=method, t=t)
    assert words in texts(svg)
    assert f"{method} is asked for the symbol {2 * t - 1} places back:" in texts(svg)
    said = chart.to_dict()["description"]
    assert "commonest 0.16, guessing 0.06" in said
    assert "no positions 0.55; RoPE 0.85" in said


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (0, 1), (1, 1)])
def test_the_chart_draws_the_chosen_head(layer, head):
    chart = uses.attention_maps(MAPS, "a b")
    svg = rendered(chart, layer=layer, head=head)
    found = re.findall(r'aria-label="key: (\d); query: (\d); weight: ([\d.]+)"', svg)
    chosen = MAPS[layer][head]
    assert {(int(m), int(n)): float(weight) for n, m, weight in found} == {
        (m, n): chosen[m][n] for m in range(3) for n in range(m + 1)
    }
    back = sum(w * (m - n) for m, row in enumerate(chosen) for n, w in enumerate(row)) / 3
    assert f"layer {layer}, head {head}: looks back {back:.1f} on average" in svg
    assert svg.count(">·</text>") == 2
    said = chart.to_dict()["description"]
    assert "head 0 of layer 1 looks back the least, by 0.0 characters" in said
    assert "head 1 of layer 0 the most, by 1.0" in said


SIZES = {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def roof_read(**values):
    """What the chart reads out: peak, rate, ridge, intensity, share of the peak in percent."""
    text = " ".join(texts(rendered(roofline(), **values)))
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
    found = roof_read(arithmetic=arithmetic, memory=memory, e=e, moved=moved)
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


def test_the_tile_of_a_program_is_filled_and_its_rows_of_the_tables():
    svg = tiles(5, (18, 9), 4, (1, 7)).svg  # token 4, key head 8
    assert len(re.findall(r"<path [^>]*fill: #b97f00", svg)) == 2
    assert len(re.findall(r"<path [^>]*fill: #b97f00", drawn("tiles").svg)) == 4 * 4 + 4


@pytest.mark.parametrize("recorded", [False, True])
def test_no_kernel_starts_before_its_launch_or_the_end_of_the_one_before(recorded):
    host, device = step(3, recorded)
    ends = [start + length for start, length, _ in host]
    assert len(host) == (1 if recorded else len(device))
    assert all(b[0] > a[0] + a[1] for a, b in pairwise(device))
    assert all(box[0] > end for box, end in zip(device, ends, strict=False))


def test_readme_opens_with_its_picture_which_moves_as_the_scores_do():
    root = Path(__file__).parents[1]
    file = "rope/book/figures/static/readme.svg"
    svg = intro.readme()
    assert (root / file).read_text(encoding="utf-8") == svg
    assert re.search(rf"^!\[.{{50,}}\]\({file}\)$", (root / "README.md").read_text("utf-8"), re.M)
    steps, q, k, theta = range(25), plane.Q, plane.K, [plane.THETA]
    alone = [score(q, k, 24, n, theta) for n in steps]
    frames = dict(re.findall(r"@keyframes (\w+)\{(.*)\}", svg))
    turned = [float(x) for x in re.findall(r"rotate\((\S+?)deg\)", frames["turn"])]
    assert turned == pytest.approx([-math.degrees(n * plane.THETA) for n in steps], abs=0.051)
    swung = [float(x) for x in re.findall(r"scale\(1,(\S+?)\)", frames["swing"])]
    assert swung == pytest.approx(alone, abs=0.00051)
    for n in steps:
        stays = score(q, k, n + 9, n, theta)
        assert f'transform="scale(1 {stays:.3f})"' in svg
        assert f"m = {n + 9}, n = {n}: q · k = {stays:.2f}<" in svg
        assert f"m = 24, n = {n}: q · k = {alone[n]:.2f}<".replace("-", "−") in svg
    # Where nothing moves, both halves are at n = 15.
    assert svg.count(f'class="turn" transform="rotate({turned[15]})"') == 2
    assert f'class="swing" transform="translate(120,0) scale(1,{swung[15]:.3f})"' in svg
    assert "prefers-reduced-motion:no-preference" in svg
