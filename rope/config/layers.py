"""What the layers of a configuration are: how wide, how long, and which of them rotate.

R is int(D * partial_rotary_factor), as transformers has it; an odd R is refused. What a
configuration leaves out is as `class_facts` completes it.

Shapes: D head dimension, R rotated width.
"""

from collections.abc import Mapping
from typing import Any

from rope.checks import check_count
from rope.config.models import ALL_OR_WINDOWS, WINDOWS_ALONE
from rope.config.parameters import Entries, Parameters, no_rotation
from rope.config.source import agree, held
from rope.scalars import check_number

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


def longest_context(facts: Mapping[str, Any]) -> int | None:
    """The length that the model is made for; None where that is not said."""
    return _count(facts, "max_position_embeddings", "n_positions", "max_seq_len")


def widths(
    facts: Mapping[str, Any], parameters: Parameters, layer_type: str | None
) -> tuple[int, int]:
    """D and R. With multi-head latent attention both are qk_rope_head_dim."""
    latent = _count(facts, "qk_rope_head_dim")
    head_dim = latent or _head_dim(facts, layer_type)
    share = parameters.get("partial_rotary_factor", 1.0)
    check_number("partial_rotary_factor", share, above=0)
    stated = {name: _count(facts, name) for name in ("qk_rope_head_dim", "rotary_dim")}
    if "partial_rotary_factor" in parameters and (latent is None or share != 1):
        whole = facts.get("head_dim", latent) if latent else head_dim
        stated["partial_rotary_factor"] = int(whole * share)
    if parameters["rope_type"] == "proportional":
        stated = {}  # the share says how many planes turn, not how wide the tables are
    whole_head = {"head_dim": head_dim}
    rotated = {name: width for name, width in stated.items() if width is not None} or whole_head
    (first, dim), *others = rotated.items()
    for name, width in others:
        agree("the rotated width", f"by {first}", dim, f"by {name}", width)
    if dim % 2 or not 0 < dim <= head_dim:
        raise ValueError(
            f"{first} gives a rotated width of {dim} in a head of {head_dim}; it must be even and "
            f"within the head, since each plane takes two coordinates: correct {first}"
        )
    return head_dim, dim


def _head_dim(facts: Mapping[str, Any], layer_type: str | None) -> int:
    """D of the layers at hand, which must have one width, those with an entry of their own too."""
    layers = held(dict, "per_layer_config", facts).items()
    own = {int(number): _count(layer, "head_dim") for number, layer in layers}
    kinds = held(list, "layer_types", facts)
    here = [number for number, kind in enumerate(kinds) if layer_type in (None, kind)]
    # Where nothing says how many layers there are, some are taken to have no entry.
    numbers = here if kinds else [-1, *own]
    common = _common(facts, layer_type)
    head_dims = {own.get(number) or common for number in numbers or [-1]}
    if len(head_dims) > 1:
        which = "" if layer_type is None else f" of type {layer_type!r}"
        raise ValueError(
            f"the layers{which} have heads of {sorted(head_dims)}; one width must do for all: pass "
            "a configuration of one of them"
        )
    return head_dims.pop()


def _common(facts: Mapping[str, Any], layer_type: str | None) -> int:
    """D as it stands for all layers: given, or the model's width over its heads."""
    head_dim = _count(facts, "head_dim", "kv_channels", "attention_head_dim")
    if layer_type == "full_attention":
        head_dim = _count(facts, "global_head_dim") or head_dim
    width = _count(facts, "hidden_size", "n_embd", "d_model")
    heads = _count(facts, "num_attention_heads", "n_head", "n_heads")
    if head_dim is not None:
        return head_dim
    if width is None or heads is None:
        raise ValueError(
            "the configuration has neither head_dim nor hidden_size and num_attention_heads; the "
            "head's width must be known: add head_dim, or pass the text model's part"
        )
    if width % heads:
        raise ValueError(
            f"hidden_size is {width} and num_attention_heads {heads}; the first must be a multiple "
            "of the second: add head_dim"
        )
    return width // heads


def _count(facts: Mapping[str, Any], *names: str) -> int | None:
    """One count in any of its spellings, which must agree; None where there is none."""
    spellings = [name for name in names if facts.get(name) is not None]
    for name in spellings:
        check_count(name, facts[name])
        first = spellings[0]
        agree(first, "by that name", facts[first], f"as {name}", facts[name])
    return int(facts[spellings[0]]) if spellings else None
