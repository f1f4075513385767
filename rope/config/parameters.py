"""The rotation's parameters in one dict, in whichever spelling, and the extension that they give.

Version 4 of transformers has the base at the top and the extension in `rope_scaling`; version 5 has
all of it in `rope_parameters`, flat, or one dict a layer type. Each `rope_type` takes the fields of
its extension's class, by name; what it does not take is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from rope.checks import check_count
from rope.config.models import FIXED_BASE, GENERAL
from rope.config.source import agree, held, present
from rope.extensions import REGISTRY, Extension
from rope.scalars import check_base

Parameters = dict[str, Any]
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
#: What a configuration may hold beside the fields, whatever the type.
ALL_TAKE = (
    "rope_type",
    "rope_theta",
    "partial_rotary_factor",
    "mrope_section",
    "mrope_interleaved",
)
TRAINED = "original_max_position_embeddings"
#: The keys that must be there, and other spellings: Mistral's of the length, Phi-3.5-MoE's of
#: the attention factor, once for short texts and once for long ones.
_NEEDED: dict[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}
_ALSO = {"yarn": ("max_position_embeddings",), "longrope": ("short_mscale", "long_mscale")}
_ELSEWHERE = {
    "llama_4_scaling_beta": "it scales queries by their position, outside the rotation: do that in "
    "the attention, and leave the key out here",
    "alpha": "it enlarges the base for good: leave rope_scaling out here, and pass "
    "extension=NTK(alpha) to RotaryEmbedding",
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


def takes(kind: str) -> tuple[str, ...]:
    """The keys of a type's own; the type itself is refused where no configuration has it."""
    known = [name for name in REGISTRY if name != "ntk"]
    if kind not in known:
        raise ValueError(
            f"rope_type is {kind!r}; it must be one of {', '.join(known)}, or their older names su "
            "and mrope: pass an extension of rope.extensions to RotaryEmbedding, or build a "
            "rope.axes.MultiAxisRotaryEmbedding for a grid"
        )
    return *(field.name for field in fields(REGISTRY[kind])), *_ALSO.get(kind, ())


def refuse_unknown(parameters: Parameters) -> None:
    """Refuse a type that is not known, a key that it does not take, and a key that it lacks."""
    kind = parameters.get("rope_type", "default")
    allowed = dict.fromkeys((*ALL_TAKE, *takes(kind)))
    for key in parameters.keys() - allowed.keys():
        why = _ELSEWHERE.get(key, "remove it, or name the rope_type that takes it")
        raise ValueError(
            f"{key!r} is no parameter of rope_type {kind!r}, which takes {', '.join(allowed)}: "
            f"{why}"
        )
    for key in _NEEDED.get(kind, ()):
        if key not in parameters:
            raise ValueError(f"rope_type {kind!r} has no {key!r}; it must have one: add its number")


def build_extension(parameters: Parameters, longest: int | None) -> Extension:
    """The extension of these parameters; its own checks refuse bad numbers.

    longest: max_position_embeddings, the trained length where nothing else says it; or None.

    >>> build_extension({"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}, 4096)
    DynamicNTK(factor=2.0, original_max_position_embeddings=4096)
    """
    kind = parameters["rope_type"]
    arguments = {key: value for key, value in parameters.items() if key in takes(kind)}
    if TRAINED in takes(kind):
        if kind in ("yarn", "longrope") and not arguments.keys() & {"factor", TRAINED}:
            raise ValueError(
                f"rope_type {kind!r} has neither 'factor' nor {TRAINED!r}; one of the two must say "
                "how far the context is extended: add factor"
            )
        if longest is not None:
            check_count(TRAINED, arguments.setdefault(TRAINED, longest))
            # As in transformers, a missing factor is the ratio of the lengths (Phi-3, say).
            arguments.setdefault("factor", longest / arguments[TRAINED])
        elif kind == "dynamic" or not {"factor", TRAINED} <= arguments.keys():
            raise ValueError(
                f"rope_type {kind!r} depends on the length that the model was trained at, and the "
                "configuration has no max_position_embeddings; max_seq_len, the tables' length, "
                "cannot stand for it: add max_position_embeddings"
            )
    if kind == "dynamic":  # transformers takes the trained length from no other key
        trained = "as max_position_embeddings, where dynamic scaling starts"
        agree(TRAINED, "in the rope parameters", arguments[TRAINED], trained, longest)
    inside = arguments.pop("max_position_embeddings", longest)
    agree("max_position_embeddings", "in the rope parameters", inside, "outside", longest)
    for key in _ALSO["longrope"]:
        if key in arguments:
            factor = arguments.pop(key)
            other = arguments.setdefault("attention_factor", factor)
            agree(key, "here", factor, "as attention_factor, one for all lengths", other)
    return REGISTRY[kind](**arguments)
