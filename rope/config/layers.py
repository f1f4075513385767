"""Which layers rotate: by a configuration's own lists, its layer types, and the model's code.

What a configuration leaves out is as `class_facts` completes it.
"""

from collections.abc import Mapping
from typing import Any

from rope.checks import check_count
from rope.config.models import ALL_OR_WINDOWS, WINDOWS_ALONE
from rope.config.parameters import Entries, no_rotation
from rope.config.source import held

#: Types of layers that have no queries and keys, or that leave theirs as they are.
_WITHOUT_ATTENTION = ("conv", "linear_attention", "mamba", "moe", "recurrent")


def rotating_layers(
    facts: Mapping[str, Any], entries: Entries, layer_type: str | None
) -> tuple[bool, ...] | None:
    """Whether each layer rotates; None where nothing tells one from another.

    Raises ValueError where no layer of `layer_type` does, and for lists shorter than the model.

    >>> rotating_layers({"no_rope_layer_interval": 3, "num_hidden_layers": 4}, {}, None)
    (True, True, False, True)
    """
    kinds = held(list, "layer_types", facts)
    lists = {
        "no_rope_layers": held(list, "no_rope_layers", facts),  # 1 where a layer does rotate
        "layer_types": [_type_rotates(kind, facts, entries) for kind in kinds],
    }
    crossing = held(list, "cross_attention_layers", facts)  # their keys are an image's
    interval = facts.get("no_rope_layer_interval")
    if interval is None and not any((*lists.values(), crossing)):
        return None
    number = facts.get("num_hidden_layers", max(map(len, lists.values())))
    check_count("num_hidden_layers", number)
    if interval is not None and not lists["no_rope_layers"]:
        check_count("no_rope_layer_interval", interval)
        lists["no_rope_layers"] = [(layer + 1) % interval for layer in range(number)]
    for key, flags in lists.items():
        if flags and len(flags) < number:
            raise ValueError(
                f"{key} holds {len(flags)} entries and num_hidden_layers is {number}; there must "
                "be one a layer: add the missing ones"
            )
    rotates = tuple(
        layer not in crossing and all(flags[layer] for flags in lists.values() if flags)
        for layer in range(number)
    )
    if layer_type in kinds and (True, layer_type) not in zip(rotates, kinds, strict=False):
        raise no_rotation(layer_type)
    return None if all(rotates) else rotates


def _type_rotates(kind: str, facts: Mapping[str, Any], entries: Entries) -> bool:
    """Whether the layers of one type do."""
    if kind in _WITHOUT_ATTENTION or entries.get(str(kind), {}) is None:
        return False
    model_type, window = facts.get("model_type"), facts.get("sliding_window")
    if model_type in WINDOWS_ALONE or (model_type in ALL_OR_WINDOWS and window is not None):
        return kind == "sliding_attention" and window is not None
    return True
