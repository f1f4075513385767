"""Bad configurations: the exception's type, and the keys and values that its message names."""

import copy
from types import SimpleNamespace

import pytest
from strategies import LLAMA, check_refused

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


def without(config, key):
    return {name: value for name, value in config.items() if name != key}


def scaled(**parameters):
    return LLAMA | {"rope_scaling": parameters}


OLDER = {**without(LLAMA, "rope_theta"), "model_type": "gemma3_text"}
SECTIONS = LLAMA | {"model_type": "qwen2_vl", "rope_scaling": {"mrope_section": [2, 3, 3]}}
LATENT = LLAMA | {"model_type": "deepseek_v3", "qk_rope_head_dim": 16}
V, T = ValueError, TypeError
BAD = [  # the configuration, the exception, what its message names
    # where the configuration comes from
    (7, T, "config int"),
    ("meta-llama/Llama-3.1-8B", V, "meta-llama/Llama-3.1-8B config.json"),
    ('{"a": 1, "a": 2}', V, "'a' 1 2"),
    (LLAMA | {"text_config": 3}, T, "text_config 3 dict"),
    ({"rope_theta": 5.0, "text_config": LLAMA}, V, "rope_theta 5.0 text_config 10000.0"),
    (SimpleNamespace(to_dict=list), T, "config list"),
    # keys about rotation that nothing reads
    (LLAMA | {"attention": {"rope_theta": 5e5}}, V, "'attention.rope_theta' top"),
    (LLAMA | {"a": [{"b": {"rotary_dim": 8}}]}, V, "'a.0.b.rotary_dim'"),
    ({"text_config": LLAMA | {"a": {"rope_dim": 8}}}, V, "'text_config.a.rope_dim'"),
    (LLAMA | {"theta": 4}, V, "'theta' rope_theta"),
    (LLAMA | {"Base": 4}, V, "'Base' rope_theta"),
    (LLAMA | {"ROPE_THETA": 4}, V, "'ROPE_THETA' rope_theta"),
    (LLAMA | {"partial_rotry_factor": 4}, V, "'partial_rotry_factor' partial_rotary_factor"),
    (LLAMA | {"head_dims": 4}, V, "'head_dims' head_dim"),
    (LLAMA | {"use_mem_rope": False}, V, "'use_mem_rope'"),
    # the model
    (LLAMA | {"model_type": "mine"}, V, "model_type 'mine' interleaved="),
    (without(LLAMA, "model_type"), V, "model_type None interleaved="),
    (LLAMA | {"model_type": "nanochat"}, V, "model_type 'nanochat' RotaryEmbedding"),
    (LLAMA | {"model_type": "gemma", "num_attention_heads": 4.5}, V, "'gemma' model_type"),
    (example("gpt-j-6b") | {"rotary_dim": None}, V, "'gptj' rotary_dim model_type"),
    (LLAMA | {"rope_interleave": True}, V, "rope_interleave True False llama"),
    (LATENT | {"rope_interleave": "yes"}, T, "rope_interleave 'yes'"),
    (LLAMA | {"model_type": "granitemoehybrid"}, V, "position_embedding_type None"),
    (LLAMA | {"alibi": True}, V, "alibi True"),
    (LLAMA | {"rotary": False}, V, "rotary False"),
    (LLAMA | {"rotary_value": True}, V, "rotary_value True"),
    # the base and the widths
    (LLAMA | {"rope_theta": "1e4"}, T, "rope_theta '1e4'"),
    (LLAMA | {"rope_theta": -1.0}, V, "rope_theta -1"),
    (LLAMA | {"rotary_emb_base": 5e5}, V, "rope_theta 500000.0 rotary_emb_base 10000.0"),
    (LLAMA | {"head_dim": 7}, V, "head_dim 7"),
    (LLAMA | {"head_dim": 8.0}, T, "head_dim 8.0"),
    (LLAMA | {"hidden_size": 65}, V, "hidden_size 65 num_attention_heads 4"),
    (without(LLAMA, "hidden_size"), V, "head_dim hidden_size num_attention_heads"),
    (LLAMA | {"partial_rotary_factor": 1.5}, V, "partial_rotary_factor 24 16"),
    (LLAMA | {"rotary_pct": 0.5, "partial_rotary_factor": 0.25}, V, "partial_rotary_factor 0.5"),
    (LLAMA | {"rotary_dim": 4, "rotary_pct": 0.5}, V, "4 rotary_dim 8 partial_rotary_factor"),
    (LATENT | {"partial_rotary_factor": 0.5}, V, "16 qk_rope_head_dim 8 partial_rotary_factor"),
    # two names of one number
    (LLAMA | {"head_dim": 64, "kv_channels": 128}, V, "head_dim 64 kv_channels 128"),
    (LLAMA | {"n_positions": 10}, V, "max_position_embeddings 256 n_positions 10"),
    # single layers
    (LLAMA | {"per_layer_config": {0: {"head_dim": 8}}}, V, "[8, 16]"),
    (LLAMA | {"no_rope_layers": [1], "num_hidden_layers": 2}, V, "no_rope_layers 1 2"),
    (LLAMA | {"no_rope_layer_interval": 4}, V, "num_hidden_layers 0"),
    # the type and its parameters
    (LLAMA | {"rope_scaling": [4.0]}, T, "rope_scaling [4.0] dict"),
    (scaled(rope_type="ntk", factor=2.0), V, "rope_type 'ntk' default linear dynamic yarn"),
    (scaled(factor=2.0), V, "'factor' rope_type 'default'"),
    (scaled(type="yarn", rope_type="linear", factor=2.0), V, "'yarn' 'linear'"),
    (scaled(rope_type="linear"), V, "'linear' 'factor'"),
    (scaled(rope_type="linear", factor=0.5), V, "factor 0.5"),
    (scaled(rope_type="linear", factor=2.0, beta_fast=32), V, "'beta_fast' 'linear'"),
    (scaled(**DYNAMIC, alpha=1000.0), V, "'alpha' extension=NTK"),
    (scaled(**DYNAMIC, **OLD), V, "64 256 max_position_embeddings"),
    (scaled(rope_type="yarn"), V, "'yarn' 'factor' 'original_max_position_embeddings'"),
    (scaled(**YARN, llama_4_scaling_beta=0.1), V, "'llama_4_scaling_beta'"),
    (scaled(**YARN, max_position_embeddings=9), V, "max_position_embeddings 9 256"),
    (scaled(rope_type="yarn", original_max_position_embeddings=512), V, "factor 0.5"),
    (scaled(**YARN) | {"original_max_position_embeddings": 128}, V, "128 64"),
    (scaled(**YARN, rope_theta=5e5), V, "rope_theta 10000.0 500000.0"),
    (scaled(**YARN) | {"rope_parameters": {**YARN, "factor": 2.0}}, V, "factor 4.0 2.0"),
    (scaled(**without(LONG, "long_factor")), V, "'longrope' 'long_factor'"),
    (scaled(**LONG, short_mscale=1.1, long_mscale=1.2), V, "long_mscale 1.2 1.1"),
    # M-RoPE
    (SECTIONS | {"rope_scaling": {"mrope_section": [2, 2, 2]}}, V, "[2, 2, 2] 6 8"),
    (SECTIONS | {"rope_scaling": {"mrope_section": [8.0]}}, T, "mrope_section 8.0"),
    (
        SECTIONS | {"rope_scaling": {"mrope_section": [2, 3, 3], "mrope_interleaved": True}},
        V,
        "mrope_interleaved True False qwen2_vl",
    ),
    (SECTIONS | {"model_type": "gemma"}, V, "gemma mrope_interleaved"),
    # one RoPE a layer type
    (GEMMA, V, "layer_type None full_attention sliding_attention"),
    (GEMMA | {"rope_scaling": {"factor": 2.0}}, V, "rope_parameters rope_scaling"),
    (GEMMA | {"rope_parameters": {**LAYERS, "rope_theta": 1.0}}, V, "'rope_theta' 1.0"),
]
FRESH = {"fresh": 1}
DEFAULT = {"type": "default", "rope_theta": 123.0}
BAD_LAYERS = [  # with the layer type that is asked for
    (GEMMA, "linear_attention", "'linear_attention' full_attention chunked_attention"),
    (GEMMA, "chunked_attention", "'chunked_attention'"),
    (LLAMA, "full_attention", "layer_type 'full_attention'"),
    (GEMMA | {"rope_theta": 3.0}, "full_attention", "rope_theta 3.0 1000000.0"),
    (GEMMA | {"rope_local_base_freq": 3.0}, "full_attention", "rope_local_base_freq 3.0"),
    (OLDER | {"rope_theta": 1e6, "rope_scaling": DEFAULT}, "full_attention", "1000000.0 123.0"),
    # what stands beside the entry of that type is read too
    (OLDER | {"rope_scaling": {"type": "linear", **FRESH}}, "sliding_attention", "'fresh' linear"),
    (GEMMA | {"rope_parameters": {**LAYERS, "other": FRESH}}, "full_attention", "'fresh' default"),
]
CASES = [(config, None, kind, words) for config, kind, words in BAD] + [
    (config, layer_type, V, words) for config, layer_type, words in BAD_LAYERS
]


