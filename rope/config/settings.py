"""What a configuration says about rotation, in this package's terms.

Shapes: D head dimension, R rotated width. Checked against transformers 5.23, model by model, by
`tests/test_config_models.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rope.checks import check_count
from rope.config.classes import check_family, class_facts
from rope.config.layers import longest_context, rotating_layers, widths
from rope.config.models import LAYOUTS, SECTIONS, TAKING_TURNS
from rope.config.parameters import Parameters, build_extension, layer_entries, rope_parameters
from rope.config.source import agree, read_config, refuse_unread, text_facts
from rope.extensions import Extension, YaRN, mscale
from rope.scalars import check_flag


@dataclass(frozen=True)
class RotarySettings:
    """The settings of one RotaryEmbedding, equal when every number is.

    dim: the rotated width R; head_dim: D of the tensor that is rotated. With multi-head latent
    attention that tensor is the rotary part alone (qk_rope_head_dim), and both are its width.
    max_position_embeddings: None where neither the configuration nor the model's class has it.
    sections, interleaved_sections: M-RoPE's planes per axis, and whether the axes take turns.
    softmax_scale: what the model multiplies the usual 1/sqrt of its query width by. DeepSeek's
    models carry YaRN's temperature there, as mscale(factor, mscale_all_dim)**2, and not in the
    tables; it is 1.0 elsewhere. No rotation can carry it, so the attention must.
    rotates: for each layer whether it rotates, be it by these numbers or by those of another layer
    type; None where nothing tells one layer from another. The others' queries and keys stay.

    >>> rotary_settings({"model_type": "llama", "head_dim": 64, "max_position_embeddings": 2048})
    RotarySettings(dim=64, head_dim=64, base=10000.0, extension=Default(), interleaved=False,
        max_position_embeddings=2048, sections=None, interleaved_sections=False, softmax_scale=1.0,
        rotates=None)
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
    config: Any, *, layer_type: str | None = None, interleaved: bool | None = None
) -> RotarySettings:
    """Read the rotation out of a transformers configuration, whole or not at all.

    config: the configuration object (anything with `to_dict`), its dict, its JSON text, the path
    of its JSON file or of the model's folder, as versions 4 and 5 of transformers write it; it is
    not changed. Where it has a `text_config`, that is read. Other models that it describes are left
    alone: its vision_config and audio_config, and parts with a model_type of their own.
    layer_type: which layers, where they differ ("full_attention", say); they must rotate.
    interleaved: the layout of the weights at hand. None takes the model's own, which needs a
    known model_type; given, it wins, for checkpoints that were converted to the other layout.
    Families of transformers that were not compared with their code are refused by name.
    A key that holds None counts as absent, and an absent base, width, share or length as what
    transformers fills in for the model_type. Raises TypeError for a value of the wrong kind, and
    ValueError, naming the key, for whatever is unknown, contradictory, odd or not enough: a key
    about rotation in a place where nothing reads it, and a near miss of one, are unknown.

    >>> from rope.config import example
    >>> settings = rotary_settings(example("gpt-neox-20b"))
    >>> settings.dim, settings.head_dim, settings.base, settings.interleaved
    (24, 96, 10000.0, False)
    >>> rotary_settings({"model_type": "llama", "head_dim": 64, "rope_scaling": {"factor": 8.0}})
    Traceback (most recent call last):
    ValueError: 'factor' is no parameter of rope_type 'default', which takes rope_type, rope_theta,
    partial_rotary_factor, mrope_section, mrope_interleaved: remove it, or name the rope_type that
    takes it
    """
    whole = read_config(config)
    facts = text_facts(whole)
    _check_model(facts)
    refuse_unread(whole)
    entries = layer_entries(facts)
    standard = class_facts(facts, entries)
    complete = {**standard, **facts}
    layout = _layout(complete) if interleaved is None else interleaved
    check_flag("interleaved", layout)
    rotates = rotating_layers(complete, {**layer_entries(standard), **entries}, layer_type)
    parameters = rope_parameters(facts, entries, standard, layer_type)
    head_dim, dim = widths(complete, parameters, layer_type)
    longest = longest_context(facts) or longest_context(standard)
    extension = build_extension(parameters, longest)
    sections, taking_turns = _sections(facts.get("model_type"), standard, parameters, dim)
    return RotarySettings(
        dim=dim,
        head_dim=head_dim,
        base=float(parameters["rope_theta"]),
        extension=extension,
        interleaved=layout,
        max_position_embeddings=longest,
        sections=sections,
        interleaved_sections=taking_turns,
        softmax_scale=_softmax_scale(facts, extension),
        rotates=rotates,
    )


