"""The explorer's data: the model's own vectors, and what is refused."""

import json
import re

import pytest
import torch

from rope.extensions import YaRN
from rope.figures.explorer import explorer, stored, vectors
from rope.training import Decoder, Experiment
from rope.training.inside import scores

SMALL = Experiment(layers=2, width=16, heads=2, context=8)
TOKENS = torch.arange(8)
START = {"layer": 0, "head": 1, "query": 5, "key": 2}


def made(model=None, text="abcdefgh", **changed):
    model = model or Decoder(SMALL, tokens=8)
    settings = {"stretches": {}, "start": START, "questions": [], "alt": "A figure."} | changed
    return explorer(model, text, TOKENS, **settings)


def test_it_holds_the_vectors_before_the_rotation():
    model = Decoder(SMALL, tokens=8)
    q, k = stored(made(model).data)
    assert q.shape == k.shape == (2, 2, 8, 8) and q.dtype == torch.float16
    assert torch.equal(q, vectors(model, TOKENS)[0])
    at_zero = (q[1, :, 0] * k[1, :, 0]).float().sum(dim=-1) / 8**0.5  # position 0 rotates nothing
    torch.testing.assert_close(
        at_zero, scores(model, TOKENS[None], 1)[0, :, 0, 0], atol=1e-2, rtol=0
    )


def test_its_page_holds_its_data_and_asks_for_nothing():
    stretched = made(
        text="a</scr>h", stretches={"YaRN": YaRN(4.0, 8, beta_fast=1.0, beta_slow=0.1)}
    )
    bundle = stretched._repr_mimebundle_()
    page = bundle["text/html"]
    inside = re.search(r'<script type="application/json">(.*?)</script>', page, re.S)[1]
    assert json.loads(inside) == stretched.data
    assert len(stretched.data["stretches"]) == 2 and stretched.data["stretches"][1]["scale"] > 1
    assert not re.search(r"(src|href)=|https?:|\bfetch\(", page)
    assert bundle["text/plain"] == "Figure: A figure."


@pytest.mark.parametrize(
    ("model", "text", "sentence"),
    [
        (None, "abc", "text has 3 characters and tokens 8"),
        (Decoder(Experiment(position="none", width=16, heads=2), 8), "abcdefgh", "position is"),
        (Decoder(Experiment(interleaved=True, width=16, heads=2), 8), "abcdefgh", "interleaved is"),
        (Decoder(Experiment(position="partial", width=32, heads=2), 8), "abcdefgh", "8 of 16"),
    ],
)  # fmt: skip
def test_what_it_cannot_show_is_refused(model, text, sentence):
    with pytest.raises(ValueError, match=sentence):
        made(model, text)
