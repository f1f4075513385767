"""From parameters to an extension: each `rope_type` takes the fields of its class, by name."""

from dataclasses import fields
from typing import Any

from rope.checks import check_count
from rope.config.source import agree
from rope.extensions import REGISTRY, Extension

Parameters = dict[str, Any]

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


def takes(kind: str) -> tuple[str, ...]:
    """The keys of a type's own; the type itself is refused where no configuration has it."""
    known = [name for name in REGISTRY if name != "ntk"]
    if kind not in known:
        way_out = (
            "build rope.axes.MultiAxisRotaryEmbedding.axial for a grid"
            if kind == "axial"
            else "pass an extension of rope.extensions to RotaryEmbedding"
        )
        raise ValueError(
            f"rope_type is {kind!r}; it must be one of {', '.join(known)}, or their older names su "
            f"and mrope: {way_out}"
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
