"""What a model's class and code in transformers say where its configuration does not.

Chapter "Two layouts". The class fills in an absent base, a head's width, the share that is rotated.
Which coordinates make a plane, only the code tells that rotates them. Nothing of transformers is
loaded before it is asked; without it, the families of `models.GENERAL` are read.
"""

import copy
import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from rope.config.models import GENERAL, HALF, INTERLEAVED
from rope.config.parameters import Entries
from rope.config.source import held, text_facts
from rope.config.widths import longest_context

#: What no class may fill in: the sizes, which differ from model to model of one class.
_SIZES = ("hidden_size", "n_embd", "d_model", "num_attention_heads", "n_head", "n_heads")


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
    given = {key: value for key, value in facts.items() if key != "model_type"}
    if "layer_types" in given:
        given.setdefault("num_hidden_layers", len(held(list, "layer_types", facts)))
    for holder in given.keys() & {"rope_parameters", "rope_scaling"}:
        given[holder] = entries.get(None, entries)
    try:
        built = kind(**copy.deepcopy(given))
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


def model_layout(model_type: str | None, standard: Mapping[str, Any]) -> bool | None:
    """Whether the model's planes are (2j, 2j+1); None where its code does not tell.

    standard: `class_facts` of the configuration. Where that has `rope_interleave`, the code pairs
    neighbours but writes the result in halves, for queries and keys alike: one permutation of
    both, so every score is the interleaved one. Raises ValueError for code without any rotation.
    """
    if model_type in HALF | INTERLEAVED:
        return model_type in INTERLEAVED
    if "rope_interleave" in standard:
        return bool(standard["rope_interleave"])
    kind = _configuration_class(model_type)
    if kind is None:
        return None
    try:
        code = import_module(kind.__module__.replace("configuration_", "modeling_"))
    except ImportError:  # a class without code, or code without one of its libraries
        return None
    if not re.search("rotary|(?<!p)rope", inspect.getsource(code).lower()):  # "property" is none
        raise ValueError(
            f"model_type is {model_type!r}, whose code in transformers has no rotary embedding; "
            "there is none to read: pass the configuration of a model that rotates"
        )
    if hasattr(code, "apply_rotary_pos_emb_interleave"):
        return True
    rotate = getattr(code, "apply_rotary_pos_emb", None)
    return None if rotate is None else _layout_of(rotate)


def _configuration_class(model_type: str | None) -> Any:
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


def _layout_of(rotate: Any) -> bool | None:
    """The layout of a function that rotates queries and keys, seen in a quarter turn of 1 2 3 4."""
    x = torch.arange(1.0, 5.0).view(1, 1, 1, 4)
    vectors = [x] if "x" in inspect.signature(rotate).parameters else [x, x]
    for width in (4, 2):  # tables for each coordinate, or for each plane
        try:
            rotated = rotate(*vectors, torch.zeros(1, 1, width), torch.ones(1, 1, width))
        except (RuntimeError, TypeError):
            continue
        rotated = rotated[0] if isinstance(rotated, tuple) else rotated
        layouts = {(-3.0, -4.0, 1.0, 2.0): False, (-2.0, 1.0, -4.0, 3.0): True}
        return layouts.get(tuple(rotated.flatten().tolist()))
    return None
