"""What a model writes: a loop of our own, and the odds that it says."""

import math

import numpy as np
import pytest
import torch
from strategies import normal

from rope.training import Decoder, Experiment
from rope.training.corpus import corpus_of
from rope.training.generate import write

SMALL = Experiment(layers=2, width=16, heads=2, context=16)
CORPUS = corpus_of("hello world. " * 4)


def sharp(position):
    """A model with large weights, which is sure of what comes next."""
    model = Decoder(Experiment(**{**SMALL.as_dict(), "position": position}), len(CORPUS.vocabulary))
    with torch.no_grad():
        for seed, weight in enumerate(model.blocks.parameters()):
            weight.copy_(normal(weight.shape, seed, torch.float32) / 2)
        model.head.weight.copy_(normal(model.head.weight.shape, 0, torch.float32))
    return model


@pytest.mark.parametrize("position", ["learned", "rope", "t5"])
@torch.no_grad()
def test_the_likeliest_text_is_what_a_loop_writes(position):
    """Past the context, too: the last 16 characters, at positions 0 ... 15."""
    model, text = sharp(position), "hello"
    written = write(model, CORPUS, text, 20, temperature=0)
    for _ in range(20):
        row = [CORPUS.vocabulary.index(character) for character in text[-16:]]
        text += CORPUS.vocabulary[model(torch.tensor([row]))[0, -1].argmax()]
    assert written == text


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_what_is_written_follows_the_models_odds(temperature):
    """Over 2,000 characters: the softmax of logits over temperature, to five standard errors."""
    model, logits = sharp("rope"), torch.linspace(0, 2, len(CORPUS.vocabulary))
    model.forward = lambda tokens: logits.expand(1, tokens.shape[1], -1)
    odds = np.exp(logits.double().numpy() / temperature)
    odds /= odds.sum()
    written = write(model, CORPUS, "h", 2000, temperature=temperature)[1:]
    for character, p in zip(CORPUS.vocabulary, odds, strict=True):
        assert abs(written.count(character) / 2000 - p) < 5 * math.sqrt(p * (1 - p) / 2000)
    again, other = (write(model, CORPUS, "h", 40, seed=s, temperature=temperature) for s in (0, 1))
    assert again[1:] == written[:40] and other != again


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (dict(prompt=""), ValueError, "prompt is ''"),
        (dict(prompt=7), TypeError, "prompt is 7"),
        (dict(prompt="hex"), ValueError, "'x', which the corpus does not"),
        (dict(length=-1), ValueError, "length is -1"),
        (dict(length=1.0), TypeError, "length is 1.0"),
        (dict(temperature=-0.1), ValueError, "temperature is -0.1"),
        (dict(temperature=math.nan), ValueError, "temperature is nan"),
        (dict(seed="a"), TypeError, "seed is 'a'"),
        (dict(model=Decoder(SMALL, 5)), ValueError, "holds token 8; the model knows 5"),
    ],
)
def test_what_cannot_be_written_is_refused(given, error, words):
    usual = dict(model=Decoder(SMALL, 9), corpus=CORPUS, prompt="world", length=1)
    with pytest.raises(error, match=words):
        write(**{**usual, **given})
