"""Every model type that is read, against the model's own rotation in transformers.

The oracle is not ours: the configuration class with its defaults, the rotary module that it makes
and the function that its attention calls. The whole chain is checked at once: base, width, share,
extension, attention factor, layout.
"""

import importlib
import inspect
import sys

import pytest
import torch
from strategies import check_refused, normal, tolerance

import rope
from rope.axes import axis_tables, section_frequencies
from rope.config import EXAMPLES, example, rotary_settings
from rope.config.models import GENERAL, LAYOUTS, SECTIONS
from rope.config.source import refuse_unread
from rope.layouts import half_to_interleaved

auto = importlib.import_module("transformers.models.auto.configuration_auto")

LENGTH = 24
# Beside these, two models' text parts are read under the names of the whole, as they were saved.
MODELS = sorted(LAYOUTS.keys() - {"qwen2_vl", "qwen2_5_vl"})
# What the defaults of a class lack, or have in disagreement; its checkpoints' files do have it.
COMPLETE = {
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "glm4v_text": {"partial_rotary_factor": 0.5},
    "qwen3_omni_moe_text": {"head_dim": 128},
    "granitemoehybrid": {"position_embedding_type": "rope"},
    "recurrent_gemma": {"max_position_embeddings": 8192},
}
# Kept by the configuration object, but not written by its to_dict().
UNSAVED = ("max_position_embeddings", "head_dim", "partial_rotary_factor")
# These scale queries by position as well, outside the rotation: refused until it is left out.
ELSEWHERE = {"ministral3", "mistral4"}


def configuration(model_type):
    """The configuration with its defaults, completed, and its dict without what is not RoPE's."""
    completion = COMPLETE.get(model_type, {})
    config = auto.CONFIG_MAPPING[model_type](**completion)
    facts = config.to_dict() | {k: v for k, v in completion.items() if k in UNSAVED}
    if model_type in ELSEWHERE:
        facts["rope_parameters"].pop("llama_4_scaling_beta", None)
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


SECTIONED = sorted(set().union(*SECTIONS.values()) & set(MODELS))


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


LENGTHS = "max_position_embeddings n_positions max_seq_len"
WIDTHS = (
    "model_type hidden_size num_attention_heads n_embd n_head d_model n_heads qk_rope_head_dim "
    "layer_types"
)


@pytest.mark.parametrize("model_type", sorted(set(MODELS) - ELSEWHERE - COMPLETE.keys()))
def test_what_is_absent_is_what_transformers_fills_in(model_type):
    facts = configuration(model_type)[1]
    bare = {key: facts[key] for key in WIDTHS.split() if key in facts}
    assert any(facts.get(key) for key in LENGTHS.split())
    for layer_type in layer_types(facts):
        arguments = {"layer_type": layer_type}
        assert rotary_settings(bare, **arguments) == rotary_settings(facts, **arguments)


def test_files_without_a_length_have_their_class_s_and_may_be_told():
    """As transformers 4 wrote Falcon 7B's, and Gemma 3 4B's text part."""
    sizes = {"hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32}
    falcon = {"model_type": "falcon", "alibi": False, "multi_query": True, **sizes}
    assert len(rope.RotaryEmbedding.from_config(falcon).cos) == 2048
    assert len(rope.RotaryEmbedding.from_config(falcon, max_seq_len=100).cos) == 100
    scaling = {"factor": 8.0, "rope_type": "linear"}
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}
    text |= {"rope_scaling": scaling, "sliding_window": 1024}
    whole = {"model_type": "gemma3", "text_config": text}
    for layer_type in ("full_attention", "sliding_attention"):
        theirs = auto.CONFIG_MAPPING["gemma3"](text_config=text)
        found = rotary_settings(whole, layer_type=layer_type)
        assert found == rotary_settings(theirs, layer_type=layer_type)
        assert found.max_position_embeddings == theirs.text_config.max_position_embeddings


# Small enough to run; a class takes those that it knows.
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 32,
    "moe_intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 64,
    "num_hidden_layers": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOWLESS = {"sliding_window": None, "layer_types": ["full_attention"] * 8}
MIXED = [
    *[(name, {}) for name in ("afmoe", "exaone_moe", "lfm2", "llama4_text", "minimax", "smollm3")],
    *[(name, {}) for name in ("mllama_text_model", "qwen3_next", "recurrent_gemma", "cohere2")],
    *[("exaone4", {}), ("exaone4", WINDOWLESS)],
    ("llama4_text", {"no_rope_layers": []}),
    ("smollm3", {"no_rope_layer_interval": 3}),
]


