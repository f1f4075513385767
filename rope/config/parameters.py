"""Collect a configuration's RoPE parameters, however it spells them, and build the extension.

Version 4 of transformers stores the base at the top level and the extension in `rope_scaling`.
Version 5 stores both in `rope_parameters`, either directly or in one dict per layer type. The
parameters of each `rope_type` have the same names as the fields of its extension class.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rope.checks import check_base, check_count
from rope.config.models import FIXED_BASE, GENERAL, LABELS
from rope.config.source import HOLDERS, check_equal, get_as, present
from rope.extensions import REGISTRY, Extension

Parameters = dict[str, Any]
#: A dict from each layer type to its parameters, or to None if its layers don't rotate. If there
#: are no layer types, the only key is None.
Entries = dict[str | None, Parameters | None]

#: Maps each top-level key to the parameter that it sets for all layers.
_TOP = {
    "rope_theta": "rope_theta",
    "rotary_emb_base": "rope_theta",
    "partial_rotary_factor": "partial_rotary_factor",
    "rotary_pct": "partial_rotary_factor",
}
#: Maps each key that sets the base of only one layer type to this layer type.
_BASES = {"swa_rope_theta": "sliding_attention", "compress_rope_theta": "compress"}
#: Parameters that every rope_type may have.
COMMON = [
    "rope_type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved",
    "llama_4_scaling_beta",  # the attention reads this key and scales queries by position
]  # fmt: skip
TRAINED = "original_max_position_embeddings"
#: Parameter names besides an extension's fields: Mistral's name for the context length, and
#: Phi-3.5-MoE's names for the attention factors for short and long texts.
_ALSO = {"yarn": ("max_position_embeddings",), "longrope": ("short_mscale", "long_mscale")}


def layer_entries(facts: Mapping[str, Any]) -> Entries:
    """Return each layer type's RoPE parameters, or {None: parameters} if all layers share them.

    Reads `rope_scaling` and `rope_parameters`. Raises TypeError for values of the wrong type, and
    ValueError for an unknown rope_type, an unknown parameter, or contradictory spellings.
    """
    old, new = (get_as(dict, key, facts) for key in HOLDERS)
    entries: Entries
    shared: Parameters = {}
    if any(isinstance(value, Mapping) for value in (*old.values(), *new.values())):
        layers = {**old, **new}
        entries = {
            kind: None if value is None else _canonical(value)
            for kind, value in layers.items()
            if value is None or isinstance(value, Mapping)
        }
        shared = {key: layers[key] for key in layers.keys() - entries}
    else:
        flat, more = _canonical(old), _canonical(new)
        for key in flat.keys() & more.keys():
            check_equal(key, "in rope_scaling", flat[key], "in rope_parameters", more[key])
        entries = {None: {**flat, **more}}
    kinds = {layer: entry.get("rope_type", "default") for layer, entry in entries.items() if entry}
    names = {kind: (*COMMON, *_parameter_names(kind)) for kind in kinds.values()}
    for layer, kind in kinds.items():
        allowed, taken = names[kind], {key for keys in names.values() for key in keys}
        # A key next to the layer types' dicts applies to each type whose rope_type accepts it.
        more = {key: shared[key] for key in shared if key in allowed or key not in taken}
        entry = entries[layer] = {**more, **(entries[layer] or {})}
        unknown = sorted(entry.keys() - {*allowed}, key=lambda key: (key != "alpha", str(key)))
        if unknown:
            advice = " (for alpha, pass the extension NTK(alpha))" if "alpha" in unknown else ""
            raise ValueError(
                f"rope_type {kind!r} doesn't take {', '.join(map(repr, unknown))}{advice}; remove "
                f"such keys, or choose another rope_type; {kind} takes only {', '.join(allowed)}"
            )
    return entries


def _canonical(holder: Mapping[str, Any]) -> Parameters:
    """Return the parameters that are not None, with the current name of the `rope_type`."""
    entry = present(holder)
    current = {"su": "longrope", "mrope": "default"}
    if "short_factor" in entry:  # Phi-3 also calls LongRoPE "yarn"
        current["yarn"] = "longrope"
    types = [entry.pop(key) for key in ("type", "rope_type") if key in entry]
    if "interleaved" in entry and "mrope_section" in entry:  # as Qwen3-Omni spells it
        entry.setdefault("mrope_interleaved", entry.pop("interleaved"))
    if not types:
        return entry
    first, last = (current.get(types[n], types[n]) for n in (0, -1))
    check_equal("the rope_type", "under `type`", first, "under `rope_type`", last)
    return {"rope_type": last, **entry}


def _parameter_names(kind: str) -> tuple[str, ...]:
    """Return the parameter names of a rope_type. Raise ValueError if the type is unknown."""
    known = [name for name in REGISTRY if name != "ntk"]
    if kind not in known:
        raise ValueError(
            f"rope_type is {kind!r}; it must be one of {', '.join(known)}; pass any other "
            "extension directly to RotaryEmbedding"
        )
    return *(field.name for field in fields(REGISTRY[kind])), *_ALSO.get(kind, ())


def rope_parameters(
    facts: Mapping[str, Any],
    entries: Entries,
    standard: Mapping[str, Any],
    layer_type: str | None,
) -> Parameters:
    """Return a layer type's parameters, completed with top-level keys and class defaults.

    standard: the configuration as completed by the class (see `class_facts`), or {}.
    Raises ValueError for a missing or unknown layer type, a missing base, or contradictory keys.
    """
    top: Parameters = {}
    for alias in [alias for alias in _TOP if alias in facts]:
        key, value = _TOP[alias], facts[alias]
        if isinstance(value, list) and standard:  # Step 3.5's class splits the list by type
            continue
        inside = [entry[key] for entry in (top, *entries.values()) if entry and key in entry]
        if inside and value not in inside:
            check_equal(key, f"at the top level ({alias})", value, "elsewhere", inside[0])
        top[key] = value
    by_class = layer_entries(standard)
    if None in entries and None not in by_class:
        entries = by_class  # older configurations don't say which layers use a key
    complete: Entries = {}
    for layer, entry in entries.items():
        defaults = by_class.get(layer, by_class.get(None)) or {}
        if entry:  # the class's extension applies only to empty entries
            defaults = {key: defaults[key] for key in COMMON[1:] if key in defaults}
        complete[layer] = entry if entry is None else {**top, **defaults, **entry}
    full = ["full_attention"]
    check_equal("yarn_only_types", "here", facts.get("yarn_only_types", full), "in the code", full)
    for key, kind in _BASES.items():
        used = (complete.get(kind) or {}).get("rope_theta")
        check_equal(key, "here", facts.get(key, used), f"in {kind} layers", used)
    own = _entry(complete, {**standard, **facts}, layer_type)
    parameters: Parameters = {"rope_type": "default", **own}
    if facts.get("model_type") in (*GENERAL, *FIXED_BASE):
        parameters.setdefault("rope_theta", 10000.0)
    if "rope_theta" not in parameters:
        raise ValueError("the configuration has no rope_theta; add the key (RoFormer uses 10000.0)")
    check_base(parameters["rope_theta"], "rope_theta")
    # Other rope_types ignore this length, which then only documents the training.
    if TRAINED in facts and TRAINED in _parameter_names(parameters["rope_type"]):
        trained = parameters.setdefault(TRAINED, facts[TRAINED])
        check_equal(TRAINED, "at the top level", facts[TRAINED], "in the rope parameters", trained)
    return parameters


def _entry(entries: Entries, facts: Mapping[str, Any], layer_type: str | None) -> Parameters:
    """Return the entry that applies to layer_type, or the only entry if layer_type is None."""
    layer_type = entry_key(entries, layer_type)
    if None in entries and layer_type in (None, *get_as(list, "layer_types", facts)):
        layer_type = None
    elif layer_type is None and len(entries) == 1:
        (layer_type,) = entries
    elif layer_type not in entries:
        hint = "or pass layer=..., the number of a layer, counted from 0"
        if layer_type in get_as(list, "layer_types", facts):
            hint = f"or add RoPE parameters for {layer_type!r}, which is in layer_types"
        raise ValueError(
            f"layer_type is {layer_type!r}; pass one of {', '.join(map(str, entries))}, {hint}"
        )
    entry = entries[layer_type]
    if entry is None:
        raise not_rotating(f"layer type {layer_type!r}")
    return entry


def entry_key(entries: Entries, layer_type: str | None) -> str | None:
    """Return the key of a layer type's entry: the type itself, or DeepSeek-V4's name for it."""
    label = LABELS.get(layer_type, layer_type)
    return label if label in entries else layer_type


def not_rotating(which: str) -> ValueError:
    """Return the error for a layer or a layer type that doesn't rotate."""
    return ValueError(f"{which} doesn't rotate its queries and keys; leave both unchanged")


