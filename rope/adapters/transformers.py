"""Make a loaded transformers model use this package's tables and rotation.

A transformers model rotates in two steps: a module computes `cos, sin` once per call, and each
attention layer passes them to the function `apply_rotary_pos_emb` in its file. `use_rope` replaces
the module and the function. All models in the file share the function. The new function therefore
uses this package's rotation only for this package's tables, `[B, 1, S, R/2]`. It passes all other
tables to the original function. `restore` puts the original modules back.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import inspect
from typing import Any, TypeVar

import torch
from torch import nn

from rope.adapters.parts import ByTables, PositionEmbeddings

Model = TypeVar("Model", bound=nn.Module)
__all__ = ["PositionEmbeddings", "restore", "use_rope"]

#: The functions that attention layers may call. The second function returns interleaved queries and
#: keys in half-split order. Its replacement keeps them interleaved; the scores are the same.
NAMES = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave")
_ADVICE = "leave the model unchanged, or pass only its language_model"


def use_rope(model: Model) -> Model:
    """Replace the rotation of a loaded model in place, and return the model.

    model: a transformers model whose attention calls `apply_rotary_pos_emb` (Llama, Mistral, Qwen,
    Gemma, Phi, GPT-NeoX, Cohere, and most others, but not GPT-J and CodeGen). Layers that don't
    rotate and other models of the same class stay unchanged. If you unpickle a model in another
    process, call `use_rope` again. If the frequencies depend on the sequence length, fix the length
    before you use torch.compile, for example with
    `model.model.rotary_emb.layers["all"].fix_length`.
    Raises TypeError if model is not a module, ValueError if use_rope doesn't support the model or
    if its frequencies were changed by hand, and the errors of `RotaryEmbedding.from_config`. After
    an error, the model has its original rotation.

    >>> import pytest
    >>> transformers = pytest.importorskip("transformers")
    >>> small = dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, vocab_size=8)
    >>> config = transformers.LlamaConfig(**small, intermediate_size=32)
    >>> model = use_rope(transformers.LlamaForCausalLM(config))
    >>> model.model.rotary_emb.layers["all"].dim
    16
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is {model!r}; it must be a loaded model, not its name")
    restore(model)
    for part in model.modules():
        if hasattr(part, "mrope_section"):
            reason = f"its positions have several axes (M-RoPE, sections {part.mrope_section})"
            raise _error(model, reason, "use rope.axes.MultiAxisRotaryEmbedding.from_config")
    places = [
        (parent, name, child)
        for parent, name, child in _children(model)
        if type(child).__name__.endswith("RotaryEmbedding") and hasattr(child, "config")
    ]
    functions = _functions(model)
    if not (functions or places):
        raise _error(model, "it doesn't rotate its queries and keys", "there is nothing to replace")
    if not (functions and places):
        raise _error(model, "it has no rotary module, or no layer that uses one")
    with torch.device("cpu"):
        replacements = {child: _tables(model, child) for *_, child in places}
    for parent, name, child in places:
        buffer = next(child.buffers())
        if not buffer.is_meta:  # assigning parameters to a meta model doesn't move its buffers
            replacements[child].to(buffer.device)
        replacements[child].__dict__["replaced"] = child
        setattr(parent, name, replacements[child])
        layout = replacements[child].interleaved
        for file, function in functions:
            original = file[function]
            original = original.original if isinstance(original, ByTables) else original
            # If a file has both functions, each model calls the function for its layout.
            both = NAMES[1] in file
            file[function] = ByTables(original, function == NAMES[1] if both else layout)
    return model


def restore(model: Model) -> Model:
    """Put back the modules that `use_rope` replaced, and return the model."""
    for parent, name, child in _children(model):
        if isinstance(child, PositionEmbeddings):
            setattr(parent, name, child.__dict__["replaced"])
    return model


def _children(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """Return a triple (parent, name in the parent, submodule) for each submodule."""
    return [
        (part, name, child) for part in model.modules() for name, child in part.named_children()
    ]


def _error(model: nn.Module, reason: str, advice: str = _ADVICE) -> ValueError:
    """Return the error for a model whose rotation cannot be replaced."""
    return ValueError(f"use_rope can't change this {type(model).__name__}: {reason}; {advice}")


def _functions(model: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """Return the functions in NAMES that the model's attention calls, as (globals, name) pairs.

    Raises ValueError if a layer rotates in another way.
    """
    functions: dict[Any, Any] = {}
    for kind in dict.fromkeys(type(module) for module in model.modules()):
        forward: Any = inspect.unwrap(kind.forward)
        code = getattr(forward, "__code__", None)
        if code is None or kind.__name__.endswith("RotaryEmbedding"):
            continue
        names = {name for name in code.co_names if "apply" in name and "rot" in name}
        if unknown := names - {*NAMES}:
            raise _error(model, f"its {kind.__name__} calls {min(unknown)}, which we don't know")
        if {"cos", "sin"} & {*code.co_varnames} and not names:
            raise _error(model, f"its {kind.__name__} applies cos and sin itself")
        file = forward.__globals__
        functions |= {(id(file), name): (file, name) for name in names}
    return list(functions.values())


def _tables(model: nn.Module, rotary: Any) -> PositionEmbeddings:
    """Return the replacement for a rotary module.

    Raises ValueError if the configuration has no rotating layers, or if the module's frequencies
    differ from the configured ones.
    """
    if rotary.config.model_type == "deepseek_v4":
        raise _error(model, "it rotates the last coordinates of a head instead of the first")
    tables = PositionEmbeddings(rotary.config)
    layers: list[Any] = [*tables.layers.values()]
    if not layers:
        raise _error(model, f"no layer of its {type(rotary).__name__} rotates")
    if any(layer.extension.length_dependent for layer in layers):
        return tables  # the model's frequencies depend on the lengths that it has seen
    for name, expected in type(rotary)(rotary.config).named_buffers():
        buffer = getattr(rotary, name)
        # A cast to float16 rounds small frequencies to multiples of 2^-24.
        if not buffer.is_meta and not torch.allclose(
            buffer.cpu().float(), expected.float(), rtol=0.01, atol=2.0**-24
        ):
            raise _error(model, f"{name} in its rotary module differs from its configuration")
    return tables
