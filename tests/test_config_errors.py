"""Test that bad configurations raise errors that name the key and its value."""

import copy

import pytest
from strategies import LLAMA, check_raises

from rope import RotaryEmbedding
from rope.config import rotary_settings
from rope.extensions import Default

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
LATENT = LLAMA | {"model_type": "deepseek_v3", "qk_rope_head_dim": 16}
FRESH = {"fresh": 1}
DEFAULT = {"type": "default", "rope_theta": 123.0}
V, T = ValueError, TypeError
BAD = [  # (configuration, exception, words in its message)
    # the source
    (7, T, "config int"),
    ("meta-llama/Llama-3.1-8B", V, "meta-llama/Llama-3.1-8B config.json"),
    (LLAMA | {"text_config": 3}, T, "text_config 3 dict"),
    ({"rope_theta": 5.0, "text_config": LLAMA}, V, "rope_theta 5.0 text_config 10000.0"),
    # keys about rotation that nothing reads
    (LLAMA | {"attention": {"rope_theta": 5e5}}, V, "'attention.rope_theta' top"),
    (LLAMA | {"a": [{"b": {"rotary_dim": 8}}]}, V, "'a.0.b.rotary_dim'"),
    (LLAMA | {"ROPE_THETA": 4}, V, "'ROPE_THETA' rope_theta"),
    # the model
    (LLAMA | {"model_type": "mine"}, V, "model_type 'mine' interleaved="),
    (LLAMA | {"model_type": "nanochat"}, V, "model_type 'nanochat' RotaryEmbedding"),
    (LLAMA | {"model_type": "gemma", "num_attention_heads": 4.5}, V, "'gemma' model_type"),
    (LLAMA | {"rope_interleave": True}, V, "rope_interleave True False llama"),
    (LLAMA | {"model_type": "granitemoehybrid"}, V, "position_embedding_type None"),
    (LLAMA | {"alibi": True}, V, "alibi True"),
    (LLAMA | {"rotary": False}, V, "rotary False"),
    (LLAMA | {"rotary_value": True}, V, "rotary_value True"),
    # the base and the widths
    (LLAMA | {"rope_theta": "1e4"}, T, "rope_theta '1e4'"),
    (LLAMA | {"rotary_emb_base": 5e5}, V, "rope_theta 500000.0 rotary_emb_base 10000.0"),
    (LLAMA | {"head_dim": 7}, V, "head_dim 7"),
    (without(LLAMA, "hidden_size"), V, "head_dim hidden_size num_attention_heads"),
    (LLAMA | {"partial_rotary_factor": 1.5}, V, "partial_rotary_factor 24 16"),
    (LLAMA | {"rotary_pct": 0.5, "partial_rotary_factor": 0.25}, V, "partial_rotary_factor 0.5"),
    (LLAMA | {"rotary_dim": 4, "rotary_pct": 0.5}, V, "4 rotary_dim 8 partial_rotary_factor"),
    (LATENT | {"partial_rotary_factor": 0.5}, V, "16 qk_rope_head_dim 8 partial_rotary_factor"),
    (LLAMA | {"head_dim": 64, "kv_channels": 128}, V, "head_dim 64 kv_channels 128"),
    (LLAMA | {"n_positions": 10}, V, "max_position_embeddings 256 n_positions 10"),
    # single layers
    (LLAMA | {"no_rope_layers": [1], "num_hidden_layers": 2}, V, "no_rope_layers 1 2"),
    (LLAMA | {"no_rope_layer_interval": 4}, V, "num_hidden_layers 0"),
    # the type and its parameters
    (LLAMA | {"rope_scaling": [4.0]}, T, "rope_scaling [4.0] dict"),
    (scaled(rope_type="ntk", factor=2.0), V, "rope_type 'ntk' default linear dynamic yarn"),
    (scaled(factor=2.0), V, "'factor' rope_type 'default'"),
    (scaled(type="yarn", rope_type="linear", factor=2.0), V, "'yarn' 'linear'"),
    (scaled(rope_type="linear"), V, "'linear' 'factor'"),
    (scaled(**DYNAMIC, **OLD), V, "64 256 max_position_embeddings"),
    (scaled(**YARN, llama_5_scaling_beta=0.1), V, "'llama_5_scaling_beta'"),
    (scaled(**YARN, max_position_embeddings=9), V, "max_position_embeddings 9 256"),
    (scaled(rope_type="yarn", original_max_position_embeddings=512), V, "factor 0.5"),
    (scaled(**YARN) | {"original_max_position_embeddings": 128}, V, "128 64"),
    (scaled(**YARN, rope_theta=5e5), V, "rope_theta 10000.0 500000.0"),
    (scaled(**YARN) | {"rope_parameters": {**YARN, "factor": 2.0}}, V, "factor 4.0 2.0"),
    (scaled(**without(LONG, "long_factor")), V, "'longrope' 'long_factor'"),
    (scaled(**LONG, short_mscale=1.1, long_mscale=1.2), V, "long_mscale 1.2 1.1"),
    # one dict of parameters per layer type
    (GEMMA, V, "layer_type None full_attention sliding_attention layer="),
    (LLAMA | {"layer_rope_theta": [1e4, 5e5]}, V, "layer_rope_theta 10000.0 500000.0 layer="),
    (LLAMA | {"yarn_only_types": ["a"]}, V, "yarn_only_types 'a' full_attention"),
    (LLAMA | {"use_rope_layers": [1]}, V, "'use_rope_layers'"),
    (GEMMA | {"rope_scaling": {"factor": 2.0}}, V, "'default' 'factor'"),
]
BAD_LAYERS = [  # (configuration, layer type, words in the message)
    (GEMMA, "linear_attention", "'linear_attention' full_attention chunked_attention"),
    (GEMMA, "chunked_attention", "'chunked_attention'"),
    (LLAMA, "full_attention", "layer_type 'full_attention'"),
    (GEMMA | {"rope_theta": 3.0}, "full_attention", "rope_theta 3.0 1000000.0"),
    (OLDER | {"rope_theta": 1e6, "rope_scaling": DEFAULT}, "full_attention", "1000000.0 123.0"),
    # the parameters of the other types are checked too
    (OLDER | {"rope_scaling": {"type": "linear", **FRESH}}, "sliding_attention", "'fresh' linear"),
    (GEMMA | {"rope_parameters": {**LAYERS, "other": FRESH}}, "full_attention", "'fresh' default"),
]
CASES = [(config, None, kind, words) for config, kind, words in BAD] + [
    (config, layer_type, V, words) for config, layer_type, words in BAD_LAYERS
]