def _check_model(facts: Mapping[str, Any]) -> None:
    """Refuse a model that rotates otherwise, not at all, or more than queries and keys."""
    model_type = facts.get("model_type")
    check_family(model_type)
    # RoFormer's class writes BERT's "absolute" and rotates all the same; Granite 4 must say "rope".
    kinds = ("rope", "rotary", "absolute" if model_type == "roformer" else "rope")
    usual = None if model_type == "granitemoehybrid" else "rope"
    for key, fits in {
        "alibi": not facts.get("alibi"),
        "rotary": facts.get("rotary", True),
        "rotary_value": not facts.get("rotary_value"),
        "position_embedding_type": facts.get("position_embedding_type", usual) in kinds,
    }.items():
        if not fits:
            raise ValueError(
                f"{key} is {facts.get(key)!r}; this model must rotate queries and keys, and them "
                "alone: use no RotaryEmbedding in it, or correct the key"
            )
    check_flag("rope_interleave", facts.get("rope_interleave", False))


def _layout(facts: Mapping[str, Any]) -> bool:
    """The layout of the weights as the model's code has it, or as the key says."""
    model_type, by_key = facts.get("model_type"), facts.get("rope_interleave")
    known = None if model_type is None else LAYOUTS.get(model_type)
    if known is None and by_key is None:
        raise ValueError(
            f"model_type is {model_type!r}, whose layout is not known here; no configuration says "
            "it: pass interleaved=True for planes (2j, 2j+1), or False for (j, j + R/2)"
        )
    if None not in (known, by_key):
        agree("rope_interleave", "here", by_key, f"in the code of {model_type}", known)
    return bool(by_key if known is None else known)


def _sections(
    model_type: str | None, standard: Mapping[str, Any], parameters: Parameters, dim: int
) -> tuple[tuple[int, ...] | None, bool]:
    """M-RoPE's sections, whose sum must be R/2, and whether the axes take turns."""
    turns = parameters.get("mrope_interleaved", model_type in TAKING_TURNS)
    check_flag("mrope_interleaved", turns)
    usual = next((sections for sections, models in SECTIONS.items() if model_type in models), None)
    if usual:
        known = model_type in TAKING_TURNS
        agree("mrope_interleaved", "here", turns, f"in the code of {model_type}", known)
    sections = parameters.get("mrope_section", usual)
    if sections is None:
        return None, False
    if standard and not usual and "mrope_interleaved" not in parameters:
        raise ValueError(
            f"mrope_section is {list(sections)}, and the code of {model_type} is not known here; "
            "whether its axes take turns must be said: add mrope_interleaved, True or False"
        )
    for section in sections:
        check_count("each of mrope_section", section, smallest=0)
    if sum(sections) != dim // 2:
        raise ValueError(
            f"mrope_section is {list(sections)}, {sum(sections)} planes; it must share out the "
            f"{dim // 2} planes of a rotated width of {dim}: correct mrope_section"
        )
    return tuple(sections), turns


def _softmax_scale(facts: Mapping[str, Any], extension: Extension) -> float:
    """DeepSeek's place for YaRN's temperature: the scale of the scores, hence the square."""
    latent = "qk_rope_head_dim" in facts
    if latent and isinstance(extension, YaRN) and extension.mscale_all_dim:
        return mscale(extension.factor, extension.mscale_all_dim) ** 2
    return 1.0