def build_extension(parameters: Parameters, longest: int | None) -> Extension:
    """Build the extension from its parameters; the extension's class checks the numbers.

    longest: max_position_embeddings, which is the default for the trained length, or None.
    Raises ValueError for missing, invalid, or contradictory numbers.
    """
    kind = parameters["rope_type"]
    names = _parameter_names(kind)
    arguments = {key: value for key, value in parameters.items() if key in names}
    if TRAINED in names and longest is not None:
        check_count(TRAINED, arguments.setdefault(TRAINED, longest))
        if kind in ("yarn", "longrope"):  # as in transformers, for example for Phi-3
            arguments.setdefault("factor", longest / arguments[TRAINED])
    if kind == "dynamic":  # transformers reads only max_position_embeddings
        start = "as max_position_embeddings, where dynamic scaling starts"
        check_equal(TRAINED, "in the rope parameters", arguments.get(TRAINED), start, longest)
    inside = arguments.pop("max_position_embeddings", longest)
    check_equal("max_position_embeddings", "in the rope parameters", inside, "outside", longest)
    for key in _ALSO["longrope"]:
        if key in arguments:
            factor = arguments.pop(key)
            used = arguments.setdefault("attention_factor", factor)
            check_equal(key, "here", factor, "for other lengths or as attention_factor", used)
    try:
        return REGISTRY[kind](**arguments)
    except TypeError as error:  # a number is missing or has the wrong type
        hint = "; pass each factor as a list, one number per plane" if kind == "longrope" else ""
        raise ValueError(f"rope_type {kind!r} has invalid parameters: {error}{hint}") from error
