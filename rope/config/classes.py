"""Complete a configuration with the defaults of the model's class in transformers.

The class supplies a missing base, head dimension, rotated share of a head, or context length.
transformers is imported only when needed: model types in `models.GENERAL` can be read without it.
"""

import copy
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from rope.config.layers import longest_context
from rope.config.models import GENERAL, LAYOUTS
from rope.config.parameters import Entries
from rope.config.source import HOLDERS, get_as, text_facts

#: Keys that set sizes. Models of one class differ in size, so its defaults would be wrong.
_SIZES = ("hidden_size", "n_embd", "d_model", "num_attention_heads", "n_head", "n_heads")


def class_facts(facts: Mapping[str, Any], entries: Entries) -> dict[str, Any]:
    """Return the configuration with its class's defaults, or {} if no class is needed or known.

    entries: the result of `layer_entries(facts)`.
    Raises ValueError if transformers is needed but not installed, if its class rejects the
    configuration, or if the model type is in transformers but not in `models.LAYOUTS`.
    """
    model_type = facts.get("model_type")
    # For model types in GENERAL, the class adds only a missing context length.
    if model_type in GENERAL and (longest_context(facts) or find_spec("transformers") is None):
        return {}
    kind = _configuration_class(model_type)
    if kind is None:
        return {}
    if model_type not in LAYOUTS and kind.__module__.startswith("transformers."):
        compared = f"which is not among the {len(LAYOUTS)} model types that rope.config knows"
        if "rope_parameters" not in kind.__dataclass_fields__:
            compared = "whose class has no RoPE parameters, so the model doesn't seem to rotate"
        raise ValueError(
            f"model_type is {model_type!r}, {compared}; if the model's code does rotate queries "
            "and keys, create RotaryEmbedding(dim, max_seq_len, base, interleaved=...) yourself"
        )
    arguments = {key: value for key, value in facts.items() if key != "model_type"}
    if "layer_types" in arguments:
        arguments.setdefault("num_hidden_layers", len(get_as(list, "layer_types", facts)))
    for holder in arguments.keys() & {*HOLDERS}:
        arguments[holder] = entries.get(None, entries)
    try:
        built = kind(**copy.deepcopy(arguments))
        complete = text_facts(built.to_dict())
    except Exception as error:  # classes raise many exception types
        raise ValueError(
            f"the class of model_type {model_type!r} in transformers rejects this configuration "
            f"({error}); correct the keys, or omit model_type and pass interleaved=..."
        ) from error
    if "rope_parameters" in complete:
        complete.pop("rope_scaling", None)  # some classes return both keys
    if getattr(built, "layer_types", None):  # some classes compute layer_types as a property
        complete["layer_types"] = list(built.layer_types)
    return {key: value for key, value in complete.items() if key not in _SIZES}


def _configuration_class(model_type: Any) -> Any:
    """Return the model type's configuration class in transformers, or None if it has none."""
    if model_type is None:
        return None
    try:
        from transformers import CONFIG_MAPPING
    except ImportError:
        raise ValueError(
            f"model_type is {model_type!r}, whose defaults only transformers knows; install "
            "transformers, or leave out model_type and specify interleaved=..., rope_theta, "
            "head_dim, and partial_rotary_factor (1.0 for the entire head)"
        ) from None
    # CONFIG_MAPPING.get() would not load the class.
    return CONFIG_MAPPING[model_type] if model_type in CONFIG_MAPPING else None  # noqa: SIM401
