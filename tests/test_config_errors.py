"""Bad configurations: the exception, and the words that name the value and the way out."""

import copy
from types import SimpleNamespace

import pytest
from strategies import LLAMA

from rope import RotaryEmbedding
from rope.config import EXAMPLES, example, rotary_settings
from rope.config.parameters import rope_parameters

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
OLD = {"original_max_position_embeddings": 64}
LONG = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "factor": 2.0}
LAYERS = {
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "chunked_attention": None,
}
GEMMA = LLAMA | {"model_type": "gemma3_text", "rope_parameters": LAYERS}
del GEMMA["rope_theta"]
MROPE = LLAMA | {"model_type": "qwen2_vl"}
NEW = {"rope_scaling": {"mrope_section": [2, 3, 3]}}
MLA = LLAMA | {"model_type": "deepseek_v3", "qk_rope_head_dim": 16}


def without(config, key):
    return {name: value for name, value in config.items() if name != key}


def scaled(**parameters):
    return LLAMA | {"rope_scaling": parameters}


V, T = ValueError, TypeError
BAD = [
    # where the configuration comes from
    (7, T, "config is a int; it must be a configuration object"),
    ("meta-llama/Llama-3.1-8B", V, "no file .*; nothing is downloaded: pass the path"),
    ('{"a": 1, "a": 2}', V, "config holds 'a' twice, 1 and 2; each key must stand once"),
    (LLAMA | {"text_config": 3}, T, "text_config is 3; it must be a dict"),
    ({"rope_theta": 5.0, "text_config": LLAMA}, V, "rope_theta is 5.0 outside text_conf"),
    (SimpleNamespace(to_dict=list), T, "config is a list; it must be"),
    # keys about rotation that nothing reads
    (LLAMA | {"attention": {"rope_theta": 5e5}}, V, "'attention.rope_theta'.*move it to the top"),
    (LLAMA | {"a": [{"b": {"rotary_dim": 8}}]}, V, "'a.0.b.rotary_dim', which is not known"),
    (LLAMA | {"per_layer_config": {0: {"rope_theta": 5.0}}}, V, "'per_layer_config.0.rope_theta'"),
    ({"text_config": LLAMA | {"a": {"rope_dim": 8}}}, V, "'text_config.a.rope_dim'"),
    *[
        (LLAMA | {key: 4}, V, f"holds '{key}', which is not known here; rename it to {meant},")
        for meant, keys in {
            "rope_theta": "theta base Base ropetheta rope_thetha RopeTheta ROPE_THETA",
            "rotary_dim": "rotray_dim",
            "partial_rotary_factor": "partial_rotry_factor",
            "head_dim": "head_dims",
        }.items()
        for key in keys.split()
    ],
    # the model
    (LLAMA | {"model_type": "mine"}, V, "'mine', whose layout is not known.*interleaved="),
    (without(LLAMA, "model_type"), V, "model_type is None, whose layout"),
    (LLAMA | {"model_type": "nanochat"}, V, "'nanochat'; it must be one of the .*Embedding.d"),
    # in the words of the class in transformers
    (LLAMA | {"model_type": "gemma", "num_attention_heads": 4.5}, V, "(?s)gemma.*leave model_type"),
    (LLAMA | {"rope_interleave": True}, V, "rope_interleave is True here and False in the"),
    (MLA | {"rope_interleave": "yes"}, T, "rope_interleave is 'yes'; it must be True or"),
    (example("gpt-j-6b") | {"rotary_dim": None}, V, "(?s)gptj.*rotary_dim.*leave model_type out"),
    (LLAMA | {"model_type": "granitemoehybrid"}, V, "position_embedding_type is None; this model"),
    (LLAMA | {"alibi": True}, V, "alibi is True; this model must rotate"),
    (LLAMA | {"rotary": False}, V, "rotary is False; this model must rotate"),
    (LLAMA | {"rotary_value": True}, V, "rotary_value is True; this model must rotate"),
    (LLAMA | {"use_mem_rope": False}, V, "holds 'use_mem_rope', which is not known"),
    (LLAMA | {"position_embedding_type": "nope"}, V, "position_embedding_type is 'nope'"),
    # keys at the top
    (LLAMA | {"rope_theta": "1e4"}, T, "rope_theta is '1e4'; it must be a real number"),
    (LLAMA | {"rope_theta": -1.0}, V, "rope_theta is -1; it must be positive"),
    (LLAMA | {"rotary_emb_base": 5e5}, V, r"rope_theta is 500000.0 at the top \(rotary_"),
    (LLAMA | {"layer_rope_theta": [1e4, 5e5]}, V, "holds 'layer_rope_theta', which is not"),
    # widths
    (LLAMA | {"head_dim": 7}, V, "head_dim gives a rotated width of 7.*must be even"),
    (LLAMA | {"head_dim": 8.0}, T, "head_dim is 8.0; it must be an integer"),
    (LLAMA | {"hidden_size": 65}, V, "hidden_size is 65 and num_attention_heads 4"),
    (without(LLAMA, "hidden_size"), V, "neither head_dim nor hidden_size and num"),
    (LLAMA | {"partial_rotary_factor": 0.33}, V, "partial_rotary_factor gives.*width of 5"),
    (LLAMA | {"partial_rotary_factor": 1.5}, V, "gives a rotated width of 24 in a head of 16"),
    (LLAMA | {"rotary_pct": 0.5, "partial_rotary_factor": 0.25}, V, "partial_rotary_fac"),
    (LLAMA | {"rotary_dim": 18}, V, "rotary_dim gives a rotated width of 18 in a head of"),
    (LLAMA | {"rotary_dim": 4, "rotary_pct": 0.5}, V, "width is 4 by rotary_dim and 8 by partial"),
    (MLA | {"partial_rotary_factor": 0.5}, V, "width is 16 by qk_rope_head_dim and 8 by"),
    # two names of one number
    (LLAMA | {"head_dim": 64, "kv_channels": 128}, V, "64 by that name and 128 as kv_ch"),
    (LLAMA | {"n_embd": 256}, V, "hidden_size is 64 by that name and 256 as n_e"),
    (LLAMA | {"n_heads": 2}, V, "heads is 4 by that name and 2 as n_heads; they"),
    (LLAMA | {"n_positions": 10}, V, "256 by that name and 10 as n_positions"),
    # single layers
    (LLAMA | {"per_layer_config": {0: {"head_dim": 8}}}, V, r"heads of \[8, 16\]; one width"),
    (LLAMA | {"no_rope_layers": [1], "num_hidden_layers": 2}, V, "no_rope_layers holds 1 entr"),
    (LLAMA | {"no_rope_layer_interval": 4}, V, "num_hidden_layers is 0"),
    # the type
    (LLAMA | {"rope_scaling": [4.0]}, T, r"rope_scaling is \[4.0\]; it must be a dict"),
    (scaled(rope_type="ntk", factor=2.0), V, "rope_type is 'ntk'; it must be one of default"),
    (scaled(rope_type="axial"), V, "rope_type is 'axial'.*MultiAxisRotaryEmbedding"),
    (scaled(factor=2.0), V, "'factor' is no parameter of rope_type 'default'"),
    (scaled(type="yarn", rope_type="linear", factor=2.0), V, "'yarn' in type and 'linear'"),
    # parameters of the type
    (scaled(rope_type="linear"), V, "rope_type 'linear' has no 'factor'"),
    (scaled(rope_type="linear", factor=0.5), V, "factor is 0.5; it must be at least 1"),
    (scaled(rope_type="linear", factor=2.0, beta_fast=32), V, "'beta_fast' is no parameter"),
    (scaled(**DYNAMIC, alpha=1000.0), V, "'alpha'.*extension=NTK"),
    (scaled(**DYNAMIC, original_max_position_embeddings=64), V, "is 64 in the rope.*256 as max"),
    (scaled(rope_type="yarn"), V, "'yarn' has neither 'factor' nor 'original_max"),
    (scaled(**YARN, llama_4_scaling_beta=0.1), V, "'llama_4_scaling_beta'.*the attention"),
    (scaled(**YARN, max_position_embeddings=9), V, "max_position_embeddings is 9 in the"),
    (scaled(**{**YARN, "factor": None, "original_max_position_embeddings": 512}), V, "0.5"),
    (
        {**scaled(**YARN), "original_max_position_embeddings": 128},
        V,
        "is 128 at the top and 64 inside",
    ),
    (scaled(**YARN, rope_theta=5e5), V, "rope_theta is 10000.0 at the top.*500000.0 inside"),
    ({**scaled(**YARN), "rope_parameters": {**YARN, "factor": 2.0}}, V, "factor is 4.0 in"),
    (scaled(**without(LONG, "long_factor")), V, "'longrope' has no 'long_factor'"),
    (scaled(**LONG, short_mscale=1.1, long_mscale=1.2), V, "is 1.2 here and 1.1 as att"),
    (scaled(rope_type="llama3", factor=8.0), V, "'llama3' has no 'low_freq_factor'"),
    # M-RoPE
    (MROPE | {"rope_scaling": {"mrope_section": [2, 2, 2]}}, V, "6 planes; it must share"),
    (MROPE | {"rope_scaling": {"mrope_section": [8.0]}}, T, "each of mrope_section is 8.0"),
    (
        MROPE | {"rope_scaling": {"mrope_section": [2, 3, 3], "mrope_interleaved": True}},
        V,
        "mrope_interleaved is True",
    ),
    (MROPE | NEW | {"model_type": "gemma"}, V, "code of gemma is not known.*mrope_interleaved"),
    # one RoPE a layer type
    (GEMMA, V, "layer_type is None; the layer types differ.*one of full_attention, "),
    ({**GEMMA, "rope_scaling": {"factor": 2.0}}, V, "do not both give one dict a layer"),
    ({**GEMMA, "rope_parameters": {**LAYERS, "rope_theta": 1.0}}, V, "'rope_theta' = 1.0"),
]
OLDER = {**without(LLAMA, "rope_theta"), "model_type": "gemma3_text"}