@pytest.mark.parametrize(("model_type", "more"), MIXED, ids=str)
def test_layers_rotate_where_the_models_own_layers_do(model_type, more, monkeypatch):
    kind = auto.CONFIG_MAPPING[model_type]
    config = kind(**{key: value for key, value in SMALL.items() if hasattr(kind(), key)} | more)
    code = modeling(config)
    (base,) = (
        model
        for name, model in vars(code).items()
        if name.endswith("Model")
        and "PreTrained" not in name
        and getattr(model, "config_class", 0) is kind
    )
    model, turned, here = base(config).eval(), set(), []
    layers = next(part for part in model.modules() if isinstance(part, torch.nn.ModuleList))
    for number, layer in enumerate(layers):
        layer.register_forward_pre_hook(lambda *_, number=number: here.append(number))
    for name in {"apply_rotary_pos_emb", "apply_rotary_emb"} & vars(code).keys():
        rotate = getattr(code, name)

        def seen(*args, rotate=rotate, **kwargs):
            turned.add(here[-1])
            return rotate(*args, **kwargs)

        monkeypatch.setattr(code, name, seen)
    with torch.no_grad():
        model(torch.arange(3, 9)[None])
    theirs = tuple(number in turned for number in range(len(layers)))
    facts = {"max_position_embeddings": 64, **config.to_dict()}
    kinds = facts.get("layer_types") or [None] * len(theirs)
    for layer_type in {*layer_types(facts), *kinds}:
        if layer_type is None or (True, layer_type) in zip(theirs, kinds, strict=True):
            found = rotary_settings(facts, layer_type=layer_type).rotates
            assert found == (None if all(theirs) else theirs)
        else:
            with pytest.raises(ValueError, match=f"'{layer_type}'"):
                rotary_settings(facts, layer_type=layer_type)


@pytest.mark.parametrize("model_type", ["gemma3", "llama4", "qwen2_5_vl", "qwen3_vl"])
def test_keys_of_the_other_parts_of_a_model_are_left_alone(model_type):
    whole = auto.CONFIG_MAPPING[model_type]().to_dict()
    refuse_unread(whole)


@pytest.mark.parametrize("model_type", ["bert", "esm", "nanochat", "vit", "wav2vec2-conformer"])
def test_no_other_model_of_transformers_is_read(model_type):
    """A vision tower, a clockwise rotation, none at all: with a layout or without."""
    config = {"model_type": model_type, "head_dim": 8, "rope_theta": 1e4}
    for layout in (None, False):
        read = lambda layout=layout: rotary_settings(config, interleaved=layout)
        check_refused(read, ValueError, f"model_type '{model_type}'")


@pytest.mark.parametrize("model_type", [name for name in MODELS if LAYOUTS[name] is None])
def test_rope_interleave_decides_the_layout_of_latent_attention(model_type):
    facts = configuration(model_type)[1]
    for interleaved in (True, False):
        facts["rope_interleave"] = interleaved
        assert rotary_settings(facts).interleaved is interleaved


@pytest.mark.parametrize("model_type", sorted(GENERAL))
def test_general_families_are_read_without_transformers(model_type, monkeypatch):
    facts = {"hidden_size": 96, "num_attention_heads": 4, "max_position_embeddings": 64}
    config = auto.CONFIG_MAPPING[model_type](**facts)
    monkeypatch.setitem(sys.modules, "transformers", None)
    found = rotary_settings({"model_type": model_type, **facts})
    assert found == rotary_settings(config)
    assert (found.dim, found.head_dim, found.base) == (24, 24, 1e4)
    del facts["max_position_embeddings"]  # which its class alone knows
    assert rotary_settings({"model_type": model_type, **facts}).max_position_embeddings is None


def test_other_families_ask_for_transformers_or_for_what_it_knows(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in EXAMPLES:
        config = example(name)
        if config["model_type"] in GENERAL:
            rotary_settings(config)
        else:
            words = f"{config['model_type']!r} transformers interleaved= rope_theta head_dim"
            check_refused(lambda config=config: rotary_settings(config), ValueError, words)
    bare = example("gemma-7b") | {"model_type": None}
    assert rotary_settings(bare, interleaved=False).dim == 256


def test_a_list_of_layers_that_was_cut_later_is_refused_as_by_its_class():
    """Their rotary module takes it; their class does not."""
    config = auto.CONFIG_MAPPING["gemma3_text"](**SMALL | {"num_hidden_layers": 2})
    config.layer_types = ["full_attention"]
    with pytest.raises(Exception, match=r"num_hidden_layers.*2.*layer_types") as theirs:
        type(config)(**config.to_dict())
    with pytest.raises(ValueError, match="'gemma3_text'") as ours:
        rope.RotaryEmbedding.from_config(config, layer_type="full_attention")
    assert str(theirs.value) in str(ours.value)
