"""Compare the explorer's model, run in Node, with the package, and check its page."""

import json
import math
import re
import shutil
import subprocess
from functools import cache

import nbformat
import pytest
import torch
from conftest import ROOT, give_up

import rope
from rope.book.figures import explorer as figure
from rope.extensions import NTK, Linear, YaRN
from rope.layouts import interleaved_to_half

EXTENSIONS = [None, Linear(2.0), NTK(2.0), YaRN(2.0, 8192)]
START = {"head": 0, "query": 15, "key": 14, "shift": 0, "stretch": 0, "layout": 0}
STATES = [
    START | {"distance": 1, "shift": 1000},
    START | {"distance": 16_000, "stretch": 2, "head": 3},
    START | {"distance": 500, "stretch": 3, "shift": 17, "query": 29},
    START | {"distance": 10, "head": 4, "key": 5},  # has a subnormal float16
    START | {"distance": 8191, "head": 2},
    START | {"distance": 8192, "head": 5, "query": 29, "key": 0},
    START | {"distance": 10, "query": 10, "key": 0, "stretch": 1},
    START | {"distance": 0, "query": 0, "key": 0},
]
CALLS = """
const { data, states } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const model = ropeModel(data);
const across = (d) => 100 * Math.log2(1 + d); // up to 47 three pixels apart or more
console.log(JSON.stringify(states.map((state) => ({
    ...model.positions(state), score: model.score(state), weights: model.weights(state),
    hands: model.hands(state), curve: model.curve(state),
    rotated: [true, false].map((layout) => ["q", "k"].map((x) => model.rotated(state, x, layout))),
    bins: ropeBins(model.curve(state), across),
}))));
"""


@cache
def stored_figure():
    """Return the figure as the chapter stores it, and its data."""
    notebook = nbformat.read(ROOT / "chapters/explorer.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pages = [output.get("data", {}).get("text/html", "") for output in outputs]
    (page,) = [page for page in pages if "rope-explorer" in page]
    return page, data_of(page)


def data_of(page):
    return json.loads(re.search(r'"application/json">(.*?)</script>', page, re.S)[1])


def computed(state):
    """Return the values that the figure must show in a state, from the package in float64."""
    extension = EXTENSIONS[state["stretch"]]
    inv_freq = rope.inverse_frequencies(64, 100_000.0, extension=extension)
    scale = extension.attention_scaling if extension else 1.0
    q, k = (x[state["head"]].double() for x in figure.stored(stored_figure()[1]))
    query, key, distance = (state[name] for name in ("query", "key", "distance"))

    def rotated(x, positions):
        tables = rope.rotary_tables(positions, inv_freq, dtype=torch.float64, scale=scale)
        return rope.rotary_embedding(x[None, None], *tables, interleaved=True)[0, 0]

    m = max(query + state["shift"], distance)
    places = m - query + torch.arange(query + 1)
    places[key] = m - distance
    q_m, k_n = rotated(q[[query]], torch.tensor([m])), rotated(k[: query + 1], places)
    scores = k_n @ q_m[0] / 8
    pairs = torch.stack([q_m[0], k_n[key]])
    q_j, k_j = torch.view_as_complex(pairs.view(2, 32, 2))
    q_far = rotated(q[[query]].expand(16_385, -1), torch.arange(16_385))
    theta, turn = rope.inverse_frequencies(64, 100_000.0), 2 * math.pi
    return {
        "m": m,
        "n": m - distance,
        "score": scores[key],
        "weights": scores.softmax(dim=0),
        "hands": q_j.conj() * k_j / 8,
        "new": (distance * inv_freq % turn > 8191 * theta) & (8192 * theta < turn),
        "rotated": torch.stack([pairs, interleaved_to_half(pairs)]),
        "curve": q_far @ rotated(k[[key]], torch.tensor([0]))[0] / 8,
    }


def close(shown, expected, atol=1e-9):
    shown = torch.as_tensor(shown, dtype=torch.float64)
    torch.testing.assert_close(shown, torch.as_tensor(expected).double(), rtol=0, atol=atol)


@pytest.fixture(scope="module")
def shown():
    """Return the results of the explorer's model, run in Node, for each state."""
    node = shutil.which("node")
    if node is None:
        give_up("node, which runs the explorer's model, is not in the PATH")
    script = (figure.STATIC / "explorer_model.js").read_text(encoding="utf-8") + CALLS
    request = json.dumps({"data": stored_figure()[1], "states": STATES})
    done = subprocess.run([node, "-e", script], input=request, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(STATES)))
def test_the_model_gives_what_the_package_computes(shown, number):
    actual, expected = shown[number], computed(STATES[number])
    for name in ("m", "n", "score", "weights", "rotated", "curve"):
        close(actual[name], expected[name])
    for hand, plane in zip(actual["hands"], expected["hands"].tolist(), strict=True):
        assert hand["share"] == pytest.approx(plane.real, abs=1e-9)
        assert hand["length"] * math.sin(hand["angle"]) == pytest.approx(plane.imag, abs=1e-9)
    assert [not hand["inside"] for hand in actual["hands"]] == expected["new"].tolist()


def test_a_point_of_the_curve_holds_the_scores_within_three_pixels(shown):
    curve, bins = shown[0]["curve"], shown[0]["bins"]
    groups = [range(point["first"], point["last"] + 1) for point in bins]
    assert [distance for group in groups for distance in group] == list(range(16_385))
    assert [len(group) for group in groups[:48]] == [1] * 48
    for group, point in zip(groups, bins, strict=True):
        assert 100 * math.log2((1 + group[-1]) / (1 + group[0])) < 3
        some = curve[group.start : group.stop]
        assert (point["most"], point["least"]) == (max(some), min(some))
        assert point["mean"] == pytest.approx(sum(some) / len(some), abs=1e-12)


def test_its_page_holds_its_data_and_loads_nothing():
    yarn = YaRN(4.0, 8, beta_fast=1.0, beta_slow=0.1)
    q, k = torch.arange(12.0).view(3, 4), -torch.arange(12.0).view(3, 4)
    settings = {"stretches": {"YaRN": yarn}, "start": {}, "questions": [], "alt": "A figure."}
    heads = {"first": (q, k), "second": (2 * q, 3 * k)}
    chart = figure.explorer(["a", "</scr>", "h"], heads, base=100.0, trained=8, **settings)
    page = chart.html()
    assert data_of(page) == chart.data
    close(figure.stored(chart.data)[0], torch.stack([q, 2 * q]))
    close(figure.stored(chart.data)[1], torch.stack([k, 3 * k]))
    plain, stretched = chart.data["stretches"]
    assert plain == {"name": "none", "inv_freq": [1.0, 0.1], "scale": 1.0}
    assert stretched["scale"] == yarn.attention_scaling
    assert not re.search(r"(src|href)=|https?:|\bfetch\(", page)