@pytest.mark.parametrize(
    ("config", "layer_type", "kind", "words"), CASES, ids=[c[3] for c in CASES]
)
def test_a_bad_configuration_is_refused_by_name_and_not_changed(config, layer_type, kind, words):
    before = copy.deepcopy(config)
    check_refused(lambda: rotary_settings(config, layer_type=layer_type), kind, words)
    assert config == before


def test_other_arguments_that_do_not_fit_are_refused():
    half = lambda: rotary_settings(LLAMA, interleaved="half")  # which counts as true
    check_refused(half, TypeError, "interleaved 'half'")
    check_refused(lambda: example("llama"), ValueError, " ".join(("name 'llama'", *EXAMPLES)))


def test_an_extension_that_the_models_class_drops_is_refused():
    """As Step-3.5's does, which fills in one dict a layer type of its own."""
    written = {None: {"rope_type": "linear", "factor": 2.0}}
    kept = {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}}
    read = lambda: rope_parameters({}, written, kept, "full_attention")
    check_refused(read, ValueError, "rope_type 'linear' 'default'")


def test_a_layer_type_without_a_base_has_its_familys():
    layers = {"full_attention": {}, "sliding_attention": {"rope_type": "default"}}
    for layer_type, base in (("full_attention", 1e6), ("sliding_attention", 1e4)):
        bare = {**GEMMA, "rope_parameters": layers}
        assert rotary_settings(bare, layer_type=layer_type).base == base


