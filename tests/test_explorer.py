"""The explorer's data: the model's own vectors, and what is refused."""

import json
import re

import pytest
import torch

import rope
from rope.book.figures.explorer import explorer, stored
from rope.book.training import Decoder, Experiment
from rope.book.training.inside import scores
from rope.extensions import YaRN

SMALL = Experiment(layers=3, width=24, heads=2, context=8)  # 3 layers, 2 heads, S = 8, D = 12
TOKENS = torch.arange(8)
START = {"layer": 0, "head": 1, "query": 5, "key": 2}


def made(model=None, text="abcdefgh", **changed):
    model = model or Decoder(SMALL, tokens=8)
    settings = {"stretches": {}, "start": START, "questions": [], "alt": "A figure."} | changed
    return explorer(model, text, TOKENS, **settings)


def test_it_holds_the_vectors_before_the_rotation():
    model = Decoder(SMALL, tokens=8)
    q, k = (x.double() for x in stored(made(model).data))
    assert q.shape == k.shape == (3, 2, 8, 12)
    tables = rope.rotary_tables(8, rope.inverse_frequencies(12), dtype=torch.float64)
    for layer in range(3):
        own = scores(model, TOKENS[None], layer)[0].double()
        q_m, k_n = (rope.rotary_embedding(x[layer][None], *tables)[0] for x in (q, k))
        size = q_m.norm(dim=-1)[..., None] * k_n.norm(dim=-1)[:, None] / 12**0.5
        seen = own.isfinite()
        off = (q_m @ k_n.mT / 12**0.5 - own).abs()
        assert (off <= 2.5 * 2.0**-11 * size)[seen].all()  # two factors in half precision


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
