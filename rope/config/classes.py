"""Complete a configuration with the defaults of the model's class in transformers.

The defaults are the base, the head's width, the rotated share and the length. transformers is
imported only if it is needed: the families of `models.GENERAL` can be read without it.
"""

import copy
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from rope.config.layers import longest_context
from rope.config.models import GENERAL, LAYOUTS
from rope.config.parameters import Entries
from rope.config.source import HOLDERS, get_as, text_facts

#: Sizes, which differ between models of one class, so its defaults must not be used.
_SIZES = ("hidden_size", "n_embd", "d_model", "num_attention_heads", "n_head", "n_heads")


def class_facts(facts: Mapping[str, Any], entries: Entries) -> dict[str, Any]:
    """Return the configuration as the model's class completes it; empty for an unknown model.

    entries: `layer_entries(facts)`.
    Raises ValueError if transformers is missing, if its class rejects the configuration, or if the
    model type is one of transformers that is not in `models.LAYOUTS`.
    """
    model_type = facts.get("model_type")
    # For the general families, a class adds only a missing length.
    if model_type in GENERAL and (longest_context(facts) or find_spec("transformers") is None):
        return {}
    kind = _configuration_class(model_type)
    if kind is None:
        return {}
    if model_type not in LAYOUTS and kind.__module__.startswith("transformers."):
        raise ValueError(
            f"model_type is {model_type!r}, which is not among the {len(LAYOUTS)} whose code was "
            "compared with these settings; read its code and build RotaryEmbedding(dim, "
            "max_seq_len, base, interleaved=...) yourself"
        )
    arguments = {key: value for key, value in facts.items() if key != "model_type"}
    if "layer_types" in arguments:
        arguments.setdefault("num_hidden_layers", len(get_as(list, "layer_types", facts)))
    for holder in arguments.keys() & {*HOLDERS}:
        arguments[holder] = entries.get(None, entries)
    try:
        built = kind(**copy.deepcopy(arguments))
        complete = text_facts(built.to_dict())
    except Exception as error:  # classes raise many types
        raise ValueError(
            f"the class of model_type {model_type!r} in transformers rejects this configuration "
            f"({error}); correct it, or leave model_type out and pass interleaved=..."
        ) from error
    if "rope_parameters" in complete:
        complete.pop("rope_scaling", None)  # some classes keep both
    if getattr(built, "layer_types", None):  # a property of some classes
        complete["layer_types"] = list(built.layer_types)
    return {key: value for key, value in complete.items() if key not in _SIZES}


def _configuration_class(model_type: Any) -> Any:
    """Return the configuration class in transformers, or None for a model that it doesn't have."""
    if model_type is None:
        return None
    try:
        from transformers import CONFIG_MAPPING
    except ImportError:
        raise ValueError(
            f"model_type is {model_type!r}, whose defaults only transformers knows; install "
            "transformers, or leave model_type out and give interleaved=..., rope_theta, head_dim "
            "and partial_rotary_factor (1.0 for the whole head)"
        ) from None
    # get() would not load the class.
    return CONFIG_MAPPING[model_type] if model_type in CONFIG_MAPPING else None  # noqa: SIM401
