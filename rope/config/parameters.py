"""The rotation's parameters in one dict, from either spelling that transformers has had.

Version 4: the base at the top, the extension in `rope_scaling`. Version 5: all of it in
`rope_parameters`, flat, or one dict a layer type. What a type does not take is refused by name.
"""

from collections.abc import Mapping
from typing import Any

from rope.checks import check_number
from rope.config.layers import (
    Parameters,
    agree,
    check_flat,
    layer_parameters,
    listing,
    mapping,
    pick_layer,
)
from rope.config.models import NEEDS_PARAMETERS, family_default

#: For each type the keys that it must have, and those that it may have.
TAKES: dict[str, tuple[str, str]] = {
    "default": ("", ""),
    "linear": ("factor", ""),
    "dynamic": ("factor", "original_max_position_embeddings"),
    "yarn": (
        "",
        "factor original_max_position_embeddings attention_factor beta_fast beta_slow mscale "
        "mscale_all_dim truncate max_position_embeddings",
    ),
    "longrope": (
        "short_factor long_factor",
        "factor original_max_position_embeddings attention_factor short_mscale long_mscale",
    ),
    "llama3": ("factor low_freq_factor high_freq_factor", "original_max_position_embeddings"),
    "proportional": ("", "factor"),
}
_ALL_TAKE = "rope_type rope_theta partial_rotary_factor mrope_section mrope_interleaved"
_ELSEWHERE = {
    "llama_4_scaling_beta": "it scales queries by their position, outside the rotation: do that in "
    "the attention, and leave the key out here",
    "alpha": "it enlarges the base for good: leave rope_scaling out here, and pass "
    "extension=NTK(alpha) to RotaryEmbedding",
}
_ALIASES = {
    "rope_theta": ("rope_theta", "rotary_emb_base"),
    "partial_rotary_factor": ("partial_rotary_factor", "rotary_pct"),
}


def rope_parameters(facts: Mapping[str, Any], layer_type: str | None = None) -> Parameters:
    """The parameters of one layer type as version 5 spells them, with no None among them.

    Raises TypeError for values of the wrong kind; ValueError for a type or key that is unknown,
    for spellings that contradict each other, and for a layer type that is missing or unknown.

    >>> rope_parameters({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})
    {'rope_type': 'linear', 'factor': 2.0, 'rope_theta': 500000.0}
    """
    model_type = facts.get("model_type")
    layers = layer_parameters(facts)
    if layers is None:
        check_flat(facts, layer_type)
        old, new = (_canonical(key, facts) for key in ("rope_scaling", "rope_parameters"))
        for key in old.keys() & new.keys():
            agree(key, "in rope_scaling", old[key], "in rope_parameters", new[key])
        flat, entries = {**old, **new}, [{**old, **new}]
    else:
        entries = [_canonical(key, {**layers, "model_type": model_type}) for key in layers]
        for entry in entries:  # those of the other layer types too
            _refuse_unknown({"rope_type": "default", **entry})
        flat = dict(entries[list(layers).index(pick_layer(layers, layer_type))])
    if not flat and model_type in NEEDS_PARAMETERS:
        raise ValueError(
            f"the configuration has no rope_parameters; those of a {model_type} must be given, "
            "since they are more than a base: add them as config.to_dict() of transformers has them"
        )
    flat = {"rope_type": "default", **flat}
    _refuse_unknown(flat)
    for key, aliases in _ALIASES.items():
        for alias in (alias for alias in aliases if alias in facts):
            for entry in [*entries, flat]:
                # One of several layer types may well differ from what stands at the top.
                if key in entry and all(other.get(key) != facts[alias] for other in entries):
                    agree(key, f"at the top ({alias})", facts[alias], "inside", entry[key])
            flat.setdefault(key, facts[alias])
        flat.setdefault(key, family_default(model_type, key))
    _outside(flat, facts)
    return {key: value for key, value in flat.items() if value is not None}


def _canonical(key: str, facts: Mapping[str, Any]) -> Parameters:
    """One dict of parameters with its type under `rope_type`, by the name of today."""
    given = {name: value for name, value in mapping(key, facts).items() if value is not None}
    types = [_type(given.pop(name), facts) for name in ("type", "rope_type") if name in given]
    if len(types) == 2:
        agree(key, "in type", types[0], "in rope_type", types[1])
    if "interleaved" in given and str(facts.get("model_type")).startswith("qwen3_omni_moe"):
        given.setdefault("mrope_interleaved", given.pop("interleaved"))
    return {"rope_type": types[-1], **given} if types else given


def _type(name: Any, facts: Mapping[str, Any]) -> str:
    """The type's name of today: "su" and Phi-3's "yarn" were LongRoPE, "mrope" no extension."""
    if not isinstance(name, str):
        raise TypeError(f"rope_type is {name!r}; it must be a string such as 'yarn': pass its name")
    if name == "su" or (name == "yarn" and facts.get("model_type") in ("phi3", "phi4_multimodal")):
        return "longrope"
    return "default" if name == "mrope" else name


def _refuse_unknown(flat: Parameters) -> None:
    """Refuse a type that is not known, a key that it does not take, and a key that it lacks."""
    kind = flat["rope_type"]
    if kind not in TAKES:
        way_out = (
            "build rope.axes.MultiAxisRotaryEmbedding.axial for a grid"
            if kind == "axial"
            else "pass an extension of rope.extensions to RotaryEmbedding"
        )
        raise ValueError(
            f"rope_type is {kind!r}; it must be one of {', '.join(TAKES)}, or their older names su "
            f"and mrope: {way_out}"
        )
    needed, optional = (keys.split() for keys in TAKES[kind])
    allowed = [*_ALL_TAKE.split(), *needed, *optional]
    for key in flat.keys() - set(allowed):
        why = _ELSEWHERE.get(key, "remove it, or name the rope_type that takes it")
        raise ValueError(
            f"{key!r} is no parameter of rope_type {kind!r}, which takes {', '.join(allowed)}: "
            f"{why}"
        )
    for key in needed:
        if key not in flat:
            raise ValueError(f"rope_type {kind!r} has no {key!r}; it must have one: add its number")


def _outside(flat: Parameters, facts: Mapping[str, Any]) -> None:
    """What stands at the top of the configuration and bears on these parameters."""
    if flat["rope_theta"] is None:
        raise ValueError(
            "the configuration has no rope_theta, and its model_type none that is known; the base "
            "must be given: add rope_theta, 10000.0 in RoFormer"
        )
    check_number("rope_theta", flat["rope_theta"], above=0)
    key = "original_max_position_embeddings"
    # Where the type takes no such number it says how the model was trained, and changes nothing.
    if key in facts and key in TAKES[flat["rope_type"]][1].split():
        agree(key, "at the top", facts[key], "inside", flat.setdefault(key, facts[key]))
    for base in listing("layer_rope_theta", facts):
        if base and base != flat["rope_theta"]:  # 0 and None mark a layer that does not rotate
            raise ValueError(
                f"layer_rope_theta holds {base} beside {flat['rope_theta']}; here all layers must "
                "share one base: leave that key out and set rope_theta to the layer's"
            )
    scaled = listing("rope_scaling_layers", facts)
    if scaled and flat["rope_type"] != "default" and len(scaled) != facts.get("num_hidden_layers"):
        raise ValueError(
            f"rope_scaling_layers holds {len(scaled)} of the layers; here all must share one RoPE: "
            "leave that key out, and rope_scaling too for the other layers"
        )
