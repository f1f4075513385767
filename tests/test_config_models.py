"""Compare the settings read for every supported model type with its rotation in transformers.

The oracle is the configuration class with its defaults, the model's rotary module and the function
that the model's attention calls. The tests cover the full chain: base, width, rotated share,
extension, attention factor and layout.
"""

import copy
import importlib
import inspect
import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from strategies import check_raises, normal, tolerance

import rope
from rope.axes import axis_tables, section_frequencies
from rope.config import EXAMPLES, example, rotary_settings
from rope.config.models import GENERAL, LABELS, LAYOUTS, SECTIONS
from rope.config.source import check_unread
from rope.diagnose import diagnose_configuration
from rope.layouts import half_to_interleaved

auto = importlib.import_module("transformers.models.auto.configuration_auto")
causal = importlib.import_module("transformers.models.auto.modeling_auto")
CAUSAL = causal.MODEL_FOR_CAUSAL_LM_MAPPING

LENGTH = 24
# qwen2_vl and qwen2_5_vl are names of full models under which text parts are saved.
MODELS = sorted(LAYOUTS.keys() - {"qwen2_vl", "qwen2_5_vl"})
# Values that published configurations contain but the class's defaults lack.
COMPLETE = {
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "glm4v_text": {"partial_rotary_factor": 0.5},
    "qwen3_omni_moe_text": {"head_dim": 128},
    "cohere_compass_text": {
        "rope_parameters": {
            "full_attention": None,
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e6},
        },
        "layer_types": ["full_attention", "sliding_attention"] * 20,
    },
    "minimax_m3_vl_text": {"rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 0.5}},
    "qwen4_exp_text": {"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25}},
    "granitemoehybrid": {"position_embedding_type": "rope"},
    "recurrent_gemma": {"max_position_embeddings": 8192},
}
# Values that a configuration object has but to_dict() doesn't write.
UNSAVED = ("max_position_embeddings", "head_dim", "partial_rotary_factor")


def configuration(model_type):
    """Return the model's configuration, with missing values filled in, and the dict to read."""
    completion = COMPLETE.get(model_type, {})
    config = auto.CONFIG_MAPPING[model_type](**completion)
    facts = config.to_dict() | {k: v for k, v in completion.items() if k in UNSAVED}
    return config, facts


def layer_types(facts):
    """Return the layer types that have their own RoPE parameters, or [None]."""
    parameters = facts.get("rope_parameters") or {}
    nested = [key for key, value in parameters.items() if isinstance(value, dict)]
    return [key for key in nested if key in (*LABELS.values(), *facts["layer_types"])] or [None]


def modeling(config):
    """Return the file with the model's code; some configurations use the code of another model."""
    if type(config) in CAUSAL:
        return importlib.import_module(CAUSAL[type(config)].__module__)
    return importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))


def their_rotary(module, config):
    """Return the model's rotary module."""
    kinds = [
        kind
        for name, kind in vars(module).items()
        if name.endswith("RotaryEmbedding")
        and not name.endswith(("VisionRotaryEmbedding", "DiTRotaryEmbedding"))
    ]
    named = [kind for kind in kinds if type(config).__name__ in str(annotation(kind))]
    return (named or kinds)[0](config=config)


def buffer(layer_type, name):
    """Return the attribute of the rotary module that holds a layer type's values."""
    return name if layer_type is None else f"{layer_type}_{name}"


def their_tables(module, config, layer_type, position_ids=None):
    """Return the tables from the model's rotary module: cos and sin, or cos + i sin."""
    rotary = their_rotary(module, config)
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
    """Return x `[1, 2, LENGTH, D]` rotated as the model's attention rotates it."""
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
        if model_type == "llama4_text":  # [B, S, H, D]
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
        # Their frequencies and angles are float32: a few roundings of angles up to LENGTH.
        bound = tolerance(torch.float32, LENGTH * 2 * scale * float(x.abs().max()))
        assert float((ours - theirs).abs().max()) <= bound, (model_type, layer_type)


