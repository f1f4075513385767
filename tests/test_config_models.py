"""Every model type of the layout table, run against the model's own rotation in transformers.

The oracle is not ours: the configuration class with its defaults, the rotary module that it makes
and the function that its attention calls. The whole chain is checked at once: base, width, share,
extension, attention factor, layout.
"""

import importlib
import inspect

import pytest
import torch
from strategies import normal, tolerance

import rope
from rope.axes import axis_tables, section_frequencies
from rope.config import rotary_settings
from rope.config.models import _SECTIONS, KNOWN, LAYOUT_BY_KEY, NEEDS_PARAMETERS, NOT_COVERED
from rope.layouts import half_to_interleaved

auto = importlib.import_module("transformers.models.auto.configuration_auto")

LENGTH = 24
# What the defaults of a class lack, or have in disagreement; its checkpoints' files do have it.
COMPLETE = {
    "bailing_hybrid": {"max_position_embeddings": 4096},
    "cohere_compass_text": {
        "layer_types": ["full_attention"],
        "num_hidden_layers": 1,
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5e4}},
    },
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "glm4v_text": {"partial_rotary_factor": 0.5},
    "glm_image_text": {"partial_rotary_factor": 0.5},
    "qwen3_omni_moe_talker_text": {"head_dim": 128},
    "qwen3_omni_moe_text": {"head_dim": 128},
    "qwen4_exp_text": {"partial_rotary_factor": 0.25},
    "recurrent_gemma": {"max_position_embeddings": 8192},
}
# Kept by the configuration object, but not written by its to_dict().
UNSAVED = ("max_position_embeddings", "head_dim", "partial_rotary_factor")
# These two scale queries by position as well, outside the rotation: refused until it is left out.
ELSEWHERE = {"ministral3", "mistral4"}
MODELS = sorted(KNOWN - {"qwen2_vl", "qwen2_5_vl"})  # those two are the older name of ..._text


def configuration(model_type):
    """The configuration with its defaults, completed, and its dict without what is not RoPE's."""
    completion = COMPLETE.get(model_type, {})
    config = auto.CONFIG_MAPPING[model_type](**completion)
    facts = config.to_dict() | {k: v for k, v in completion.items() if k in UNSAVED}
    if model_type in ELSEWHERE:
        del facts["rope_parameters"]["llama_4_scaling_beta"]
    return config, facts


def layer_types(facts):
    """The layer types that differ and occur, or None for the only one."""
    parameters = facts.get("rope_parameters") or {}
    nested = [key for key, value in parameters.items() if isinstance(value, dict)]
    return [key for key in nested if key in facts["layer_types"]] or [None]


def modeling(config):
    return importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))


def their_tables(module, config, layer_type, position_ids=None):
    """What the model's rotary module gives to its attention: cos and sin, or cos + i sin."""
    rotary_kinds = [
        kind
        for name, kind in vars(module).items()
        if name.endswith("RotaryEmbedding")
        and not name.endswith(("VisionRotaryEmbedding", "DiTRotaryEmbedding"))
    ]
    named = [kind for kind in rotary_kinds if type(config).__name__ in str(annotation(kind))]
    rotary = (named or rotary_kinds)[0](config=config)
    if position_ids is None:
        position_ids = torch.arange(LENGTH)[None]
        if hasattr(rotary, "mrope_section"):
            position_ids = position_ids.expand(3, 1, LENGTH)
    takes = inspect.signature(type(rotary).forward).parameters
    arguments = {"layer_type": layer_type} if "layer_type" in takes else {}
    return rotary(torch.zeros(1, LENGTH, 4), position_ids, **arguments)


def annotation(kind):
    return inspect.signature(kind.__init__).parameters["config"].annotation


def their_rotation(config, facts, layer_type, x):
    """x `[1, 2, LENGTH, D]` as the model's attention rotates it."""
    module, model_type = modeling(config), facts["model_type"]
    if model_type in ("gptj", "codegen"):
        table = module.create_sinusoidal_positions(LENGTH, facts["rotary_dim"])
        sin, cos = table[None].chunk(2, dim=-1)
        return module.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2)
    if model_type == "roformer":
        attention = module.RoFormerSelfAttention
        table = module.RoFormerSinusoidalPositionalEmbedding(LENGTH, x.shape[-1])
        table.weight = torch.nn.Parameter(table.create_weight(), requires_grad=False)
        return attention.apply_rotary_position_embeddings(table.weight[None, None], x, x)[0]
    tables = their_tables(module, config, layer_type)
    if torch.is_tensor(tables):
        if model_type == "llama4_text":  # its heads stand behind its sequence
            x = x.transpose(1, 2)
            return module.apply_rotary_emb(x, x, tables)[0].transpose(1, 2)
        return module.apply_rotary_emb(x, x, tables)[0]
    if "apply_rotary_pos_emb_interleave" in vars(module):
        halves = module.apply_rotary_pos_emb_interleave(x, x, *tables)[0]
        return half_to_interleaved(halves)  # the permutation that queries and keys share
    rotate = module.apply_rotary_pos_emb
    takes = list(inspect.signature(rotate).parameters)
    if takes[0] == "x":
        return rotate(x, *tables)
    return rotate(x, x, *tables)[0]


