"""One RoPE for all layers, or one a layer type: which of the two, and which of the several.

Gemma 3 and its kin turn with one base where a layer sees everything, and with another where it
sees a window. Version 5 writes one dict a layer type, version 4 a second key for the second base.
"""

from collections.abc import Mapping
from typing import Any

from rope.config.models import LAYERED

Parameters = dict[str, Any]


def layer_parameters(facts: Mapping[str, Any]) -> Parameters | None:
    """One entry a layer type, None for a layer that does not turn; None if the form is flat."""
    holders = {key: mapping(key, facts) for key in ("rope_parameters", "rope_scaling")}
    for name, holder in holders.items():
        check_keys(name, holder)
    nested = {
        key: holder
        for key, holder in holders.items()
        if any(isinstance(value, Mapping) for value in holder.values())
    }
    family = older_layers(facts)
    if not nested and family is None:
        return None
    if not nested and family is not None and not holders["rope_parameters"]:
        return _older_entries(facts, family, holders["rope_scaling"])
    if len(nested) != 1 or sum(map(bool, holders.values())) != 1:
        raise ValueError(
            "rope_parameters and rope_scaling do not both give one dict a layer type; only one of "
            "them may be given, with such dicts: remove the other, or nest the flat one"
        )
    ((_, layers),) = nested.items()
    for key, value in layers.items():
        if value is not None and not isinstance(value, Mapping):
            raise ValueError(
                f"rope_parameters holds {key!r} = {value!r} beside one dict a layer type; each "
                f"value must be such a dict: move {key!r} into them"
            )
    for layer, (base_key, base, _) in (family or {}).items():
        entry = layers.get(layer)
        if entry is not None:
            layers[layer] = {"rope_theta": facts.get(base_key, base), **entry}
            inside, outside = layers[layer]["rope_theta"], facts.get(base_key)
            if outside is not None:
                agree("rope_theta", f"at the top ({base_key})", outside, "inside", inside)
    return layers


def _older_entries(
    facts: Mapping[str, Any], family: Mapping[str, tuple[str, float, bool]], scaling: Parameters
) -> Parameters:
    """One entry a layer type, from a second base at the top and a `rope_scaling` for some."""
    entries: Parameters = {}
    for layer, (key, base, scaled) in family.items():
        given = {name: value for name, value in scaling.items() if value is not None}
        entries[layer] = {"rope_theta": facts.get(key, base), **(given if scaled else {})}
        if key in facts:
            inside = entries[layer]["rope_theta"]
            agree("rope_theta", f"at the top ({key})", facts[key], "in rope_scaling", inside)
    return entries


def older_layers(facts: Mapping[str, Any]) -> dict[str, tuple[str, float, bool]] | None:
    """The older spelling of a model with two bases, known by its name or by its keys."""
    model_type = facts.get("model_type")
    if model_type in LAYERED:
        return LAYERED[model_type]
    for key, family in (
        ("rope_local_base_freq", "gemma3_text"),
        ("local_rope_theta", "modernbert"),
    ):
        if key in facts:
            return LAYERED[family]
    return None


def pick_layer(layers: Parameters, layer_type: str | None) -> str:
    """The layer type that is asked for, or the only one."""
    names = ", ".join(layers)
    if layer_type is None and len(layers) == 1:
        return next(iter(layers))
    if layer_type is None:
        raise ValueError(f"layer_type is None; the layer types differ: pass one of {names}")
    if layer_type not in layers:
        raise ValueError(f"layer_type is {layer_type!r}; it must be one of {names}: pass one")
    if layers[layer_type] is None:
        raise ValueError(
            f"layers of type {layer_type!r} do not rotate; only those with parameters do: leave "
            "their queries and keys as they are"
        )
    return layer_type


def check_flat(facts: Mapping[str, Any], layer_type: str | None) -> None:
    """Refuse a layer type that a configuration with one RoPE for all does not name."""
    if layer_type is not None and layer_type not in listing("layer_types", facts):
        raise ValueError(
            f"layer_type is {layer_type!r}; this configuration has one RoPE for all layers: leave "
            "layer_type out"
        )


def mapping(key: str, facts: Mapping[str, Any]) -> Parameters:
    """The dict under a key, empty where the key is absent or None."""
    value = facts.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(
            f"{key} is a {type(value).__name__}; it must be a dict such as "
            '{"rope_type": "linear", "factor": 2.0}, or None: pass one of the two'
        )
    return dict(value)


def check_keys(name: str, facts: Mapping[Any, Any]) -> None:
    """Refuse a key that is no string, which no JSON has."""
    for key in facts:
        if not isinstance(key, str):
            raise TypeError(
                f"{name} holds the key {key!r}; its keys must be strings, as those of JSON are: "
                f"rename it to {str(key)!r}, or remove it"
            )


def agree(key: str, here: str, one: Any, there: str, other: Any) -> None:
    """Refuse two spellings of one key that say different things."""
    if one != other:
        raise ValueError(
            f"{key} is {one!r} {here} and {other!r} {there}; they must be the same: remove the one "
            "that is not meant"
        )


def listing(key: str, facts: Mapping[str, Any]) -> list[Any]:
    """The list under a key, empty where the key is absent or None."""
    value = facts.get(key)
    if value is not None and not isinstance(value, (list, tuple)):
        raise TypeError(f"{key} is {value!r}; it must be a list, one entry a layer: pass [...]")
    return list(value or ())