# Causal models that rotate in a way that no configuration describes, and words of the error.
UNLIKE = {"blt": "model types", "nanochat": "model types", "zamba2": "use_mem_rope"}
# The text models of these are compared under their own names, or don't rotate.
OTHERS = {"gemma4_assistant", "musicgen", "musicgen_melody"}
NEWER = tuple(map(int, version("transformers").split(".")[:2])) > (5, 23)
BY_CODE = ("codegen", "gptj", "roformer")  # a function makes their tables


@pytest.mark.parametrize("name", sorted({*causal.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES} - OTHERS))
def test_a_causal_model_has_the_frequencies_of_transformers_or_is_rejected(name):
    config = auto.CONFIG_MAPPING[name](**COMPLETE.get(name, {})).get_text_config()
    facts, model_type = config.to_dict() | COMPLETE.get(name, {}), config.model_type
    if model_type not in LAYOUTS:
        code = Path(inspect.getfile(type(config)).replace("configuration_", "modeling_"))
        text = code.read_text("utf-8") if code.exists() else "class LlamaRotaryEmbedding"
        rotary = re.search(r"class \w*(?<!Vision)RotaryEmbedding", text)
        words = UNLIKE.get(model_type, "model types" if rotary else "no RoPE parameters")
        check_raises(lambda: rotary_settings(facts), ValueError, words)
        # Later versions of transformers have new models, which must be compared first.
        assert bool(rotary) == (model_type in UNLIKE) or NEWER
        return
    types = dict(enumerate(facts.get("layer_types") or ()))
    for kind in layer_types(facts):
        ours = rotary_settings(facts, layer_type=kind)
        for layer, rotates in enumerate(ours.rotates or [True]):
            if rotates and kind in (None, types.get(layer), LABELS.get(types.get(layer))):
                assert rotary_settings(facts, layer=layer) == ours
                break
        if model_type in BY_CODE:  # test_settings_rotate_as_the_model_does compares them
            continue
        rotary = their_rotary(modeling(config), config)
        theta = rope.inverse_frequencies(ours.dim, ours.base, extension=ours.extension)
        theirs = getattr(rotary, buffer(kind, "inv_freq")).double()
        torch.testing.assert_close(theirs, theta, rtol=2e-6, atol=0)
        scaling = getattr(rotary, buffer(kind, "attention_scaling"))
        assert ours.extension.attention_scaling == pytest.approx(scaling, rel=1e-15)


WHOLE = [name for name in MODELS if "qk_rope_head_dim" not in configuration(name)[1]]


@pytest.mark.parametrize("model_type", sorted({*WHOLE} - {*BY_CODE}))
def test_a_share_of_the_head_that_the_models_code_ignores_is_a_finding(model_type):
    config, facts = configuration(model_type)
    half = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    kinds = layer_types(facts)
    nested = {**(facts.get("rope_parameters") or {}), **dict.fromkeys(kinds, half)}
    dropped = ("model_type", "rope_scaling", "partial_rotary_factor", "rotary_dim")
    options = {key: value for key, value in facts.items() if key not in dropped}
    options["rope_parameters"] = half if kinds == [None] else nested
    built = type(config)(**copy.deepcopy(options))
    options["model_type"] = model_type
    codes = [finding.code for finding in diagnose_configuration(options).findings]
    for kind in kinds:
        theirs = getattr(their_rotary(modeling(built), built), buffer(kind, "inv_freq"))
        ours = rotary_settings(options, layer_type=kind)
        assert ("ignored-key" in codes) == (ours.dim != 2 * len(theirs))


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
        # transformers repeats each column, either next to the original or in the other half.
        once = theirs[:, ::2] if settings.interleaved else theirs[:, : cos.shape[-1]]
        bound = tolerance(torch.float32, 2 * LENGTH)
        assert float((cos - once).abs().max()) <= bound


LENGTHS = "max_position_embeddings n_positions max_seq_len model_max_length"
WIDTHS = (
    "model_type hidden_size num_attention_heads n_embd n_head d_model n_heads qk_rope_head_dim "
    "layer_types"
)


