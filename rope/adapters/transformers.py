"""This package's tables and rotation inside a model of transformers, in place of its own.

A model there rotates in two steps: a module makes `cos, sin` once a call, and every attention gives
them to a function of its file, `apply_rotary_pos_emb`. `use_rope` replaces both. The model gets
`PositionEmbeddings`; the function, which all models of that file share, rotates by tables of their
shape, `[B, 1, S, R/2]`, and hands all others on to the one that it replaced. `restore` gives both
back, the function with the last model that uses it.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import sys
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import nn

from rope.adapters.inspection import (
    check_axes,
    check_frequencies,
    files_of,
    function_for,
    is_rotary,
    refusal,
    sinusoids,
)
from rope.adapters.parts import IN_USE, ByTables, PositionEmbeddings, apply_rotary_pos_emb

Model = TypeVar("Model", bound=nn.Module)
__all__ = ["PositionEmbeddings", "apply_rotary_pos_emb", "restore", "use_rope"]


def use_rope(model: Model) -> Model:
    """Rotate in a loaded model, in place, by this package; returns the model.

    model: of transformers, whose attention gives cos and sin to `apply_rotary_pos_emb` (Llama,
    Mistral, Qwen, Gemma, Phi, GPT-NeoX, Cohere and most others). GPT-J and CodeGen keep their own
    function and get exact tables. Layers that do not rotate stay so, and other models of the same
    class keep their own. A model unpickled in another process needs the call again. Extensions that
    depend on the length need `fix_length` of `model.model.rotary_emb.layers["all"]`, say, under
    torch.compile.
    Raises ValueError for any other model, for one whose function does not rotate as its
    configuration says (some positions are tried), for frequencies changed by hand, and as
    `RotaryEmbedding.from_config` does; nothing is then replaced.

    >>> import pytest
    >>> transformers = pytest.importorskip("transformers")
    >>> small = dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, vocab_size=8)
    >>> config = transformers.LlamaConfig(**small, intermediate_size=32)
    >>> model = use_rope(transformers.LlamaForCausalLM(config))
    >>> model.model.rotary_emb.layers["all"].dim
    16
    """
    restore(model)
    gptj: list[Any] = [part for part in model.modules() if hasattr(part, "pos_embd_dim")]
    places = [place for place in _children(model) if is_rotary(place[2])]
    files = files_of(model)
    if not files or not (places or gptj):
        raise refusal(model, "it has no rotary module, or nothing that uses one")
    for *_, child in places:
        check_axes(model, child)
    with torch.device("cpu"):
        replacements = {child: PositionEmbeddings(child.config) for *_, child in places}
        sinusoid_tables = [sinusoids(model, attention) for attention in gptj]
        for child, tables in replacements.items():
            check_frequencies(model, child, tables)
        ours = (
            [] if gptj else [function_for(model, file[name], replacements) for file, name in files]
        )
    for (file, name), function in zip(files, ours, strict=False):
        file[name] = function
    for tables in () if gptj else replacements.values():
        tables.functions = tuple((file["__name__"], name) for file, name in files)
        IN_USE.add(tables)
    for parent, name, child in places:
        buffer = next(child.buffers())
        if not buffer.is_meta:  # as it is where parameters were assigned to a model made on meta
            replacements[child].to(buffer.device)
        replacements[child].__dict__["replaced"] = child
        setattr(parent, name, replacements[child])
    for attention, table in zip(gptj, sinusoid_tables, strict=True):
        attention.__dict__["replaced"] = attention.embed_positions
        attention.embed_positions = table.to(attention.embed_positions.device)
    return model


def restore(model: Model) -> Model:
    """Give a model back what `use_rope` replaced in it; returns the model.

    The function of its file stays while another model uses it, or a copy that is still in memory.
    """
    for parent, name, child in list(_children(model)):
        if isinstance(child, PositionEmbeddings):
            setattr(parent, name, child.__dict__["replaced"])
            _give_back(child)
    for part in model.modules():
        if hasattr(part, "pos_embd_dim") and "replaced" in part.__dict__:
            part.embed_positions = part.__dict__.pop("replaced")
    return model


def _give_back(tables: PositionEmbeddings) -> None:
    """Put the functions back that these tables needed, and none in use still needs."""
    IN_USE.discard(tables)
    needed = {function for others in IN_USE for function in others.functions}
    for file, name in {*tables.functions} - needed:
        functions = vars(sys.modules[file])
        if isinstance(functions[name], ByTables):
            functions[name] = functions[name].theirs


def _children(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Every place in a model: who holds it, its name there, and what it holds."""
    for name, child in module.named_children():
        yield module, name, child
        yield from _children(child)
