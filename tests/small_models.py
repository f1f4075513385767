"""Provide small models and texts for the tests of `rope.book.training`."""

import math
import random
from dataclasses import replace

import torch
from strategies import normal

from rope.book.training import Decoder

TOKENS = 11


def sharp(experiment, **changes):
    """Return a model with large weights, whose attention clearly prefers some keys."""
    model = Decoder(replace(experiment, **changes), TOKENS)
    with torch.no_grad():
        for seed, (name, weight) in enumerate(model.named_parameters()):
            if weight.dim() == 2 and not name.startswith("embedding"):
                weight.copy_(normal(weight.shape, seed, torch.float32) / 2)
    return model


def heard(model, inputs, layer=0):
    """Run the model; return what a layer's attention got and returned: x, places, result."""
    caught = []
    handle = model.blocks[layer].attention.register_forward_hook(
        lambda _, arguments, result: caught.append((*arguments, result))
    )
    with torch.no_grad():
        model(inputs)
    handle.remove()
    return caught[0]


def heads(model, text, layer=0):
    """Return a layer's unrotated q, k, v, float64 `[B, H, S, D]`, and its `places` argument."""
    x, places, _ = heard(model, text, layer)
    project = model.blocks[layer].attention.project.weight.detach().double()
    split = (x.double() @ project.T).unflatten(-1, (3, model.experiment.heads, -1))
    return *split.permute(2, 0, 3, 1, 4), places


def exact_scores(model, text, layer=0, **changed):
    """Return the scores by the definition, in float64; changed: fields of `places` to replace."""
    q, k, _, places = heads(model, text, layer)
    places, interleaved = places._replace(**changed), model.experiment.interleaved
    q, k = turned(q, places.query, interleaved), turned(k, places.key, interleaved)
    score = q @ k.mT / math.sqrt(q.shape[-1])
    return score if places.bias is None else score + places.bias.double()


def lines(count, seed):
    """Return `count` random letters, spaces and line breaks."""
    return "".join(random.Random(seed).choices("abcdefgh \n", k=count))


def random_text(sequences=3, length=24, seed=0):
    """Return random tokens, int64 `[sequences, length]`."""
    drawn = torch.Generator().manual_seed(seed)
    return torch.randint(TOKENS, (sequences, length), generator=drawn)


def plain_logits(model, tokens, position_ids):
    """Return the decoder's logits by its definition, float64 `[B, S, tokens]`.

    The position method itself provides the tables, biases and added vectors; other tests check
    them.
    """
    made, places = model.experiment, model.positions(position_ids)
    weight = {name: value.detach().double() for name, value in model.named_parameters()}
    root, ahead = math.sqrt(made.width), torch.ones(2 * tokens.shape[1:]).triu(1).bool()

    def norm(x, gain):
        eps = torch.finfo(torch.float32).eps  # RMSNorm's default for float32 weights
        return x * (x.square().mean(dim=-1, keepdim=True) + eps).rsqrt() * weight[gain]

    x = weight["embedding.weight"][tokens] * root
    if places.added is not None:
        x = x + places.added.detach().double()
    for layer in range(made.layers):
        at = f"blocks.{layer}"
        projected = (
            norm(x, f"{at}.before_attention.weight") @ weight[f"{at}.attention.project.weight"].T
        )
        q, k, v = projected.unflatten(-1, (3, made.heads, -1)).permute(2, 0, 3, 1, 4)
        if made.attention == "linear":
            q, k = (torch.where(y > 0, y + 1, y.exp()) for y in (q, k))
        total = (q @ k.mT).masked_fill(ahead, 0).sum(dim=-1, keepdim=True)
        q, k = turned(q, places.query, made.interleaved), turned(k, places.key, made.interleaved)
        if made.attention == "linear":
            share = (q @ k.mT).masked_fill(ahead, 0) / total
        else:
            bias = 0 if places.bias is None else places.bias.detach().double()
            score = q @ k.mT / math.sqrt(made.head_dim) + bias
            share = score.masked_fill(ahead, -math.inf).softmax(dim=-1)
        mixed = (share @ v).transpose(1, 2).flatten(2)
        x = x + mixed @ weight[f"{at}.attention.out.weight"].T
        hidden = norm(x, f"{at}.before_mlp.weight") @ weight[f"{at}.up.weight"].T
        hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
        x = x + hidden @ weight[f"{at}.down.weight"].T
    return norm(x, "norm.weight") @ weight["head.weight"].T


def turned(x, tables, interleaved):
    """Return x `[B, H, S, D]` with its first 2 * planes coordinates multiplied by cos + i sin."""
    if tables is None:
        return x
    turn = torch.complex(*(table.double() for table in tables))  # [S, R/2]
    planes = turn.shape[-1]
    shape, axis = ((planes, 2), -1) if interleaved else ((2, planes), -2)
    pairs = x[..., : 2 * planes].unflatten(-1, shape)
    product = torch.complex(*pairs.unbind(axis)) * turn
    parts = torch.stack((product.real, product.imag), dim=axis).flatten(-2)
    return torch.cat((parts, x[..., 2 * planes :]), dim=-1)