@pytest.mark.parametrize("model_type", sorted(set(MODELS) - COMPLETE.keys()))
def test_what_is_absent_is_what_transformers_fills_in(model_type):
    facts = configuration(model_type)[1]
    bare = {key: facts[key] for key in WIDTHS.split() if key in facts}
    assert any(facts.get(key) for key in LENGTHS.split())
    for layer_type in layer_types(facts):
        arguments = {"layer_type": layer_type}
        assert rotary_settings(bare, **arguments) == rotary_settings(facts, **arguments)


# Sizes for a quick run. Each class gets the sizes that it has as attributes.
SMALL = dict(hidden_size=64, intermediate_size=32, moe_intermediate_size=16, vocab_size=64)
SMALL |= dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_hidden_layers=8)
SMALL |= dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, sliding_window=8)
SMALL |= dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
WINDOWLESS = {"sliding_window": None, "layer_types": ["full_attention"] * 8}
MIXED = [
    *[(name, {}) for name in ("afmoe", "exaone_moe", "lfm2", "llama4_text", "minimax", "smollm3")],
    *[(name, {}) for name in ("mllama_text_model", "qwen3_next", "recurrent_gemma", "cohere2")],
    *[("exaone4", {}), ("exaone4", WINDOWLESS), ("kolibri1", {}), ("flint", {})],
    ("beam", {"n_group": 1, "topk_group": 1}),
    ("cohere2_moe", {"first_k_dense_replace": 4, "sliding_window_pattern": 2}),
    ("granite_swa", {"layer_rope_theta": [0, 1e4] * 4}),
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
    model, rotated, here = base(config).eval(), set(), []
    layers = next(part for part in model.modules() if isinstance(part, torch.nn.ModuleList))
    for number, layer in enumerate(layers):
        layer.register_forward_pre_hook(lambda *_, number=number: here.append(number))
    for name in {"apply_rotary_pos_emb", "apply_rotary_emb"} & vars(code).keys():
        rotate = getattr(code, name)

        def seen(*args, rotate=rotate, **kwargs):
            rotated.add(here[-1])
            return rotate(*args, **kwargs)

        monkeypatch.setattr(code, name, seen)
    with torch.no_grad():
        model(torch.arange(3, 9)[None])
    theirs = tuple(number in rotated for number in range(len(layers)))
    facts = {"max_position_embeddings": 64, **config.to_dict()}
    kinds = facts.get("layer_types") or [None] * len(theirs)
    for layer_type in {*layer_types(facts), *kinds}:
        if layer_type is None or (True, layer_type) in zip(theirs, kinds, strict=True):
            ours = rotary_settings(facts, layer_type=layer_type).rotates
            assert ours == (None if all(theirs) else theirs)
        else:
            with pytest.raises(ValueError, match=f"'{layer_type}'"):
                rotary_settings(facts, layer_type=layer_type)


@pytest.mark.parametrize("model_type", ["gemma3", "llama4", "qwen2_5_vl", "qwen3_vl"])
def test_keys_of_other_models_in_a_configuration_are_ignored(model_type):
    whole = auto.CONFIG_MAPPING[model_type]().to_dict()
    check_unread(whole)


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
    settings = rotary_settings({"model_type": model_type, **facts})
    assert settings == rotary_settings(config)
    assert (settings.dim, settings.head_dim, settings.base) == (24, 24, 1e4)
    del facts["max_position_embeddings"]  # only the class in transformers has a default
    assert rotary_settings({"model_type": model_type, **facts}).max_position_embeddings is None


def test_other_families_need_transformers_or_explicit_values(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in EXAMPLES:
        config = example(name)
        if config["model_type"] in GENERAL:
            rotary_settings(config)
        else:
            words = f"{config['model_type']!r} transformers interleaved= rope_theta head_dim"
            check_raises(lambda config=config: rotary_settings(config), ValueError, words)
    bare = example("gemma-7b") | {"model_type": None}
    assert rotary_settings(bare, interleaved=False).dim == 256
