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

INV_FREQ = rope.inverse_frequencies(64, 100_000.0)
STATES = [
    {"head": 0, "query": 15, "key": 14, "distance": 1},
    {"head": 3, "query": 15, "key": 14, "distance": 16_000},
    {"head": 1, "query": 29, "key": 14, "distance": 500},
    {"head": 2, "query": 15, "key": 14, "distance": 8191},
    {"head": 5, "query": 29, "key": 0, "distance": 8192},
    {"head": 4, "query": 0, "key": 0, "distance": 0},
]
CALLS = """
const { data, states } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const model = ropeModel(data);
console.log(JSON.stringify({ stops: ROPE_STOPS, states: states.map((state) => ({
    score: model.score(state), weights: model.weights(state), hands: model.hands(state),
    curve: model.curve(state, ROPE_STOPS),
}))}));
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


def rotated(x, positions):
    """Return vectors `[S, D]` rotated to their positions."""
    tables = rope.rotary_tables(torch.as_tensor(positions), INV_FREQ, dtype=torch.float64)
    return rope.rotary_embedding(x[None, None], *tables, interleaved=True)[0, 0]


def computed(state):
    """Return the values that the figure must show in a state, from the package in float64."""
    q, k = (x[state["head"]].double() for x in figure.stored(stored_figure()[1]))
    query, key, distance = (state[name] for name in ("query", "key", "distance"))
    m = max(query, distance)
    places = m - query + torch.arange(query + 1)
    places[key] = m - distance
    q_m, k_n = rotated(q[[query]], [m]), rotated(k[: query + 1], places)
    scores = k_n @ q_m[0] / 8
    q_j, k_j = (torch.view_as_complex(x.view(32, 2)) for x in (q_m[0], k_n[key]))
    turn = 2 * math.pi
    new = (distance * INV_FREQ % turn > 8191 * INV_FREQ) & (turn > 8192 * INV_FREQ)
    return {
        "score": scores[key],
        "weights": scores.softmax(dim=0),
        "hands": q_j.conj() * k_j / 8,
        "new": new,
    }


def close(shown, expected, atol=1e-9):
    shown = torch.as_tensor(shown, dtype=torch.float64)
    torch.testing.assert_close(shown, torch.as_tensor(expected).double(), rtol=0, atol=atol)


@pytest.fixture(scope="module")
def shown():
    """Return the distances on the slider, and the results of the explorer's model, run in Node."""
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
    actual, state = shown["states"][number], STATES[number]
    expected = computed(state)
    close(actual["score"], expected["score"])
    close(actual["weights"], expected["weights"])
    for hand, plane in zip(actual["hands"], expected["hands"].tolist(), strict=True):
        assert hand["share"] == pytest.approx(plane.real, abs=1e-9)
        assert hand["length"] * math.sin(hand["angle"]) == pytest.approx(plane.imag, abs=1e-9)
    assert [not hand["inside"] for hand in actual["hands"]] == expected["new"].tolist()
    close(actual["curve"], [computed(state | {"distance": d})["score"] for d in shown["stops"]])


def test_the_slider_reaches_each_short_distance_and_twice_the_trained_length(shown):
    stops = shown["stops"]
    assert stops[:65] == [*range(65)] and stops[-1] == 16_384
    assert stops == sorted({*stops})


def test_its_page_holds_its_data_and_loads_nothing():
    q, k = torch.arange(12.0).view(3, 4), -torch.arange(12.0).view(3, 4)
    heads = {"first": (q, k), "second": (2 * q, 3 * k)}
    settings = {"trained": 8, "start": {}, "questions": [], "alt": "A figure."}
    chart = figure.explorer(["a", "</scr>", "h"], heads, torch.tensor([1.0, 0.5]), **settings)
    page = chart.html()
    assert data_of(page) == chart.data
    assert chart.data["inv_freq"] == [1.0, 0.5]
    close(figure.stored(chart.data)[0], torch.stack([q, 2 * q]))
    close(figure.stored(chart.data)[1], torch.stack([k, 3 * k]))
    assert not re.search(r"(src|href)=|https?:|\bfetch\(", page)