@pytest.mark.parametrize("model_type", MODELS)
def test_settings_rotate_as_the_model_does(model_type):
    config, facts = configuration(model_type)
    for layer_type in layer_types(facts):
        settings = rotary_settings(facts, layer_type=layer_type)
        x = normal((1, 2, LENGTH, settings.dim), seed=LENGTH, dtype=torch.float32)
        inv_freq = rope.inverse_frequencies(
            settings.dim, settings.base, extension=settings.extension
        )
        scale = settings.extension.attention_scaling
        cos, sin = rope.rotary_tables(LENGTH, inv_freq, scale=scale)
        ours = rope.rotary_embedding(x, cos, sin, interleaved=settings.interleaved)
        theirs = their_rotation(config, facts, layer_type, x)
        # Their frequency and angle are float32: a few roundings, of an angle of up to LENGTH.
        bound = tolerance(torch.float32, LENGTH * 2 * scale * float(x.abs().max()))
        assert float((ours - theirs).abs().max()) <= bound, (model_type, layer_type)


SECTIONED = sorted(set(" ".join(_SECTIONS.values()).split()) & set(MODELS))


@pytest.mark.parametrize("model_type", SECTIONED)
def test_sections_give_each_plane_the_axis_that_the_model_gives_it(model_type):
    config, facts = configuration(model_type)
    for layer_type in layer_types(facts):
        settings = rotary_settings(facts, layer_type=layer_type)
        position_ids = torch.randint(0, LENGTH, (3, LENGTH), generator=torch.manual_seed(0))
        cos, _ = axis_tables(
            position_ids,
            section_frequencies(
                rope.inverse_frequencies(settings.dim, settings.base),
                settings.sections,
                interleaved_sections=settings.interleaved_sections,
            ),
        )
        theirs = their_tables(modeling(config), config, layer_type, position_ids[:, None])[0][0]
        # They write each column twice, side by side or in halves.
        once = theirs[:, ::2] if settings.interleaved else theirs[:, : cos.shape[-1]]
        bound = tolerance(torch.float32, 2 * LENGTH)
        assert float((cos - once).abs().max()) <= bound


WIDTHS = (
    "model_type hidden_size num_attention_heads max_position_embeddings n_embd n_head n_positions "
    "d_model n_heads max_seq_len qk_rope_head_dim layer_types"
)


@pytest.mark.parametrize("model_type", sorted(set(MODELS) - NEEDS_PARAMETERS - COMPLETE.keys()))
def test_what_is_absent_is_what_transformers_fills_in(model_type):
    facts = configuration(model_type)[1]
    bare = {key: facts[key] for key in WIDTHS.split() if key in facts}
    for layer_type in layer_types(facts):
        arguments = {"layer_type": layer_type}
        assert rotary_settings(bare, **arguments) == rotary_settings(facts, **arguments)


@pytest.mark.parametrize("model_type", sorted(NEEDS_PARAMETERS))
def test_defaults_that_are_more_than_a_base_must_be_written_out(model_type):
    with pytest.raises(ValueError, match="no rope_parameters; those of a"):
        rotary_settings({"model_type": model_type, "head_dim": 64, "rope_theta": 1e4})


@pytest.mark.parametrize("model_type", sorted(NOT_COVERED))
def test_models_that_the_settings_cannot_say_are_refused(model_type):
    with pytest.raises(ValueError, match=f"model_type is '{model_type}'"):
        rotary_settings(auto.CONFIG_MAPPING[model_type](), interleaved=False)


@pytest.mark.parametrize("model_type", sorted(LAYOUT_BY_KEY))
def test_rope_interleave_decides_the_layout_of_latent_attention(model_type):
    facts = configuration(model_type)[1]
    for interleaved in (True, False):
        facts["rope_interleave"] = interleaved
        assert rotary_settings(facts).interleaved is interleaved
