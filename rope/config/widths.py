"""How wide and how long: D, R and the longest context of a configuration.

R is int(D * partial_rotary_factor), as transformers has it; an odd R is refused.
"""

from collections.abc import Mapping
from typing import Any

from rope.checks import check_count, check_number
from rope.config.layers import Parameters, listing, mapping
from rope.config.models import family_default


def _first(facts: Mapping[str, Any], *names: str) -> int | None:
    """One count in any of its spellings, which must agree; None where there is none."""
    given = [name for name in names if name in facts]
    for name in given:
        check_count(name, facts[name])
        if facts[name] != facts[given[0]]:
            raise ValueError(
                f"{given[0]} is {facts[given[0]]} and {name} {facts[name]}; they are two names of "
                "one number and must be the same: remove the one that is not meant"
            )
    return int(facts[given[0]]) if given else None


def longest_context(facts: Mapping[str, Any]) -> int:
    longest = _first(facts, "max_position_embeddings", "n_positions", "max_seq_len")
    if longest is None:
        raise ValueError(
            "the configuration has no max_position_embeddings; the tables must have a first "
            "length: add the longest context that is meant"
        )
    return longest


def widths(
    facts: Mapping[str, Any], parameters: Parameters, layer_type: str | None
) -> tuple[int, int]:
    """D and R, as transformers has them: R is int(D * partial_rotary_factor)."""
    latent = _first(facts, "qk_rope_head_dim")
    head_dim = latent or head_width(facts, layer_type)
    share = parameters.get("partial_rotary_factor", 1.0)
    check_number("partial_rotary_factor", share, above=0)
    if share > 1:
        raise ValueError(
            f"partial_rotary_factor is {share}; it must be at most 1, the share of a head that is "
            "rotated: pass 1.0 for all of it"
        )
    if latent is not None and share != 1 and int(facts.get("head_dim", latent) * share) != latent:
        raise ValueError(
            f"qk_rope_head_dim is {latent} and partial_rotary_factor {share}; the first is already "
            "the rotated part: remove partial_rotary_factor"
        )
    dims = {}
    if latent is None and "partial_rotary_factor" in parameters:
        dims["partial_rotary_factor"] = int(head_dim * share)
    rotary_dim = _first(facts, "rotary_dim")
    if rotary_dim is None and not dims:
        rotary_dim = family_default(facts.get("model_type"), "rotary_dim")
    if rotary_dim is not None:
        dims["rotary_dim"] = rotary_dim
    if parameters["rope_type"] == "proportional":
        dims = {}  # the share says how many planes turn, not how wide the tables are
    if len(set(dims.values())) > 1:
        raise ValueError(
            f"partial_rotary_factor gives a rotated width of {dims['partial_rotary_factor']} and "
            f"rotary_dim {rotary_dim}; they must be the same: remove the one that is not meant"
        )
    name, dim = next(iter(dims.items()), ("head_dim", head_dim))
    if dim % 2 or not 0 < dim <= head_dim:
        raise ValueError(
            f"{name} gives a rotated width of {dim} in a head of {head_dim}; it must be even and "
            f"within the head, since each plane takes two coordinates: correct {name}"
        )
    return head_dim, dim


def head_width(facts: Mapping[str, Any], layer_type: str | None) -> int:
    """D of the layers at hand, which must have one width, those with an entry of their own too."""
    overrides = _overrides(facts)
    if not overrides:
        return _common_width(facts, layer_type)
    kinds = listing("layer_types", facts)
    if kinds:
        here = [number for number, kind in enumerate(kinds) if layer_type in (None, kind)]
        own = {overrides.get(number, {}).get("head_dim") for number in here}
    else:  # nothing says how many layers there are, so some are taken to have no entry
        own = {None, *(layer.get("head_dim") for layer in overrides.values())}
    if own <= {None}:
        return _common_width(facts, layer_type)
    widths = {_common_width(facts, layer_type) if width is None else width for width in own}
    if len(widths) > 1:
        which = "" if layer_type is None else f" of type {layer_type!r}"
        raise ValueError(
            f"the layers{which} have heads of {sorted(widths)}; one width must do for all: pass a "
            "configuration of one of them"
        )
    return int(widths.pop())


def _common_width(facts: Mapping[str, Any], layer_type: str | None) -> int:
    """D as it stands for all layers: given, the family's, or the model's width over its heads."""
    if layer_type == "full_attention" and "global_head_dim" in facts:
        return _first(facts, "global_head_dim") or 0
    head_dim = _first(facts, "head_dim", "kv_channels", "attention_head_dim") or family_default(
        facts.get("model_type"), "head_dim"
    )
    if head_dim is not None:
        return int(head_dim)
    width = _first(facts, "hidden_size", "n_embd", "d_model")
    heads = _first(facts, "num_attention_heads", "n_head", "n_heads")
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


def _overrides(facts: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """`per_layer_config`: what single layers have in another way, by the layer's number."""
    overrides = {}
    for key, layer in mapping("per_layer_config", facts).items():
        if not str(key).isdecimal() or not isinstance(layer, Mapping):
            raise TypeError(
                f"per_layer_config holds {key!r}: {layer!r}; it must hold a dict for the number of "
                'a layer, such as "0": {"head_dim": 64}: correct that entry'
            )
        overrides[int(key)] = {name: value for name, value in layer.items() if value is not None}
        if "head_dim" in overrides[int(key)]:
            check_count(f"head_dim in per_layer_config[{key}]", layer["head_dim"])
    return overrides
