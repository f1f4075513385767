"""From parameters to an extension: the keys are its field names, its checks refuse bad numbers."""

from rope.checks import check_count
from rope.config.layers import Parameters
from rope.extensions import (
    Default,
    DynamicNTK,
    Extension,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
)


def build_extension(parameters: Parameters, longest: int) -> Extension:
    """The extension of these parameters; its own checks refuse bad numbers."""
    given = {
        key: value
        for key, value in parameters.items()
        if key not in ("rope_type", "rope_theta", "mrope_section", "mrope_interleaved")
    }
    share = given.pop("partial_rotary_factor", 1.0)
    kind = parameters["rope_type"]
    trained = "original_max_position_embeddings"
    if kind == "default":
        return Default()
    if kind == "linear":
        return Linear(**given)
    if kind == "proportional":
        return Proportional(partial_rotary_factor=share, **given)
    if kind == "dynamic":
        # Here max_position_embeddings is the trained length: transformers reads no other key.
        if given.setdefault(trained, longest) != longest:
            raise ValueError(
                f"{trained} is {given[trained]} and max_position_embeddings {longest}; dynamic "
                "scaling starts from max_position_embeddings: set it to the trained length"
            )
        return DynamicNTK(**given)
    if kind == "llama3":
        return Llama3(**{trained: longest, **given})
    if "factor" not in given and trained not in given:
        raise ValueError(
            f"rope_type {kind!r} has neither 'factor' nor {trained!r}; one of the two must say how "
            "far the context is extended: add factor"
        )
    check_count(trained, given.setdefault(trained, longest))
    # As in transformers, a missing factor is the ratio of the lengths (Phi-3, say).
    given.setdefault("factor", longest / given[trained])
    return _yarn(given, longest) if kind == "yarn" else _longrope(given)


def _yarn(given: Parameters, longest: int) -> Extension:
    repeated = given.pop("max_position_embeddings", longest)  # Mistral's files say it twice
    if repeated != longest:
        raise ValueError(
            f"max_position_embeddings is {repeated} in the rope parameters and {longest} outside; "
            "they must be the same: remove the one inside"
        )
    return YaRN(**given)


def _longrope(given: Parameters) -> Extension:
    """Phi-3.5-MoE spells the attention factor twice, for short texts and for long ones."""
    spelt = [given.pop(key) for key in ("short_mscale", "long_mscale") if key in given]
    for value in spelt:
        if value != given.setdefault("attention_factor", value):
            raise ValueError(
                f"short_mscale, long_mscale and attention_factor hold {value!r} and "
                f"{given['attention_factor']!r}; one factor must do for all lengths: give it as "
                "attention_factor"
            )
    return LongRoPE(**given)
