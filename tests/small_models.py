"""Small models and texts for the tests of `rope.book.training`."""

import random
from dataclasses import replace

import torch
from strategies import normal

from rope.book.training import Decoder

TOKENS = 11


def sharp(experiment, **changes):
    """A model with large weights of every kind, whose attention prefers some keys clearly."""
    model = Decoder(replace(experiment, **changes), TOKENS)
    with torch.no_grad():
        for seed, (name, weight) in enumerate(model.named_parameters()):
            if weight.dim() == 2 and not name.startswith("embedding"):
                weight.copy_(normal(weight.shape, seed, torch.float32) / 2)
    return model


def heard(model, inputs, layer=0):
    """What a layer's attention was called with, and what it gave: x, places, result."""
    caught = []
    handle = model.blocks[layer].attention.register_forward_hook(
        lambda _, arguments, result: caught.append((*arguments, result))
    )
    with torch.no_grad():
        model(inputs)
    handle.remove()
    return caught[0]


def lines(count, seed):
    """So many random letters, in words and lines."""
    return "".join(random.Random(seed).choices("abcdefgh \n", k=count))


def random_text(sequences=3, length=24, seed=0):
    """int64 `[sequences, length]`."""
    drawn = torch.Generator().manual_seed(seed)
    return torch.randint(TOKENS, (sequences, length), generator=drawn)
