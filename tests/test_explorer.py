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
from rope.book.training import Decoder, Experiment
from rope.extensions import NTK, Linear, YaRN
from rope.layouts import half_to_interleaved

EXTENSIONS = [None, Linear(4.0), NTK(4.0), YaRN(4.0, 128)]
START = {"layer": 1, "head": 2, "query": 43, "key": 42, "distance": 1, "shift": 0, "stretch": 0}
STATES = [
    START,
    START | {"shift": 1000},
    START | {"distance": 500, "stretch": 2},
    START | {"distance": 500, "stretch": 3, "shift": 17, "query": 112},  # has a subnormal float16
    START | {"distance": 127},
    START | {"distance": 128, "layer": 3, "head": 3, "query": 127, "key": 0},
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
    rotated: [false, true].map((layout) => ["q", "k"].map((x) => model.rotated(state, x, layout))),
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
    inv_freq = rope.inverse_frequencies(32, extension=extension)
    scale = extension.attention_scaling if extension else 1.0
    q, k = (x[state["layer"], state["head"]].double() for x in figure.stored(stored_figure()[1]))
    query, key, distance = (state[name] for name in ("query", "key", "distance"))

    def rotated(x, positions):
        tables = rope.rotary_tables(positions, inv_freq, dtype=torch.float64, scale=scale)
        return rope.rotary_embedding(x[None, None], *tables)[0, 0]

    m = max(query + state["shift"], distance)
    places = m - query + torch.arange(query + 1)
    places[key] = m - distance
    q_m, k_n = rotated(q[[query]], torch.tensor([m])), rotated(k[: query + 1], places)
    scores = k_n @ q_m[0] / 32**0.5
    half = torch.stack([q_m[0], k_n[key]])
    q_j, k_j = torch.complex(*half.chunk(2, dim=-1))
    q_far = rotated(q[[query]].expand(513, -1), torch.arange(513))
    theta, turn = rope.inverse_frequencies(32), 2 * math.pi
    return {
        "m": m,
        "n": m - distance,
        "score": scores[key],
        "weights": scores.softmax(dim=0),
        "hands": q_j.conj() * k_j / 32**0.5,
        "new": (distance * inv_freq % turn > 127 * theta) & (128 * theta < turn),
        "rotated": torch.stack([half, half_to_interleaved(half)]),
        "curve": q_far @ rotated(k[[key]], torch.tensor([0]))[0] / 32**0.5,
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
    assert [distance for group in groups for distance in group] == list(range(513))
    assert [len(group) for group in groups[:48]] == [1] * 48
    for group, point in zip(groups, bins, strict=True):
        assert 100 * math.log2((1 + group[-1]) / (1 + group[0])) < 3
        some = curve[group.start : group.stop]
        assert (point["most"], point["least"]) == (max(some), min(some))
        assert point["mean"] == pytest.approx(sum(some) / len(some), abs=1e-12)


def test_its_page_holds_its_data_and_loads_nothing():
    yarn = YaRN(4.0, 8, beta_fast=1.0, beta_slow=0.1)
    model = Decoder(Experiment(width=32, heads=2, context=8), tokens=8)
    settings = {"stretches": {"YaRN": yarn}, "start": {}, "questions": [], "alt": "A figure."}
    chart = figure.explorer(model, "a</scr>h", torch.arange(8), **settings)
    page = chart.html()
    assert data_of(page) == chart.data
    assert chart.data["stretches"][1]["scale"] == yarn.attention_scaling
    assert not re.search(r"(src|href)=|https?:|\bfetch\(", page)
