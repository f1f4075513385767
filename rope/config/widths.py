"""How wide and how long: D, R and the longest context of a configuration.

R is int(D * partial_rotary_factor), as transformers has it; an odd R is refused.
"""

from collections.abc import Mapping
from typing import Any

from rope._checks import check_count, check_number
from rope.config.layers import Parameters, listing, mapping
from rope.config.models import family_default


def _first(facts: Mapping[str, Any], *names: str) -> int | None:
    """The first of several spellings of one count."""
    for name in names:
        if name in facts:
            check_count(name, facts[name])
            return int(facts[name])
    return None


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
    """D of the layers at hand: given, the family's, or the model's width over its heads."""
    head_dim = _first(facts, "head_dim", "kv_channels", "attention_head_dim") or family_default(
        facts.get("model_type"), "head_dim"
    )
    overrides = mapping("per_layer_config", facts)
    kinds = listing("layer_types", facts)
    widths = {
        layer.get("head_dim", head_dim)
        for number, layer in ((int(key), value) for key, value in overrides.items())
        if number < len(kinds) and kinds[number] == layer_type
    }
    if len(widths) > 1:
        raise ValueError(
            f"the layers of type {layer_type!r} have heads of {sorted(widths)}; one width must do "
            "for all: pass a configuration of one of them"
        )
    if widths:
        return int(widths.pop())
    if layer_type == "full_attention" and "global_head_dim" in facts:
        return _first(facts, "global_head_dim") or 0
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
