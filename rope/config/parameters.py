"""Collect RoPE parameters from all spellings of a configuration, and build the extension.

Version 4 of transformers stores the base at the top level and the extension in `rope_scaling`.
Version 5 stores both in `rope_parameters`, either directly or in one dict per layer type. The
parameters of each `rope_type` have the same names as the fields of its extension class.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rope.checks import check_base, check_count
from rope.config.models import FIXED_BASE, GENERAL
from rope.config.source import HOLDERS, check_equal, get_as, present
from rope.extensions import REGISTRY, Extension

Parameters = dict[str, Any]
#: Maps each layer type to its parameters, or to None if its layers don't rotate. Without layer
#: types, the only key is None.
Entries = dict[str | None, Parameters | None]

#: Maps each top-level key to the parameter that it sets for all layers.
_TOP = {
    "rope_theta": "rope_theta",
    "rotary_emb_base": "rope_theta",
    "partial_rotary_factor": "partial_rotary_factor",
    "rotary_pct": "partial_rotary_factor",
}
#: Parameters that every rope_type may have.
COMMON = [
    "rope_type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved",
    "llama_4_scaling_beta",  # for the attention, which also scales queries by their positions
]  # fmt: skip
TRAINED = "original_max_position_embeddings"
#: Other parameter names: Mistral's name for the context length, and Phi-3.5-MoE's names for the
#: attention factor of short and long texts.
_ALSO = {"yarn": ("max_position_embeddings",), "longrope": ("short_mscale", "long_mscale")}


def layer_entries(facts: Mapping[str, Any]) -> Entries:
    """Return a dict that maps each layer type, or None for all layers, to its RoPE parameters.

    Reads `rope_scaling` and `rope_parameters`. Raises TypeError for values of the wrong type, and
    ValueError for an unknown rope_type, an unknown parameter, or contradictory spellings.

    >>> layer_entries({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})
    {None: {'rope_type': 'linear', 'factor': 2.0}}
    """
    old, new = (get_as(dict, key, facts) for key in HOLDERS)
    entries: Entries
    if any(isinstance(value, Mapping) for value in (*old.values(), *new.values())):
        layers = {**old, **new}
        single = [k for k, v in layers.items() if v is not None and not isinstance(v, Mapping)]
        shared = {key: layers.pop(key) for key in single}
        entries = {
            kind: None if value is None else _canonical(get_as(dict, kind, layers))
            for kind, value in layers.items()
        }
        _share(shared, entries)
    else:
        flat, more = _canonical(old), _canonical(new)
        for key in flat.keys() & more.keys():
            check_equal(key, "in rope_scaling", flat[key], "in rope_parameters", more[key])
        entries = {None: {**flat, **more}}
    for entry in filter(None, entries.values()):
        kind = entry.get("rope_type", "default")
        allowed = (*COMMON, *_parameter_names(kind))
        unknown = sorted(entry.keys() - {*allowed}, key=lambda key: (key != "alpha", str(key)))
        if unknown:
            advice = " (for alpha, pass the extension NTK(alpha))" if "alpha" in unknown else ""
            raise ValueError(
                f"rope_type {kind!r} doesn't take {', '.join(map(repr, unknown))}{advice}, but "
                f"only {', '.join(allowed)}; remove the others, or set the rope_type that has them"
            )
    return entries


def _share(shared: Parameters, entries: Entries) -> None:
    """Add shared parameters to each entry whose rope_type takes them, unless it has its own.

    Raises ValueError for a shared parameter that no entry takes.
    """
    unread = {*shared}
    for entry in filter(None, entries.values()):
        allowed = {*COMMON, *_parameter_names(entry.get("rope_type", "default"))}
        unread -= allowed
        entry |= {key: shared[key] for key in shared if key in allowed} | {**entry}
    if unread:
        raise ValueError(
            f"{sorted(unread)} is next to the layer types, but none of their rope_types takes it "
            f"({', '.join(map(str, entries))}); remove it"
        )


def _canonical(holder: Mapping[str, Any]) -> Parameters:
    """Return the parameters that are not None, with the current name of the `rope_type`."""
    entry = present(holder)
    current = {"su": "longrope", "mrope": "default"}
    if "short_factor" in entry:  # Phi-3 also calls LongRoPE "yarn"
        current["yarn"] = "longrope"
    types = [entry.pop(key) for key in ("type", "rope_type") if key in entry]
    if "interleaved" in entry and "mrope_section" in entry:  # Qwen3-Omni's spelling
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
            f"rope_type is {kind!r}; it must be one of {', '.join(known)}: pass any other "
            "extension directly to RotaryEmbedding"
        )
    return *(field.name for field in fields(REGISTRY[kind])), *_ALSO.get(kind, ())


def rope_parameters(
    facts: Mapping[str, Any],
    entries: Entries,
    standard: Mapping[str, Any],
    layer_type: str | None,
) -> Parameters:
    """Return one layer type's parameters, completed with top-level keys and class defaults.

    standard: the configuration as completed by the class (see `class_facts`), or {}.
    Raises ValueError for a missing or unknown layer type, a missing base, or contradictory keys.

    >>> entries = layer_entries({"rope_scaling": {"type": "linear", "factor": 2.0}})
    >>> rope_parameters({"rope_theta": 5e5}, entries, {}, None)
    {'rope_type': 'linear', 'rope_theta': 500000.0, 'factor': 2.0}
    """
    top: Parameters = {}
    for alias in [alias for alias in _TOP if alias in facts]:
        key, value = _TOP[alias], facts[alias]
        inside = [entry[key] for entry in (top, *entries.values()) if entry and key in entry]
        if inside and value not in inside:
            check_equal(key, f"at the top level ({alias})", value, "elsewhere", inside[0])
        top[key] = value
    by_class = layer_entries(standard)
    if None in entries and None not in by_class:
        entries = by_class  # in an older spelling, only the class knows the keys' layers
    complete: Entries = {}
    for layer, entry in entries.items():
        defaults = by_class.get(layer, by_class.get(None)) or {}
        if entry:  # the class's extension applies only to empty entries
            defaults = {key: defaults[key] for key in COMMON[1:] if key in defaults}
        complete[layer] = entry if entry is None else {**top, **defaults, **entry}
    if "swa_rope_theta" in facts:
        used = (complete.get("sliding_attention") or {}).get("rope_theta")
        check_equal("swa_rope_theta", "here", facts["swa_rope_theta"], "in sliding layers", used)
    own = _entry(complete, {**standard, **facts}, layer_type)
    parameters: Parameters = {"rope_type": "default", **own}
    if facts.get("model_type") in GENERAL | FIXED_BASE:
        parameters.setdefault("rope_theta", 10000.0)
    if "rope_theta" not in parameters:
        raise ValueError("the configuration has no rope_theta; add this key (10000.0 in RoFormer)")
    check_base(parameters["rope_theta"], "rope_theta")
    # Other types ignore this length; for them, it only documents the training.
    if TRAINED in facts and TRAINED in _parameter_names(parameters["rope_type"]):
        trained = parameters.setdefault(TRAINED, facts[TRAINED])
        check_equal(TRAINED, "at the top level", facts[TRAINED], "in the rope parameters", trained)
    return parameters


def _entry(entries: Entries, facts: Mapping[str, Any], layer_type: str | None) -> Parameters:
    """Return the entry that applies to layer_type, or the only entry if layer_type is None."""
    if None in entries and layer_type in (None, *get_as(list, "layer_types", facts)):
        layer_type = None
    elif layer_type is None and len(entries) == 1:
        (layer_type,) = entries
    elif layer_type not in entries:
        known = layer_type in get_as(list, "layer_types", facts)
        hint = f"; add RoPE parameters for {layer_type!r}: layer_types has it" if known else ""
        raise ValueError(
            f"layer_type is {layer_type!r}; it must be one of {', '.join(map(str, entries))}{hint}"
        )
    entry = entries[layer_type]
    if entry is None:
        raise not_rotating(layer_type)
    return entry


def not_rotating(layer_type: str | None) -> ValueError:
    """Return the error for a layer type whose layers do not rotate."""
    return ValueError(
        f"layers of type {layer_type!r} don't rotate their queries and keys; leave both unchanged"
    )


def build_extension(parameters: Parameters, longest: int | None) -> Extension:
    """Build the extension from its parameters; the extension's class checks the numbers.

    longest: max_position_embeddings, which is the default for the trained length, or None.
    Raises ValueError for missing, invalid, or contradictory numbers.

    >>> build_extension({"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}, 4096)
    DynamicNTK(factor=2.0, original_max_position_embeddings=4096)
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
        hint = "; these two are lists, one number per plane" if kind == "longrope" else ""
        raise ValueError(f"rope_type {kind!r} has wrong parameters: {error}{hint}") from error
