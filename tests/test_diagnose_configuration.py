"""Test the dangers of configurations: none in real ones, each planted, and transformers' code."""

import copy
import importlib
from dataclasses import replace

import pytest
import test_config_models as models
import torch
from strategies import LLAMA
from test_diagnose import words

import rope
from rope.config import EXAMPLES, example, rotary_settings
from rope.diagnose import DANGERS, diagnose_configuration

OLD = example("llama-3.1-8b")
QWEN = example("qwen2.5-7b-yarn")
PLAIN = LLAMA | {"num_hidden_layers": 8}


def without(config, key):
    return {name: value for name, value in config.items() if name != key}


BASELESS = without(PLAIN, "rope_theta")
SMOL = PLAIN | {"model_type": "smollm3"}
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
LONG = PLAIN | {"head_dim": 64, "max_position_embeddings": 65536, "rope_scaling": YARN}
UNTRAINED = without(YARN, "original_max_position_embeddings")
NEW = {"rope_type": "default", "rope_theta": 5e5}
TWO_HOLDERS = without(OLD, "rope_theta") | {"rope_parameters": {"rope_theta": 5e5}}
TWO = {
    "full_attention": NEW | YARN,
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
QWEN_35 = {"model_type": "qwen3_5_text", "head_dim": 64, "max_position_embeddings": 2048}
SECTIONS = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]}
SHARE = {"partial_rotary_factor": 0.5}
PARTIAL = SECTIONS | {"mrope_section": [2, 1, 1]} | SHARE
M_ROPE = {"model_type": "qwen2_vl_text", "rope_parameters": PARTIAL}


def yarn(**changed):
    return LONG | {"rope_scaling": YARN | changed}


def found(config, **options):
    return {each.code: each for each in diagnose_configuration(config, **options).findings}


