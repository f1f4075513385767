"""What a model's class in transformers fills in where its configuration says nothing.

An absent base, a head's width, the share that is rotated, the length. Nothing of transformers is
loaded before it is asked; without it, the families of `models.GENERAL` are read.
"""

import copy
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from rope.config.layers import longest_context
from rope.config.models import GENERAL, LAYOUTS
from rope.config.parameters import Entries
from rope.config.source import held, text_facts

#: What no class may fill in: the sizes, which differ from model to model of one class.
_SIZES = ("hidden_size", "n_embd", "d_model", "num_attention_heads", "n_head", "n_heads")


def check_family(model_type: Any) -> None:
    """Refuse a family of transformers whose rotation is not read here; of others nothing is known.

    Raises ValueError, as well for what is not listed where transformers is not installed.
    """
    kind = None if model_type in LAYOUTS else _configuration_class(model_type)
    if kind is not None and kind.__module__.startswith("transformers."):
        raise ValueError(
            f"model_type is {model_type!r}; it must be one of the {len(LAYOUTS)} that were "
            "compared with their code in transformers, since no configuration says how the code "
            "rotates: read there which planes turn, in which layers and how fast, and build "
            "RotaryEmbedding(dim, max_seq_len, base, interleaved=...) yourself"
        )


def class_facts(facts: Mapping[str, Any], entries: Entries) -> dict[str, Any]:
    """Widths and rotary keys as the model's class completes them; none for an unknown model.

    entries: `layer_entries(facts)`, in the spelling of today.
    Raises ValueError where transformers is not installed, or where its class refuses the numbers.
    """
    model_type = facts.get("model_type")
    # To those of the general families a class adds the length alone, where that is absent.
    if model_type in GENERAL and (longest_context(facts) or find_spec("transformers") is None):
        return {}
    kind = _configuration_class(model_type)
    if kind is None:
        return {}
    arguments = {key: value for key, value in facts.items() if key != "model_type"}
    if "layer_types" in arguments:
        arguments.setdefault("num_hidden_layers", len(held(list, "layer_types", facts)))
    for holder in arguments.keys() & {"rope_parameters", "rope_scaling"}:
        arguments[holder] = entries.get(None, entries)
    try:
        built = kind(**copy.deepcopy(arguments))
        complete = text_facts(built.to_dict())
    except Exception as error:  # each class has its own
        raise ValueError(
            f"the class of model_type {model_type!r} in transformers does not take this "
            f"configuration ({error}): correct it, or leave model_type out and pass interleaved=..."
        ) from error
    if "rope_parameters" in complete:
        complete.pop("rope_scaling", None)  # some classes keep it beside
    if getattr(built, "layer_types", None):  # a property of some
        complete["layer_types"] = list(built.layer_types)
    return {key: value for key, value in complete.items() if key not in _SIZES}


def _configuration_class(model_type: Any) -> Any:
    """The class in transformers; None for a model that it does not know."""
    if model_type is None:
        return None
    try:
        from transformers import CONFIG_MAPPING
    except ImportError:
        raise ValueError(
            f"model_type is {model_type!r}, and what its class fills in is known to transformers "
            "alone: install transformers, or leave model_type out and give interleaved=..., "
            "rope_theta, head_dim and partial_rotary_factor (1.0 for a whole head) yourself"
        ) from None
    try:
        return CONFIG_MAPPING[model_type]  # it loads the class; get() would not
    except KeyError:
        return None
