"""Determine the head dimension, rotated width, context length, and rotating layers of a model.

R is int(D * partial_rotary_factor), as in transformers; an odd R raises ValueError.
`class_facts` supplies the values that a configuration leaves out.

Shapes: D head dimension, R rotated width.
"""

from collections.abc import Mapping
from typing import Any

from rope.checks import check_count
from rope.config.models import ONLY_WINDOWS, ONLY_WINDOWS_IF_ANY
from rope.config.parameters import Entries, Parameters, not_rotating
from rope.config.source import check_equal, get_as, present

#: Layer types without queries and keys, or with queries and keys that are not rotated.
_WITHOUT_ATTENTION = ("conv", "linear_attention", "mamba", "moe", "recurrent")


def rotating_layers(
    facts: Mapping[str, Any], entries: Entries, layer_type: str | None
) -> tuple[bool, ...] | None:
    """Return one flag per layer, True if the layer rotates, or None if all layers rotate.

    Raises ValueError if no layer of `layer_type` rotates, or if a per-layer list is too short.
    """
    kinds = get_as(list, "layer_types", facts)
    lists = {
        "no_rope_layers": get_as(list, "no_rope_layers", facts),  # 1: the layer rotates
        "layer_rope_theta": get_as(list, "layer_rope_theta", facts),  # 0: the layer doesn't rotate
        "layer_types": [_type_rotates(kind, facts, entries) for kind in kinds],
    }
    dense = [kind == "dense" for kind in get_as(list, "mlp_layer_types", facts)]
    if dense and facts.get("prefix_dense_sliding_window_pattern") == 1:  # Cohere2-MoE rotates them
        lists["layer_types"] = list(map(max, lists["layer_types"], dense))
    crossing = get_as(list, "cross_attention_layers", facts)  # their keys come from an image
    interval = facts.get("no_rope_layer_interval")
    if interval is None and not any((*lists.values(), crossing)):
        return None
    number = facts.get("num_hidden_layers", max(map(len, lists.values())))
    check_count("num_hidden_layers", number)
    if interval is not None and not lists["no_rope_layers"]:
        lists["no_rope_layers"] = [(layer + 1) % interval for layer in range(number)]
    for key, flags in lists.items():
        if flags and len(flags) < number:
            raise ValueError(
                f"{key} has length {len(flags)}; it must have {number} entries, one per layer"
            )
    rotates = tuple(
        layer not in crossing and all(flags[layer] for flags in lists.values() if flags)
        for layer in range(number)
    )
    if layer_type in kinds and (True, layer_type) not in zip(rotates, kinds, strict=False):
        raise not_rotating(f"type {layer_type!r}")
    return None if all(rotates) else rotates


def one_layer(
    facts: Mapping[str, Any], rotates: Any, layer: int | None, layer_type: str | None
) -> tuple[str | None, float | None]:
    """Return the type of a layer and, if layer_rope_theta lists bases, the layer's base.

    rotates: the result of `rotating_layers`. layer: the layer's number, counted from 0, or None for
    any rotating layer of type layer_type.
    Raises ValueError if there is no such layer, if it doesn't rotate, or if several bases match.
    """
    kinds = get_as(list, "layer_types", facts)
    layers = [n for n, kind in enumerate(kinds) if layer_type in (None, kind)]
    if layer is not None:
        check_count("layer", layer, smallest=0)
        number = facts.get("num_hidden_layers", len(rotates or kinds) or layer + 1)
        if layer >= number:
            raise ValueError(f"layer is {layer}; it must be below num_hidden_layers={number}")
        if rotates and not rotates[layer]:
            raise not_rotating(f"layer {layer}")
        kind = kinds[layer] if kinds else layer_type
        check_equal("layer_type", "here", layer_type or kind, f"in layer {layer}", kind)
        layer_type = kind
        layers = [layer]
    listed = get_as(list, "layer_rope_theta", facts)
    bases = {base for n in layers or range(len(listed)) for base in listed[n : n + 1] if base}
    if len(bases) > 1:
        raise ValueError(
            f"layer_rope_theta lists several bases, {sorted(bases)}; choose a layer with layer=..."
        )
    return layer_type, next(iter(bases), None)


