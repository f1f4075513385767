"""The rotation's parameters in one dict, from either spelling that transformers has had.

Version 4: the base at the top, the extension in `rope_scaling`. Version 5: all of it in
`rope_parameters`, flat, or one dict a layer type. What a type does not take is refused by name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rope.config.extension import ALL_TAKE, TRAINED, Parameters, refuse_unknown, takes
from rope.config.models import FIXED_BASE, GENERAL
from rope.config.source import agree, held, present
from rope.scalars import check_base

#: One entry a layer type, None for layers that do not rotate; a flat form has one, under None.
Entries = dict[str | None, Parameters | None]

#: Keys at the top, the parameter that each gives, and whether it gives it to all layers.
_TOP = {
    "rope_theta": ("rope_theta", True),
    "rotary_emb_base": ("rope_theta", True),
    "partial_rotary_factor": ("partial_rotary_factor", True),
    "rotary_pct": ("partial_rotary_factor", True),
    "rope_local_base_freq": ("rope_theta", False),
    "local_rope_theta": ("rope_theta", False),
    "global_rope_theta": ("rope_theta", False),
}


def layer_entries(facts: Mapping[str, Any]) -> Entries:
    """What `rope_scaling` or `rope_parameters` say, by layer type, with no None among them.

    Raises TypeError for values of the wrong kind, ValueError for a type or key that is unknown and
    for spellings that contradict each other.

    >>> layer_entries({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})
    {None: {'rope_type': 'linear', 'factor': 2.0}}
    """
    old, new = (held(dict, key, facts) for key in ("rope_scaling", "rope_parameters"))
    if not any(isinstance(value, Mapping) for value in (*old.values(), *new.values())):
        flat, more = _canonical("rope_scaling", old), _canonical("rope_parameters", new)
        for key in flat.keys() & more.keys():
            agree(key, "in rope_scaling", flat[key], "in rope_parameters", more[key])
        entries: Entries = {None: {**flat, **more}}
    elif old and new:
        raise ValueError(
            "rope_parameters and rope_scaling do not both give one dict a layer type; one of them "
            "may be given, with such dicts: remove the other"
        )
    else:
        layers = old or new
        for key, value in layers.items():
            if value is not None and not isinstance(value, Mapping):
                raise ValueError(
                    f"rope_parameters holds {key!r} = {value!r} beside one dict a layer type; each "
                    f"value must be such a dict: move {key!r} into them"
                )
        entries = {key: value and _canonical(key, value) for key, value in layers.items()}
    for entry in filter(None, entries.values()):
        refuse_unknown(entry)
    return entries


def _canonical(name: str, holder: Mapping[str, Any]) -> Parameters:
    """One dict of parameters with its type under `rope_type`, by the name of today."""
    entry = present(holder)
    types = [_type(entry.pop(key), entry) for key in ("type", "rope_type") if key in entry]
    if len(types) == 2:
        agree(name, "in type", types[0], "in rope_type", types[1])
    if "interleaved" in entry and "mrope_section" in entry:  # as Qwen3-Omni spells it
        entry.setdefault("mrope_interleaved", entry.pop("interleaved"))
    return {"rope_type": types[-1], **entry} if types else entry


def _type(name: Any, entry: Parameters) -> Any:
    """The type's name of today: "su" and Phi-3's "yarn" were LongRoPE, "mrope" no extension."""
    if name == "su" or (name == "yarn" and "short_factor" in entry):
        return "longrope"
    return "default" if name == "mrope" else name


def rope_parameters(
    facts: Mapping[str, Any],
    entries: Entries,
    standard: Mapping[str, Any],
    layer_type: str | None,
) -> Parameters:
    """The parameters of one layer type, completed from the top and by the model's class.

    standard: the configuration as that class completes it, empty where there is none.
    Raises ValueError for a layer type that is missing or unknown, for a base that is, and for what
    contradicts the entries.

    >>> entries = layer_entries({"rope_scaling": {"type": "linear", "factor": 2.0}})
    >>> rope_parameters({"rope_theta": 5e5}, entries, {}, None)
    {'rope_type': 'linear', 'rope_theta': 500000.0, 'factor': 2.0}
    """
    top: Parameters = {}
    for alias, (key, for_all) in _TOP.items():
        if alias in facts and for_all:
            _check_top(alias, facts, (top, *entries.values()))
            top.setdefault(key, facts[alias])
    theirs = layer_entries(standard)
    if None in entries and None not in theirs:
        # An older spelling, with one key a layer type or the extension for some.
        for key, value in (entries[None] or {}).items():
            kept = [entry.get(key) for entry in theirs.values() if entry]
            if value not in kept:
                agree(key, "here", value, "in every layer as the model's class has it", kept)
        entries = theirs
    complete: Entries = {}
    for layer, entry in entries.items():
        more = theirs.get(layer, theirs.get(None)) or {}
        if entry:  # the class's extension is meant where the configuration says nothing
            more = {key: more[key] for key in ALL_TAKE[1:] if key in more}
        complete[layer] = entry if entry is None else {**top, **more, **entry}
    for alias in _TOP.keys() & facts.keys():
        _check_top(alias, facts, complete.values())
    picked = _picked(complete, {**standard, **facts}, layer_type)
    parameters = {"rope_type": "default", **picked}
    if facts.get("model_type") in GENERAL | FIXED_BASE:
        parameters.setdefault("rope_theta", 10000.0)
    _check_alone(parameters, facts)
    return parameters


def _check_top(alias: str, facts: Mapping[str, Any], entries: Iterable[Parameters | None]) -> None:
    """Refuse a key at the top that no entry repeats: one of several may well differ."""
    key, _ = _TOP[alias]
    inside = [entry[key] for entry in entries if entry and key in entry]
    if inside and facts[alias] not in inside:
        agree(key, f"at the top ({alias})", facts[alias], "inside", inside[0])


def _picked(entries: Entries, facts: Mapping[str, Any], layer_type: str | None) -> Parameters:
    """The entry that is asked for, or the only one."""
    if None in entries:
        if layer_type is not None and layer_type not in held(list, "layer_types", facts):
            raise ValueError(
                f"layer_type is {layer_type!r}; here is one RoPE for all layers: leave it out"
            )
        layer_type = None
    elif layer_type is None and len(entries) == 1:
        (layer_type,) = entries
    elif layer_type is None or layer_type not in entries:
        raise ValueError(
            f"layer_type is {layer_type!r}; the layer types differ, and it must be one of "
            f"{', '.join(map(str, entries))}: pass one"
        )
    entry = entries[layer_type]
    if entry is None:
        raise no_rotation(layer_type)
    return entry


def no_rotation(layer_type: str | None) -> ValueError:
    """The refusal of a layer type whose layers do not rotate."""
    return ValueError(
        f"layers of type {layer_type!r} do not rotate; only others do: leave their queries and "
        "keys as they are"
    )


def _check_alone(parameters: Parameters, facts: Mapping[str, Any]) -> None:
    """Refuse a base that is missing, and a length at the top that says something else."""
    if "rope_theta" not in parameters:
        raise ValueError(
            "the configuration has no rope_theta, and its model_type none that is known; the base "
            "must be given: add rope_theta, 10000.0 in RoFormer"
        )
    check_base(parameters["rope_theta"], "rope_theta")
    # Where the type takes no such number it says how the model was trained, and changes nothing.
    if TRAINED in facts and TRAINED in takes(parameters["rope_type"]):
        trained = parameters.setdefault(TRAINED, facts[TRAINED])
        agree(TRAINED, "at the top", facts[TRAINED], "inside", trained)