@pytest.mark.parametrize(("config", "error", "words"), BAD, ids=[bad[2][:40] for bad in BAD])
def test_bad_configurations_are_refused_in_words(config, error, words):
    before = copy.deepcopy(config)
    with pytest.raises(error, match=words) as caught:
        rotary_settings(config)
    assert caught.type is error and config == before


@pytest.mark.parametrize(
    ("config", "layer_type", "words"),
    [
        (GEMMA, "linear_attention", "it must be one of full_attention, sliding_attention, chunk"),
        (GEMMA, "chunked_attention", "layers of type 'chunked_attention' do not rotate"),
        (LLAMA, "full_attention", "one RoPE for all layers: leave it out"),
        ({**GEMMA, "rope_theta": 3.0}, "full_attention", "rope_theta is 3.0 at the top"),
        ({**GEMMA, "rope_local_base_freq": 3.0}, "full_attention", "rope_theta is 3.0 at the top"),
        (
            {**OLDER, "rope_theta": 1e6, "rope_scaling": {"type": "default", "rope_theta": 123.0}},
            "full_attention",
            r"rope_theta is 1000000.0 at the top \(rope_theta\) and 123.0 inside; they must",
        ),
        (
            {**OLDER, "rope_scaling": {"type": "linear", "factor": 8.0, "fresh": 1}},
            "sliding_attention",  # which does not use that dict
            "'fresh' is no parameter of rope_type 'linear'",
        ),
        (
            {**GEMMA, "rope_parameters": {**LAYERS, "other": {"fresh": 1}}},
            "full_attention",
            "'fresh' is no parameter of rope_type 'default'",
        ),
    ],
)
def test_a_layer_type_that_does_not_fit_is_refused(config, layer_type, words):
    with pytest.raises(ValueError, match=words):
        rotary_settings(config, layer_type=layer_type)


