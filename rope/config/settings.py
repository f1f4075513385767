"""Translate a transformers configuration into settings for RotaryEmbedding.

`tests/test_config_models.py` compares each model type with transformers 5.23.

Shapes: D head dimension, R rotated width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rope.checks import check_flag
from rope.config.classes import class_facts
from rope.config.layers import longest_context, one_layer, rotating_layers, widths
from rope.config.models import INTERLEAVED_SECTIONS, LAYOUTS, SECTIONS
from rope.config.parameters import build_extension, layer_entries, rope_parameters
from rope.config.source import check_equal, check_unread, read_config, text_facts
from rope.extensions import Extension, YaRN, mscale


@dataclass(frozen=True)
class RotarySettings:
    """Hold the settings of one RotaryEmbedding.

    dim: the rotated width R. head_dim: the head dimension D of the rotated tensor. In multi-head
    latent attention, it is a separate tensor with R = D (in DeepSeek-V4, the end of each head).
    max_position_embeddings: the context length, or None if it is unknown.
    sections: the planes per axis in M-RoPE, or None. interleaved_sections: True if axes alternate.
    softmax_scale: the factor by which the attention must multiply its usual scale, 1/sqrt(query
    width). It is 1.0 in most models. In DeepSeek's models, it is YaRN's temperature,
    mscale(factor, mscale_all_dim)**2.
    rotates: None if all layers rotate; otherwise one flag per layer, True if the layer rotates
    (with these settings or with those of another layer type).
    """

    dim: int
    head_dim: int
    base: float
    extension: Extension
    interleaved: bool
    max_position_embeddings: int | None
    sections: tuple[int, ...] | None = None
    interleaved_sections: bool = False
    softmax_scale: float = 1.0
    rotates: tuple[bool, ...] | None = None


def rotary_settings(
    config: Any,
    *,
    layer_type: str | None = None,
    layer: int | None = None,
    interleaved: bool | None = None,
) -> RotarySettings:
    """Return the settings of the rotation that a transformers configuration describes.

    config: a configuration written by transformers 4 or 5. It may be an object with `to_dict`, a
    dict, JSON text, or the path of a JSON file or of the model's folder. The function reads
    `text_config` if there is one. It ignores parts for other models, such as vision_config. It also
    ignores llama_4_scaling_beta, with which the attention must scale queries.
    layer_type: a type of rotating layers, such as "full_attention". layer: the number of a rotating
    layer, counted from 0. Pass layer_type or layer if not all layers have the same parameters.
    interleaved: the layout of the weights. None means the model's own layout, which requires a
    known model_type. Pass True or False for weights that were converted to the other layout.
    If the base, the width, the rotated share, or the context length is absent, the default of the
    model's class in transformers applies. A key whose value is None is treated as absent.
    Raises TypeError for a value of the wrong type, and ValueError for missing, unknown, or
    contradictory values, odd widths, and unknown model types. The message names the key.

    >>> from rope.config import example
    >>> settings = rotary_settings(example("gpt-neox-20b"))
    >>> settings.dim, settings.head_dim, settings.base, settings.interleaved
    (24, 96, 10000.0, False)
    """
    whole = read_config(config)
    facts = text_facts(whole)
    _check_model(facts)
    check_unread(whole)
    entries = layer_entries(facts)
    standard = class_facts(facts, entries)
    complete = {**standard, **facts}
    layout = _layout(complete) if interleaved is None else interleaved
    check_flag("interleaved", layout)
    rotates = rotating_layers(complete, {**layer_entries(standard), **entries}, layer_type)
    layer_type, base = one_layer(complete, rotates, layer, layer_type)
    parameters = rope_parameters(facts, entries, standard, layer_type)
    head_dim, dim = widths(complete, parameters, layer_type)
    longest = longest_context(facts) or longest_context(standard)
    extension = build_extension(parameters, longest)
    softmax_scale, latent = 1.0, "qk_rope_head_dim" in facts
    if latent and isinstance(extension, YaRN) and extension.mscale_all_dim:
        # YaRN's temperature scales queries and keys, so its square scales the scores.
        softmax_scale = mscale(extension.factor, extension.mscale_all_dim) ** 2
    model_type = facts.get("model_type")
    usual = next((sections for sections, models in SECTIONS.items() if model_type in models), None)
    sections = parameters.get("mrope_section", usual)
    alternate = parameters.get("mrope_interleaved", False)
    if usual:  # the code of these models ignores mrope_interleaved
        alternate = model_type in INTERLEAVED_SECTIONS
    return RotarySettings(
        dim=dim,
        head_dim=head_dim,
        base=float(base or parameters["rope_theta"]),
        extension=extension,
        interleaved=layout,
        max_position_embeddings=longest,
        sections=sections and tuple(sections),
        interleaved_sections=sections is not None and alternate,
        softmax_scale=softmax_scale,
        rotates=rotates,
    )


def _check_model(facts: Mapping[str, Any]) -> None:
    """Raise ValueError unless the model rotates its queries and keys and nothing else."""
    model_type = facts.get("model_type")
    # RoFormer rotates, although its class says "absolute". Granite 4 rotates only with "rope".
    kinds = ("rope", "rotary", "absolute" if model_type == "roformer" else "rope")
    usual = None if model_type == "granitemoehybrid" else "rope"
    for key, rotates in {
        "alibi": not facts.get("alibi"),
        "rotary": facts.get("rotary", True),
        "rotary_value": not facts.get("rotary_value"),
        "position_embedding_type": facts.get("position_embedding_type", usual) in kinds,
    }.items():
        if not rotates:
            raise ValueError(
                f"{key} is {facts.get(key)!r}, but RotaryEmbedding is for models that rotate "
                "queries and keys and nothing else; correct the key if it is wrong"
            )


def _layout(facts: Mapping[str, Any]) -> bool:
    """Return True if the model's code or its key rope_interleave specifies interleaved planes."""
    model_type, by_key = facts.get("model_type"), facts.get("rope_interleave")
    known = LAYOUTS.get(str(model_type))
    if known is None and by_key is None:
        raise ValueError(
            f"model_type is {model_type!r}, whose layout is unknown; set rope_interleave, or pass "
            "interleaved=True for planes (2j, 2j+1), interleaved=False for planes (j, j + R/2)"
        )
    if None not in (known, by_key):
        check_equal("rope_interleave", "here", by_key, f"in the code for {model_type}", known)
    return bool(by_key if known is None else known)