@pytest.mark.parametrize(
    ("config", "layer_type", "kind", "words"), CASES, ids=[c[3] for c in CASES]
)
def test_a_bad_configuration_raises_and_is_not_changed(config, layer_type, kind, words):
    before = copy.deepcopy(config)
    check_raises(lambda: rotary_settings(config, layer_type=layer_type), kind, words)
    assert config == before


def test_a_layer_type_without_a_base_has_that_of_its_family():
    layers = {"full_attention": {}, "sliding_attention": {"rope_type": "default"}}
    for layer_type, base in (("full_attention", 1e6), ("sliding_attention", 1e4)):
        bare = {**GEMMA, "rope_parameters": layers}
        assert rotary_settings(bare, layer_type=layer_type).base == base


def test_layer_types_may_differ_in_width():
    """Check layer types with different head widths, as in Gemma 4's full attention."""
    kinds = {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}
    wider = {"per_layer_config": {str(number): {"head_dim": 64} for number in (0, 2)}}
    for config in (GEMMA | kinds | wider, GEMMA | {"global_head_dim": 64}):
        for layer_type, width in (("full_attention", 64), ("sliding_attention", 256)):
            assert rotary_settings(config, layer_type=layer_type).head_dim == width
    other = LLAMA | {"per_layer_config": {"7": {"head_dim": None, "intermediate_size": 3}}}
    assert rotary_settings(other) == rotary_settings(LLAMA)


