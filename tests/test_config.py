"""Compare the settings read from configurations with the functions in transformers."""

import copy
import importlib
import json
import math
from functools import partial

import pytest
import torch
from strategies import LLAMA, check_raises, tolerance

import rope
from rope.config import EXAMPLES, example, rotary_settings
from rope.config.models import LABELS
from rope.diagnose import diagnose_configuration
from rope.extensions import (
    Default,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
    mscale,
)

auto = importlib.import_module("transformers.models.auto.configuration_auto")
theirs = importlib.import_module("transformers.modeling_rope_utils")

# Every rope_type in transformers, its parameters, and the extension that they must give.
TYPES = {
    "linear": ({"factor": 4.0}, Linear(4.0)),
    "dynamic": ({"factor": 4.0}, DynamicNTK(4.0, 256)),
    "yarn": (
        {"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16, "truncate": False},
        YaRN(4.0, 64, beta_fast=16, truncate=False),
    ),
    "longrope": (
        {
            "short_factor": [1.0 + j / 8 for j in range(8)],
            "long_factor": [2.0 + j for j in range(8)],
            "original_max_position_embeddings": 64,
        },
        LongRoPE(
            tuple(1.0 + j / 8 for j in range(8)), tuple(2.0 + j for j in range(8)), 64, factor=4.0
        ),
    ),
    "llama3": (
        {
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
        Llama3(4.0, 64),
    ),
    "proportional": (
        {"partial_rotary_factor": 0.5, "factor": 2.0},
        Proportional(partial_rotary_factor=0.5, factor=2.0),
    ),
}
CASES = {name: example(name) for name in EXAMPLES} | {
    name: LLAMA | {"rope_scaling": {"rope_type": name, **parameters}}
    for name, (parameters, _) in TYPES.items()
}


def layer_types(config):
    nested = ("full_attention", "sliding_attention")
    return nested if "rope_local_base_freq" in config else (None,)


def transformers_config(config):
    facts = {key: value for key, value in copy.deepcopy(config).items() if key != "model_type"}
    if facts.get("rope_scaling", {}).get("type") == "su":
        # transformers 5.23 renames "su" too late and misses the length outside rope_scaling.
        facts["rope_scaling"]["type"] = "longrope"
    return auto.CONFIG_MAPPING[config["model_type"]](**facts)


def their_frequencies(config, layer_type, seq_len):
    """Return inv_freq and the attention scaling from the functions that the models call."""
    built = transformers_config(config)
    folder = type(built).__module__.replace("configuration_", "modeling_")
    if config["model_type"] == "gptj":  # GPT-J's function returns sines and takes no base
        table = importlib.import_module(folder).create_sinusoidal_positions(2, config["rotary_dim"])
        return table[1, : config["rotary_dim"] // 2].double().asin(), 1.0
    parameters = built.rope_parameters[layer_type] if layer_type else built.rope_parameters
    arguments = {"layer_type": layer_type} if layer_type else {}
    if parameters["rope_type"] == "default":
        (rotary,) = (
            kind
            for name, kind in vars(importlib.import_module(folder)).items()
            if name.endswith("RotaryEmbedding")
        )
        return rotary.compute_default_rope_parameters(built, device="cpu", **arguments)
    function = theirs.ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
    return function(built, "cpu", seq_len=seq_len, **arguments)


@pytest.mark.parametrize("name", sorted(CASES))
def test_spectrum_and_attention_scaling_are_those_of_transformers(name):
    config = CASES[name]
    for layer_type in layer_types(config):
        settings = rotary_settings(config, layer_type=layer_type)
        extension = settings.extension
        trained = getattr(extension, "original_max_position_embeddings", 0)
        length = trained or settings.max_position_embeddings
        for seq_len in (length // 2, length, length + 1, 3 * length):
            expected, scaling = their_frequencies(config, layer_type, seq_len)
            ours = rope.inverse_frequencies(
                settings.dim, settings.base, extension=extension, seq_len=seq_len
            )
            # Their values are float32. base**x costs ln(base) roundings, the formula a few more,
            # and YaRN's 1 - (1 - ramp) one, which a kept frequency multiplies by the factor.
            operations = math.log(settings.base) + 8 + 4 * (getattr(extension, "factor", 1) or 1)
            bound = tolerance(torch.float32, expected.double(), operations)
            assert bool(((ours - expected.double()).abs() <= bound).all()), (name, seq_len)
            assert extension.attention_scaling == pytest.approx(scaling, rel=1e-15)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_both_spellings_give_equal_settings_and_the_extension_of_that_name(name):
    parameters, extension = TYPES[name]
    base = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    old = LLAMA | {"rope_scaling": {"type": name, **parameters}}
    new = base | {"rope_parameters": {"rope_type": name, "rope_theta": 1e4, **parameters}}
    nested = base | {"rope_parameters": {"full_attention": new["rope_parameters"], "other": None}}
    settings = rotary_settings(old)
    assert settings.extension == extension
    for config in (new, transformers_config(old), transformers_config(new), json.dumps(new)):
        assert rotary_settings(config) == settings
    assert rotary_settings(nested, layer_type="full_attention") == settings
    outside = ("original_max_position_embeddings", "partial_rotary_factor")
    moved = {key: parameters[key] for key in outside if key in parameters}
    kept = {key: value for key, value in parameters.items() if key not in moved}
    assert rotary_settings(LLAMA | {"rope_scaling": {"type": name, **kept}} | moved) == settings


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_read_alike_from_every_source_and_are_not_changed(name, tmp_path):
    config = example(name)
    before = copy.deepcopy(config)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8-sig")
    for layer_type in layer_types(config):
        settings = rotary_settings(config, layer_type=layer_type)
        towers = {"vision_config": {"rope_theta": 1.0}, "talker": {"model_type": "a", "rope": 1}}
        whole = {"model_type": "outer", "text_config": config, **towers}
        files = (path, str(path), tmp_path, f"{tmp_path}/")
        for source in (*files, json.dumps(config), whole, transformers_config(config)):
            assert rotary_settings(source, layer_type=layer_type) == settings
    assert config == before == example(name)


def test_yarn_mscale_is_not_ignored():
    """Check mscale in cos and sin, and in DeepSeek's softmax scale (vLLM issue 48621)."""
    deepseek = rotary_settings(example("deepseek-v3"))
    module = importlib.import_module("transformers.models.deepseek_v3.modeling_deepseek_v3")
    attention = module.DeepseekV3Attention(transformers_config(small_deepseek()), 0)
    assert deepseek.extension.attention_scaling == 1.0  # mscale and mscale_all_dim cancel
    assert deepseek.softmax_scale == mscale(40.0, 1.0) ** 2
    assert rotary_settings(example("deepseek-v3") | {"model_type": "kimi_k2"}) == deepseek
    assert deepseek.softmax_scale == pytest.approx(attention.scaling * attention.qk_head_dim**0.5)
    assert rotary_settings(example("qwen2.5-7b-yarn")).softmax_scale == 1.0
    assert rotary_settings(example("qwen2.5-7b-yarn")).extension.attention_scaling == mscale(4.0)
    yarn = {"type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.2}
    yarn["original_max_position_embeddings"] = 64
    scaling = rotary_settings(LLAMA | {"rope_scaling": yarn}).extension.attention_scaling
    assert scaling == mscale(4.0, 0.7) / mscale(4.0, 1.2)


def small_deepseek():
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "q_lora_rank": 8, "kv_lora_rank": 8}
    return example("deepseek-v3") | sizes | {"num_key_value_heads": 2}


def test_the_callers_layout_wins_for_converted_weights():
    for interleaved in (True, False):
        for config in (LLAMA, example("gpt-j-6b"), {**LLAMA, "model_type": "mine"}):
            assert rotary_settings(config, interleaved=interleaved).interleaved is interleaved


KINDS = ["full_attention", "sliding_attention"]
LONG = {"original_max_position_embeddings": 64}
GRANITE = {"model_type": "granite_swa", "hidden_size": 256, "num_attention_heads": 2}
GRANITE |= {"layer_types": KINDS * 2, "num_hidden_layers": 4}
STEP = {"model_type": "step3p5", "num_hidden_layers": 2, "num_nextn_predict_layers": 1}
STEP |= {"layer_types": [*KINDS, "full_attention"], "partial_rotary_factors": [0.5, 1.0, 0.5]}
STEP |= {"rope_theta": [5e6, 1e4, 5e6], "yarn_only_types": KINDS[:1], "use_rope_layers": []}
STEP |= {"rope_scaling": TYPES["llama3"][0] | {"rope_type": "llama3"}}
MIMO = {"model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1], "num_hidden_layers": 2}
V4 = {"model_type": "deepseek_v4", "compress_ratios": [0, 0, 4, 128], "num_hidden_layers": 4}
V4 |= {"rope_parameters": {"rope_type": "yarn", "factor": 16.0, **LONG}}
BY_LAYER = [  # (configuration, for each layer: base, rotated width, extension; or None)
    (GRANITE, [(1e4, 128, Default)] * 4),
    (
        GRANITE | {"layer_rope_theta": [0, 1e4, 5e5, 1e6]},
        [None, *((base, 128, Default) for base in (1e4, 5e5, 1e6))],
    ),
    (STEP, [(5e6, 64, Llama3), (1e4, 128, Default)]),
    (MIMO | {"rope_theta": 5e6}, [(5e6, 64, Default), (1e4, 64, Default)]),
    (V4, [(1e4, 64, Default)] * 2 + [(1.6e5, 64, YaRN)] * 2),
]


@pytest.mark.parametrize(("config", "expected"), BY_LAYER, ids=lambda v: str(v)[16:40])
def test_each_layer_has_its_own_base_share_and_extension(config, expected):
    for facts in (config, transformers_config(config)):
        for layer, numbers in enumerate(expected):
            if numbers is None:
                words = f"layer {layer} doesn't rotate"
                check_raises(partial(rotary_settings, facts, layer=layer), ValueError, words)
                continue
            ours = rotary_settings(facts, layer=layer)
            assert (ours.base, ours.dim, type(ours.extension)) == numbers
            assert ours.rotates == (tuple(map(bool, expected)) if None in expected else None)
        check_raises(partial(rotary_settings, facts, layer=9), ValueError, "layer 9")


def test_a_report_explains_each_base_and_each_layer_type():
    granite = BY_LAYER[1][0]
    for config, options, expected in (
        (granite, {}, {"base 10000": 1e4, "base 500000": 5e5, "base 1e+06": 1e6}),
        (granite, {"layer": 2}, {"layer 2": 5e5}),
        (V4, {}, {kind: 1e4 if label == "main" else 1.6e5 for kind, label in LABELS.items()}),
    ):
        settings = diagnose_configuration(config, **options).settings
        assert {name: ours.base for name, ours in settings.items()} == expected


def test_every_nth_layer_is_left_unrotated():
    facts = LLAMA | {"no_rope_layer_interval": 3, "num_hidden_layers": 8}
    rotates = rotary_settings(facts).rotates
    assert rotates == (True, True, False, True, True, False, True, True)
    smollm3 = auto.CONFIG_MAPPING["smollm3"](num_hidden_layers=8, no_rope_layer_interval=3)
    assert smollm3.no_rope_layers == list(map(int, rotates))


def test_each_name_of_a_number_is_read():
    sizes, base = {"hidden_size": 64, "num_attention_heads": 4}, {"rope_theta": 5e5}
    for facts, expected in (
        (base | {"max_position_embeddings": 512}, (16, 16, 5e5, 512)),
        ({"rotary_emb_base": 5e5, "n_positions": 512}, (16, 16, 5e5, 512)),
        (base | {"head_dim": 32, "max_seq_len": 512}, (32, 32, 5e5, 512)),
        (base | {"rotary_pct": 0.5, "kv_channels": 32}, (16, 32, 5e5, None)),
        (base | {"partial_rotary_factor": 0.25}, (4, 16, 5e5, None)),
        (base | {"rotary_dim": 6}, (6, 16, 5e5, None)),
    ):
        ours = rotary_settings(sizes | facts | {"model_type": "mine"}, interleaved=False)
        assert (ours.dim, ours.head_dim, ours.base, ours.max_position_embeddings) == expected
