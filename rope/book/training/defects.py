"""Put known mistakes into a trained model to measure their cost: chapter "Is my RoPE right?".

Some mistakes come from published implementations, others are slips in the formula. Each mistake
lasts only inside a `with` block; the weights never change.

Shapes: S sequence, R rotated width. Angles in radians.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rope.book.training.decoder import Attention, Block, Decoder
from rope.book.training.positions import Decaying, Places, Rotary, Tables

RESTART = 64  # tokens after which the wrong count restarts

#: A description of each mistake, by name.
DEFECTS: dict[str, str] = {
    "layout": "pairs the coordinates as the other layout does",
    "bf16 positions": "rounds positions to bfloat16, which tells those up to 256 apart",
    "bf16 tables": "rounds cos and sin to bfloat16, the angles exact",
    "bf16 angles": "rounds positions, frequencies and their products to bfloat16",
    "keys unrotated": "rotates the queries and leaves the keys as they are",
    "sign": "turns the queries the other way, so that scores follow m + n",
    "values rotated": "turns the values as the keys, and never back",
    "restart": f"counts from 0 again every {RESTART} tokens, as a cache would that forgets its own",
    "float32 product": "forms the angles in float32, harmless at positions this near",
}


@contextmanager
def defect(model: Decoder, name: str) -> Iterator[None]:
    """Make the model commit the mistake `name`, one of `DEFECTS`, in every layer.

    model: a model with softmax attention and rotary positions without decay ("rope", "partial").
    Raises ValueError for other models and KeyError for other names, before anything is changed.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(width=16, heads=2), tokens=5)
    >>> text = torch.arange(5).view(1, 5)
    >>> right = model(text)
    >>> with defect(model, "sign"):
    ...     wrong = model(text)
    >>> torch.equal(wrong, right), torch.equal(model(text), right)
    (False, True)
    """
    rotary = check_undecayed(model)
    with ExitStack() as changes:
        for owner, attribute, value in _changes(model, rotary, name):
            changes.enter_context(patch.object(owner, attribute, value))
        yield


def check_rotary(model: Decoder) -> Rotary:
    """Return the model's rotary positions; raise ValueError if it has none."""
    if not isinstance(model.positions, Rotary):
        raise ValueError(
            f"position is {model.experiment.position!r}, which rotates nothing; it must be 'rope', "
            "'partial' or 'xpos': train such a model"
        )
    return model.positions


def check_undecayed(model: Decoder) -> Rotary:
    """Return the rotary positions; raise ValueError for xPos or without softmax attention."""
    rotary = check_rotary(model)
    check_softmax(model)
    if isinstance(rotary, Decaying):
        raise ValueError(
            "position is 'xpos', whose tables hold a decay too; it must be 'rope', 'partial' or "
            "'p-rope': train such a model"
        )
    return rotary


def check_softmax(model: Decoder) -> None:
    """Raise ValueError for linear attention, which has no score for each pair of tokens."""
    if model.experiment.attention != "softmax":
        raise ValueError(
            f"attention is {model.experiment.attention!r}; it must be 'softmax', because only "
            "softmax attention has a score for each query and key: train such a model"
        )


def _changes(model: Decoder, rotary: Rotary, name: str) -> list[tuple[Any, str, Any]]:
    """Return the replacements that make the mistake: owner, attribute, and new value."""
    layers = [cast(Block, block).attention for block in model.blocks]
    if name == "layout":
        other = replace(model.experiment, interleaved=not model.experiment.interleaved)
        return [(layer, "experiment", other) for layer in layers]
    if name == "values rotated":
        return [(layer, "forward", _rotating_values(layer)) for layer in layers]
    forward, mistaken = rotary.forward, _MISTAKEN[name]
    return [(rotary, "forward", lambda position_ids: mistaken(rotary, forward, position_ids))]


def _rotating_values(layer: Attention) -> Callable[[Tensor, Places], Tensor]:
    def forward(x: Tensor, places: Places) -> Tensor:
        q, k, v = layer.heads(x)
        q, k = layer.rotate(q, k, places)
        _, v = layer.rotate(q, v, places)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        return layer.out(mixed.transpose(1, 2).flatten(2))

    return forward


def _tables(places: Places) -> Tables:
    assert places.query is not None
    return places.query


def _in_bfloat16(places: Places) -> Places:
    cos, sin = (table.bfloat16().float() for table in _tables(places))
    return Places(query=(cos, sin), key=(cos, sin))


def _queries_reversed(places: Places) -> Places:
    cos, sin = _tables(places)
    return places._replace(query=(cos, -sin))


def _angles_in(dtype: torch.dtype, rotary: Rotary, position_ids: Tensor) -> Places:
    """Return tables from angles computed in dtype; cos and sin of those angles are exact."""
    inv_freq = rotary.frequencies(int(position_ids.max()) + 1, position_ids.device)
    angle = (position_ids.to(dtype)[:, None] * inv_freq.to(dtype)).double()
    scale = rotary.extension.attention_scaling
    tables = (scale * angle.cos()).float(), (scale * angle.sin()).float()
    return Places(query=tables, key=tables)


Forward = Callable[[Tensor], Places]

#: Replacements for the forward of the rotary positions, by mistake.
_MISTAKEN: dict[str, Callable[[Rotary, Forward, Tensor], Places]] = {
    "bf16 positions": lambda rotary, right, ids: right(ids.bfloat16().to(ids.dtype)),
    "bf16 tables": lambda rotary, right, ids: _in_bfloat16(right(ids)),
    "bf16 angles": lambda rotary, right, ids: _angles_in(torch.bfloat16, rotary, ids),
    "keys unrotated": lambda rotary, right, ids: right(ids)._replace(key=None),
    "sign": lambda rotary, right, ids: _queries_reversed(right(ids)),
    "restart": lambda rotary, right, ids: right(
        torch.arange(len(ids), device=ids.device) % RESTART
    ),
    "float32 product": lambda rotary, right, ids: _angles_in(torch.float32, rotary, ids),
}