# What is known to be read differently of published files as they are; the others have nothing.
UNTOUCHED = {
    "deepseek-v3": ["mscale"],
    "gemma-3-27b": ["layer-types", "moved-base"],
    "gpt-oss-20b": ["moved-base"],
    "llama-3.1-8b": ["moved-base"],
    "phi-3-mini-128k": ["length-dependent"],
    "qwen2.5-7b-yarn": ["moved-base"],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_published_configurations_have_no_fault(name):
    report = diagnose_configuration(example(name))
    assert report.ok and report.settings
    assert [each.code for each in report.findings] == UNTOUCHED.get(name, [])


@pytest.mark.parametrize("config", [PLAIN, LONG, SMOL, SMOL | {"no_rope_layers": [1] * 8}])
def test_plain_ones_have_nothing(config):
    assert not set(found(config)) - {"unrotated-layers"}


# A configuration with a danger, its code, and numbers and names that the sentence must have.
PLANTED = [
    (PLAIN | {"rope_scaling": {"factor": 8.0}}, "configuration", "factor"),
    (PLAIN | {"partial_rotary_factor": 0.5}, "ignored-key", "partial_rotary_factor 0.5 dim 16 8"),
    (PLAIN | {"rotary_dim": 8}, "ignored-key", "llama rotary_dim dim 16 8"),
    (PLAIN | {"rope_parameters": NEW | SHARE, "rope_theta": 5e5}, "ignored-key", "dim 16 8"),
    (PLAIN | {"no_rope_layers": [1, 1, 1, 0] * 2}, "ignored-key", "no_rope_layers 3 7"),
    (PLAIN | M_ROPE, "ignored-key", "partial_rotary_factor 0.5 mrope_section 2 1 4"),
    (TWO_HOLDERS, "two-holders", "rope_theta"),
    (
        BASELESS | {"rope_parameters": {"full_attention": NEW}},
        "nested-parameters",
        "full_attention",
    ),
    (SMOL | {"no_rope_layers": [0, 0, 0, 1] * 2}, "no-rope-reversed", "4 2 8"),
    (SMOL | {"no_rope_layers": [1, 1, 0, 1] * 2}, "no-rope-flags", "2 6"),
    (SMOL, "unrotated-layers", "3 7"),
    (PLAIN | {"rope_theta": 5e5}, "moved-base", "500000 top"),
    (BASELESS | {"rope_parameters": NEW}, "moved-base", "500000 rope_parameters"),
    (PLAIN | {"rope_parameters": NEW, "rope_theta": 5e5}, "moved-base", "top rope_parameters"),
    (LONG | {"rope_scaling": UNTRAINED}, "trained-length", "65536"),
    (yarn(factor=8.0), "lengths", "8 32768 4096 65536"),
    (OLD | {"max_position_embeddings": 4096}, "lengths", "8 65536 8192 4096"),
    (yarn(mscale=1.0, mscale_all_dim=1.0), "mscale", "1.0 1 1.27726"),
    (yarn(mscale=0.707), "mscale-alone", "mscale"),
    (yarn(attention_factor=1.0), "attention-factor", "1 1.27726"),
    (
        QWEN_35 | {"rope_parameters": SECTIONS | {"partial_rotary_factor": 0.25}},
        "partial-mrope",
        "64 16",
    ),
    (PLAIN | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "length-dependent", "256"),
]
GEMMA = BASELESS | {
    "model_type": "gemma3_text",
    "head_dim": 64,
    "max_position_embeddings": 65536,
    "layer_types": ["full_attention", "sliding_attention"] * 4,
    "rope_parameters": TWO | {"full_attention": NEW | YARN | {"truncate": False}},
}


@pytest.mark.parametrize(("config", "code", "told"), PLANTED)
def test_a_planted_danger_is_named(config, code, told):
    report = diagnose_configuration(config)
    (each,) = [each for each in report.findings if each.code == code]
    assert set(told.split()) <= words(each), each.sentence
    assert each.severity == DANGERS[code].severity and each.remedy and each.source
    assert report.ok == all(one.severity == "note" for one in report.findings)


def test_dangers_that_depend_on_the_layer_type():
    pytest.importorskip("transformers")
    codes = found(GEMMA)
    assert set(codes) == {"layer-types", "truncate-nested", "moved-base"}
    spectra = {"full_attention", "500000", "yarn", "sliding_attention", "10000", "default"}
    assert spectra <= words(codes["layer-types"])
    assert "full_attention" in words(codes["truncate-nested"])
    assert not found(GEMMA, layer_type="sliding_attention")


def test_the_length_in_use_is_held_against_the_reach():
    assert "beyond-reach" not in found(QWEN, length=131072)  # 4 times the trained 32768
    assert {"131073", "131072"} <= words(found(QWEN, length=131073)["beyond-reach"])


def test_every_danger_is_planted():
    planted = {code for _, code, _ in PLANTED} | {"truncate-nested", "layer-types", "beyond-reach"}
    assert planted == set(DANGERS)


# What the table says of transformers, run.

utils = "transformers.modeling_rope_utils"


def built(config):
    auto = pytest.importorskip("transformers.models.auto.configuration_auto")
    facts = copy.deepcopy(without(config, "model_type"))  # the class writes into its dicts
    return auto.CONFIG_MAPPING[config["model_type"]](**facts)


def test_version_5_has_no_rope_theta_and_scaling_replaces_parameters():
    assert not hasattr(built(PLAIN | {"rope_theta": 5e5}), "rope_theta")
    config = built(TWO_HOLDERS)
    assert config.rope_parameters["rope_theta"] == 10000.0
    assert (
        built(OLD | {"rope_parameters": {"rope_theta": 5e5}}).rope_parameters["rope_theta"] == 5e5
    )


def test_a_class_without_layer_types_takes_base_10000():
    config = built(BASELESS | {"rope_parameters": {"full_attention": NEW}})
    assert config.rope_parameters["rope_theta"] == 10000.0


def test_yarn_in_transformers():
    """The pair or neither; the trained length filled in; truncate looked for outside."""
    frequencies = importlib.import_module(utils).ROPE_INIT_FUNCTIONS["yarn"]
    _, plain = frequencies(built(LONG), "cpu")
    assert frequencies(built(yarn(mscale=0.707)), "cpu")[1] == plain
    assert frequencies(built(yarn(mscale=1.0, mscale_all_dim=1.0)), "cpu")[1] == 1.0 != plain
    config = built(LONG | {"rope_scaling": UNTRAINED})
    assert config.rope_parameters["original_max_position_embeddings"] == 65536
    theirs, _ = frequencies(built(GEMMA), "cpu", layer_type="full_attention")
    settings = rotary_settings(GEMMA, layer_type="full_attention")
    for truncate in (True, False):
        extension = replace(settings.extension, truncate=truncate)
        ours = rope.inverse_frequencies(settings.dim, settings.base, extension=extension)
        assert torch.allclose(theirs.double(), ours, rtol=1e-5, atol=0) == truncate


def test_flags_of_layers_in_transformers():
    config = built(SMOL | {"no_rope_layers": [1, 1, 0, 1] * 2, "num_key_value_heads": 4})
    module = importlib.import_module("transformers.models.smollm3.modeling_smollm3")
    rotates = [bool(module.SmolLM3Attention(config, layer).use_rope) for layer in range(4)]
    assert rotates == [True, True, False, True]


@pytest.mark.parametrize("key", ["partial_rotary_factor", "rotary_dim"])
@pytest.mark.parametrize("model", ["llama", "qwen3", "phi3", "glm4", "stablelm", "minimax_m2"])
def test_a_key_is_ignored_where_the_model_ignores_it(model, key):
    """The oracle: how many frequencies the model's own module makes, with the key and without."""
    config = PLAIN | {"model_type": model, "head_dim": 16}
    config[key] = 8 if key == "rotary_dim" else 0.5  # 4 frequencies, where it is read
    codes = found(config)
    made = built(config), built(without(config, key))
    module = importlib.import_module(
        type(made[0]).__module__.replace("configuration_", "modeling_")
    )
    (rotary,) = (each for name, each in vars(module).items() if name.endswith("RotaryEmbedding"))
    with_key, without_key = (len(rotary(config=each).inv_freq) for each in made)
    if "configuration" not in codes:
        assert ("ignored-key" in codes) == (with_key == without_key != 4)


@pytest.mark.parametrize("model", models.MODELS)
def test_no_configuration_of_transformers_has_a_fault(model):
    """As each class writes it with its defaults, completed as its checkpoints are."""
    report = diagnose_configuration(models.configuration(model)[1])
    assert report.ok and report.settings, str(report)