def _type_rotates(kind: str, facts: Mapping[str, Any], entries: Entries) -> bool:
    """Return True if layers of this type rotate their queries and keys."""
    if kind in _WITHOUT_ATTENTION or entries.get(str(kind), {}) is None:
        return False
    model_type, window = facts.get("model_type"), facts.get("sliding_window")
    if model_type in ONLY_WINDOWS or (model_type in ONLY_WINDOWS_IF_ANY and window is not None):
        return kind == "sliding_attention" and window is not None
    return True


def longest_context(facts: Mapping[str, Any]) -> int | None:
    """Return the model's context length, or None if the configuration doesn't specify it."""
    usual = _count(facts, "max_position_embeddings", "n_positions", "max_seq_len")
    return usual or _count(facts, "model_max_length")


def widths(
    facts: Mapping[str, Any], parameters: Parameters, layer_type: str | None
) -> tuple[int, int]:
    """Return the head dimension D and the rotated width R, which are equal in latent attention.

    Raises ValueError if keys contradict each other, or if R is odd or exceeds D.
    """
    latent = _count(facts, "qk_rope_head_dim")
    head_dim = latent or _head_dim(facts, layer_type)
    share = parameters.get("partial_rotary_factor", 1.0)
    stated = {name: _count(facts, name) for name in ("qk_rope_head_dim", "rotary_dim")}
    if "partial_rotary_factor" in parameters and (latent is None or share != 1):
        whole = facts.get("head_dim", latent) if latent else head_dim
        stated["partial_rotary_factor"] = int(whole * share)
    if parameters["rope_type"] == "proportional":
        stated = {}  # in p-RoPE, the share counts rotating planes and doesn't narrow the tables
    (first, dim), *others = (present(stated) or {"head_dim": head_dim}).items()
    for name, width in others:
        check_equal("the rotated width", f"from {first}", dim, f"from {name}", width)
    if dim % 2 or not 0 < dim <= head_dim:
        raise ValueError(
            f"the rotated width is {dim}, from {first}; it must be positive, even, and at most the "
            f"head dimension, which is {head_dim}; correct {first}"
        )
    return head_dim, dim


def _head_dim(facts: Mapping[str, Any], layer_type: str | None) -> int:
    """Return the head dimension D from its key, or as the model's width / number of heads."""
    kinds = get_as(list, "layer_types", facts)
    head_dim = _count(facts, "head_dim", "kv_channels", "attention_head_dim")
    if layer_type == "full_attention":
        head_dim = _count(facts, "global_head_dim") or head_dim
    for number, layer in get_as(dict, "per_layer_config", facts).items():
        if layer_type and kinds[int(number)] == layer_type:  # some heads of Gemma 4 are wider
            head_dim = layer.get("head_dim") or head_dim
    if head_dim is not None:
        return head_dim
    width = _count(facts, "hidden_size", "n_embd", "d_model")
    heads = _count(facts, "num_attention_heads", "n_head", "n_heads")
    if width is None or heads is None or width % heads:
        raise ValueError(
            f"hidden_size is {width} and num_attention_heads is {heads}, which don't determine "
            "head_dim; add head_dim, or pass only the text model's configuration"
        )
    return width // heads


def _count(facts: Mapping[str, Any], *names: str) -> int | None:
    """Return the positive integer stored under one or more of the names, or None if absent.

    Raises ValueError if the values under two names differ.
    """
    spellings = [name for name in names if facts.get(name) is not None]
    if not spellings:
        return None
    first, *others = spellings
    check_count(first, facts[first])
    for name in others:
        check_equal(first, "under this name", facts[first], f"as {name}", facts[name])
    return int(facts[first])