def test_other_arguments_that_do_not_fit_are_refused():
    with pytest.raises(TypeError, match="interleaved is 'half'"):  # which counts as true
        rotary_settings(LLAMA, interleaved="half")
    names = ", ".join(EXAMPLES)
    with pytest.raises(ValueError, match=f"name is 'llama'; it must be one of {names}"):
        example("llama")


def test_an_extension_that_the_models_class_drops_is_refused():
    """As Step-3.5's does, which fills in one dict a layer type of its own."""
    written = {None: {"rope_type": "linear", "factor": 2.0}}
    kept = {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}}
    with pytest.raises(ValueError, match=r"rope_type is 'linear' here and \['default'\] in every"):
        rope_parameters({}, written, kept, "full_attention")


def test_a_layer_type_without_a_base_has_its_familys():
    layers = {"full_attention": {}, "sliding_attention": {"rope_type": "default"}}
    for layer_type, base in (("full_attention", 1e6), ("sliding_attention", 1e4)):
        bare = {**GEMMA, "rope_parameters": layers}
        assert rotary_settings(bare, layer_type=layer_type).base == base


def test_single_layers_count_where_their_type_is_read():
    """As in Gemma 4, whose full attention has wider heads."""
    layers = ["full_attention", "sliding_attention", "full_attention"]
    for numbers, width in (((0, 2), 64), ((1,), 256), ((), 256)):
        config = {**GEMMA, "layer_types": layers}
        config["per_layer_config"] = {str(number): {"head_dim": 64} for number in numbers}
        assert rotary_settings(config, layer_type="full_attention").head_dim == width
    config["per_layer_config"] = {"0": {"head_dim": 64}}
    with pytest.raises(ValueError, match=r"'full_attention' have heads of \[64, 256\]; one width"):
        rotary_settings(config, layer_type="full_attention")
    empty = LLAMA | {"per_layer_config": {"7": {"head_dim": None, "intermediate_size": 3}}}
    assert rotary_settings(empty) == rotary_settings(LLAMA)