def test_single_layers_count_where_their_type_is_read():
    """As in Gemma 4, whose full attention has wider heads."""
    config = GEMMA | {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}
    read = lambda: rotary_settings(config, layer_type="full_attention")
    for numbers, width in (((0, 2), 64), ((1,), 256), ((), 256)):
        config["per_layer_config"] = {str(number): {"head_dim": 64} for number in numbers}
        assert read().head_dim == width
    config["per_layer_config"] = {"0": {"head_dim": 64}}
    check_refused(read, ValueError, "'full_attention' [64, 256]")
    for layer_type, width in (("full_attention", 64), ("sliding_attention", 256)):
        named = GEMMA | {"global_head_dim": 64}
        assert rotary_settings(named, layer_type=layer_type).head_dim == width
    empty = LLAMA | {"per_layer_config": {"7": {"head_dim": None, "intermediate_size": 3}}}
    assert rotary_settings(empty) == rotary_settings(LLAMA)


def test_a_length_that_no_class_knows_is_asked_for():
    mine = {**without(LLAMA, "max_position_embeddings"), "model_type": "mine"}
    made = lambda scaling, **options: RotaryEmbedding.from_config(
        mine | {"rope_scaling": scaling}, interleaved=True, **options
    )
    for scaling in (None, YARN):
        check_refused(lambda s=scaling: made(s), ValueError, "max_position_embeddings max_seq_len")
        whole = RotaryEmbedding.from_config(LLAMA | {"rope_scaling": scaling})
        ours = made(scaling, max_seq_len=96)
        assert len(ours.cos) == 96 and ours.inv_freq.equal(whole.inv_freq)
    # The numbers of these come of that length, which the tables' length cannot stand for.
    for scaling in (DYNAMIC, DYNAMIC | OLD, {"rope_type": "yarn"} | OLD):
        words = f"{scaling['rope_type']!r} max_position_embeddings max_seq_len"
        check_refused(lambda s=scaling: made(s, max_seq_len=96), ValueError, words)


def test_none_counts_as_absent_and_names_of_one_number_may_agree():
    twice = {"n_embd": 64, "n_head": 4, "max_seq_len": 256, "n_positions": 256}
    assert rotary_settings({**LLAMA, **twice}) == rotary_settings(LLAMA)
    nothing = {"rope_scaling": None, "rope_parameters": None, "rope_local_base_freq": None}
    assert rotary_settings({**LLAMA, **nothing, "rotary_dim": None}) == rotary_settings(LLAMA)
    assert rotary_settings(scaled(**YARN, attention_factor=None)) == rotary_settings(scaled(**YARN))


def test_an_unknown_base_is_asked_for_and_a_known_one_filled_in():
    config = without({**scaled(**YARN), "model_type": "mine"}, "rope_theta")
    check_refused(lambda: rotary_settings(config, interleaved=True), ValueError, "rope_theta")
    assert rotary_settings({**config, "model_type": "gpt_oss"}).base == 1.5e5