def test_a_length_that_no_class_knows_is_required():
    mine = {**without(LLAMA, "max_position_embeddings"), "model_type": "mine"}
    create = lambda scaling, **options: RotaryEmbedding.from_config(
        mine | {"rope_scaling": scaling}, interleaved=True, **options
    )
    whole = RotaryEmbedding.from_config(LLAMA | {"rope_scaling": YARN})
    assert create(YARN, max_seq_len=96).inv_freq.equal(whole.inv_freq)
    # The length of the tables must not be taken for the trained length.
    for scaling, words in (
        (DYNAMIC, "'dynamic' original_max_position_embeddings"),
        (DYNAMIC | OLD, "64 None max_position_embeddings"),
        ({"rope_type": "yarn"} | OLD, "'yarn' 'factor'"),
    ):
        check_raises(lambda s=scaling: create(s, max_seq_len=96), ValueError, words)


def test_none_counts_as_absent_and_two_names_may_agree():
    twice = {"n_embd": 64, "n_head": 4, "max_seq_len": 256, "n_positions": 256}
    assert rotary_settings({**LLAMA, **twice}) == rotary_settings(LLAMA)
    nothing = {"rope_scaling": None, "rope_parameters": None, "rope_local_base_freq": None}
    assert rotary_settings({**LLAMA, **nothing, "rotary_dim": None}) == rotary_settings(LLAMA)
    assert rotary_settings(scaled(**YARN, attention_factor=None)) == rotary_settings(scaled(**YARN))


def test_an_unknown_base_is_required_and_a_known_one_filled_in():
    config = without({**scaled(**YARN), "model_type": "mine"}, "rope_theta")
    check_raises(lambda: rotary_settings(config, interleaved=True), ValueError, "rope_theta")
    assert rotary_settings({**config, "model_type": "gpt_oss"}).base == 1.5e5


def test_all_unknown_parameters_are_named_in_order():
    names = r"doesn't take 'alpha', 'Alpha', 'mscale' \(for alpha, pass .* NTK\(alpha\)\); remove"
    with pytest.raises(ValueError, match=names):
        rotary_settings(scaled(**DYNAMIC, mscale=1.0, Alpha=2.0, alpha=1000.0))


def test_missing_lists_and_missing_layer_types_are_named():
    config = scaled(type="su", factor=8.0)
    check_raises(lambda: rotary_settings(config), ValueError, "short_factor list")
    kinds = ["full_attention", "sliding_attention"]
    nested = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    config = {"head_dim": 8, "layer_types": kinds, "rope_parameters": nested}
    with pytest.raises(ValueError, match="add RoPE parameters for 'full_attention'"):
        rotary_settings(config, layer_type="full_attention", interleaved=False)


def test_a_key_next_to_the_layer_types_applies_to_those_that_take_it():
    kinds = {"full_attention": YARN, "sliding_attention": {"rope_type": "default"}}
    nested = {**kinds, "rope_theta": 5e5, "beta_fast": 64.0}
    config = without(LLAMA, "rope_theta") | {"layer_types": [*kinds], "rope_parameters": nested}
    full, sliding = (rotary_settings(config, layer_type=kind) for kind in kinds)
    assert full.base == sliding.base == 5e5
    assert (full.extension.beta_fast, sliding.extension) == (64, Default())
    nested["gamma"] = 1.0
    check_raises(lambda: rotary_settings(config, layer_type="full_attention"), V, "'yarn' 'gamma'")


def test_a_base_of_sliding_layers_is_read_or_rejected():
    pytest.importorskip("transformers")
    config = {"head_dim": 8, "rope_theta": 5e6, "swa_rope_theta": 1e4, "num_hidden_layers": 2}
    for kind, base in {"full_attention": 5e6, "sliding_attention": 1e4}.items():
        mimo = {**config, "model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1]}
        assert rotary_settings(mimo, layer_type=kind).base == base
    plain = {**config, "model_type": "llama"}
    check_raises(lambda: rotary_settings(plain), ValueError, "swa_rope_theta")