def test_a_length_that_no_class_knows_is_asked_for():
    mine = {**without(LLAMA, "max_position_embeddings"), "model_type": "mine"}
    for parameters in (None, YARN):
        known = mine | {"rope_scaling": parameters}
        assert rotary_settings(known, interleaved=True).max_position_embeddings is None
        with pytest.raises(ValueError, match=r"no max_position_emb.*: pass max_seq_len"):
            RotaryEmbedding.from_config(known, interleaved=True)
        made = RotaryEmbedding.from_config(known, interleaved=True, max_seq_len=96)
        whole = RotaryEmbedding.from_config(LLAMA | {"rope_scaling": parameters})
        assert len(made.cos) == 96 and made.inv_freq.equal(whole.inv_freq)
    # The numbers of these come of that length.
    for parameters in (DYNAMIC, DYNAMIC | OLD, {"rope_type": "yarn"} | OLD):
        with pytest.raises(ValueError, match=r"the length that .*: add max_position_embeddings"):
            RotaryEmbedding.from_config(
                mine | {"rope_scaling": parameters}, interleaved=True, max_seq_len=96
            )


def test_none_counts_as_absent_and_names_of_one_number_may_agree():
    twice = {"n_embd": 64, "n_head": 4, "max_seq_len": 256, "n_positions": 256}
    assert rotary_settings({**LLAMA, **twice}) == rotary_settings(LLAMA)
    nothing = {"rope_scaling": None, "rope_parameters": None, "rope_local_base_freq": None}
    assert rotary_settings({**LLAMA, **nothing, "rotary_dim": None}) == rotary_settings(LLAMA)
    assert rotary_settings(scaled(**YARN, attention_factor=None)) == rotary_settings(scaled(**YARN))


def test_an_unknown_base_is_asked_for_and_a_known_one_filled_in():
    config = without({**scaled(**YARN), "model_type": "mine"}, "rope_theta")
    with pytest.raises(ValueError, match=r"has no rope_theta.*add rope_theta"):
        rotary_settings(config, interleaved=True)
    assert rotary_settings({**config, "model_type": "gpt_oss"}).base == 1.5e5
