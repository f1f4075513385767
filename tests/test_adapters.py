"""Test that tiny transformers models give the same numbers with their own rotation and ours.

The oracle is the model before `use_rope`. In float64, the two models differ only in the angles,
which transformers computes in float32.
"""

import copy
import functools

import pytest
import torch
import truth
from strategies import tolerance

import rope
from rope.adapters import parts
from rope.adapters.transformers import PositionEmbeddings, restore, use_rope

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()  # no warnings about missing token ids

LENGTH, VOCABULARY = 24, 48
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
SIZES |= dict(num_key_value_heads=2, intermediate_size=32, vocab_size=VOCABULARY)
SIZES |= dict(initializer_range=0.3, pad_token_id=0, bos_token_id=None, eos_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=1e4, factor=8.0, original_max_position_embeddings=16)
LLAMA3 |= dict(low_freq_factor=1.0, high_freq_factor=4.0)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16)
DYNAMIC = dict(rope_type="dynamic", rope_theta=1e4, factor=2.0)
LONG = dict(rope_type="longrope", rope_theta=1e4, original_max_position_embeddings=16)
LONG |= dict(short_factor=[1.0, 1.0, 1.5, 2.0], long_factor=[1.0, 2.0, 3.0, 4.0])
LATENT = dict(num_key_value_heads=4, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=8)
LATENT |= dict(qk_nope_head_dim=8, v_head_dim=8, first_k_dense_replace=2)
SLIDING = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=16)
# Model classes, and the values in their configurations besides SIZES.
MODELS = {
    "Llama": dict(rope_parameters=LLAMA3),
    "Mistral": dict(),
    "Qwen2": dict(rope_parameters=YARN),
    "Qwen3": dict(head_dim=16),
    "Gemma": dict(head_dim=16),
    "Gemma3": dict(head_dim=8, **SLIDING),
    "GPTNeoX": dict(),
    "Phi": dict(),
    "Phi3": dict(rope_parameters=LONG, original_max_position_embeddings=16),
    "Olmo2": dict(),
    "Starcoder2": dict(rope_parameters=DYNAMIC, max_position_embeddings=16),
    "Cohere": dict(),
    "GraniteSWA": SLIDING | dict(layer_rope_theta=[1e4, 5e5]),
    "Cohere2": SLIDING,
    "SmolLM3": dict(no_rope_layers=[1, 0]),
    "Exaone4": SLIDING,
    "DeepseekV3": LATENT,
}
# Expected calls of our rotation: one per layer that rotates; 2 if not listed.
ROTATING = {"Cohere2": 1, "SmolLM3": 1, "Exaone4": 1}


def build(name, **more):
    text = "TextConfig" if name == "Gemma3" else "Config"
    config = getattr(transformers, name + text)(**SIZES | MODELS.get(name, {}) | more)
    torch.manual_seed(1)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


@functools.cache
def pair(name):
    theirs = build(name).double()
    return theirs, use_rope(copy.deepcopy(theirs))


def both(name):
    """Return the model with its own rotation and with ours, in float64.

    Both are copies, because a model with dynamic scaling changes with the longest text it sees.
    """
    return copy.deepcopy(pair(name))


def tokens():
    return torch.randint(1, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(0))


def bound(values):
    """Return the error allowed for angles up to LENGTH, which transformers rounds to float32."""
    return tolerance(torch.float32, LENGTH * float(values.detach().abs().max()))


def logits(model, **options):
    with torch.no_grad():
        return model(tokens(), **options).logits


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_are_those_of_the_model(name, monkeypatch):
    """Check that our function runs once per rotating layer."""
    calls, results, rotate = [], [], parts.rotary_embedding_qk

    def counted(*args, **options):
        calls.append(args)
        return rotate(*args, **options)

    monkeypatch.setattr(parts, "rotary_embedding_qk", counted)
    for model in both(name):
        assert not calls
        output = model(tokens()).logits
        gradients = torch.autograd.grad((output**2).mean(), list(model.parameters()))
        results.append((output, *gradients))
    assert len(calls) == ROTATING.get(name, 2)
    for theirs, ours in zip(*results, strict=True):
        assert float((ours - theirs).detach().abs().max()) <= bound(theirs)


# GraniteSWA's own attention gives nan for a row of padding.
@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"GraniteSWA"}))
def test_a_padded_batch_is_continued_with_the_same_tokens(name):
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[0, :9] = 0
    options = dict(attention_mask=mask, max_new_tokens=8, do_sample=False)
    options |= dict(output_logits=True, return_dict_in_generate=True)
    theirs, ours = (model.generate(tokens() * mask, **options) for model in both(name))
    assert ours.sequences.shape == (2, LENGTH + 8)
    assert torch.equal(theirs.sequences, ours.sequences)
    for a, b in zip(theirs.logits, ours.logits, strict=True):
        assert float((a - b).abs().max()) <= bound(a)


@pytest.mark.parametrize("name", ["Llama", "Gemma3"])
def test_other_models_of_the_class_keep_their_own_and_restore_undoes_it(name):
    other, model = build(name), build(name)
    before = logits(other)
    use_rope(model)
    kinds = [type(module) for module in model.modules()]
    assert PositionEmbeddings in kinds
    use_rope(model)  # a second call must change nothing
    assert [type(module) for module in model.modules()] == kinds
    assert torch.equal(logits(other), before)
    assert model.state_dict().keys() == other.state_dict().keys()
    assert restore(model) is model
    assert torch.equal(logits(model), before)
    assert [type(m) for m in model.modules()] == [type(m) for m in other.modules()]


@torch.no_grad()
def test_a_model_cast_to_half_or_created_on_meta_works():
    config = build("Llama").config  # slow planes, which float16 rounds badly
    cast = build("Llama", rope_parameters=LLAMA3 | {"rope_theta": 5e5}).half()
    assert logits(use_rope(cast)).dtype == torch.float16
    with torch.device("meta"):
        empty = transformers.LlamaForCausalLM(config).eval()
    empty.load_state_dict(build("Llama").state_dict(), assign=True)
    expected = logits(use_rope(build("Llama")))
    assert torch.equal(logits(use_rope(empty)), expected)
    with torch.device("meta"):
        empty = use_rope(transformers.LlamaForCausalLM(config).eval())
    empty.load_state_dict(build("Llama").state_dict(), assign=True)
    assert torch.equal(logits(empty), expected)


SPECTRA = pytest.mark.parametrize("parameters", [YARN, DYNAMIC, LONG], ids=lambda p: p["rope_type"])


@SPECTRA
def test_compiled_tables_have_the_spectrum_of_the_fixed_length(parameters):
    """Compare the tables with the formula's cos and sin times the attention factor."""
    torch.compiler.reset()
    tables = PositionEmbeddings(transformers.LlamaConfig(**SIZES, rope_parameters=parameters))
    (rotary,) = tables.layers.values()
    rotary.fix_length(8192)
    theta = list(map(float, truth.spectrum(8, 1e4, rotary.extension, 8192)))
    ids = torch.tensor([[0, 1, 2], [7, 50, 8191]])
    angles = torch.from_numpy(rope.reference.angles(ids.flatten(), theta)).view(2, 1, 3, 4)
    scale = float(truth.attention_scaling(rotary.extension))
    compiled = torch.compile(tables, fullgraph=True, backend="eager")
    for dtype in (torch.float32, torch.float64):
        x = torch.zeros(1, dtype=dtype)
        slack = tolerance(dtype, scale, 2) + tolerance(torch.float64, 8192 * scale)
        for result in (compiled(x, ids), tables(x, ids)):
            for table, exact in zip(result, (angles.cos(), angles.sin()), strict=True):
                assert table.dtype == dtype
                assert float((table.double() - scale * exact).abs().max()) <= slack


def changed_by_hand():
    model = build("Llama")
    model.model.rotary_emb.inv_freq *= 0.5
    return model


@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7),
    reason="PyTorch 2.6 cannot compile the models of transformers 5 in one graph",
)
@torch.no_grad()
def test_models_compiled_one_after_the_other_keep_their_own_frequencies():
    torch.compiler.reset()
    for name, start in (("Llama", 0), ("Qwen2", 1000)):  # trained on 64 positions
        theirs = build(name, num_hidden_layers=1).double()
        ours = torch.compile(use_rope(copy.deepcopy(theirs)), fullgraph=True, backend="eager")
        options = dict(position_ids=start + torch.arange(LENGTH)[None], use_cache=False)
        expected, result = logits(theirs, **options), logits(ours, **options)
        slack = (start / LENGTH + 1) * bound(expected)
        assert float((result - expected).abs().max()) <= slack


def test_other_models_raise_and_stay_unchanged():
    tiny = dict(n_embd=32, n_head=4, n_layer=1, vocab_size=8)
    vision = dict(rope_parameters={"rope_type": "default", "mrope_section": [1, 1, 2]})
    vision = transformers.Qwen2VLTextConfig(**SIZES, **vision)
    rejected = {
        "GPT2LMHeadModel: it doesn't rotate": transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**tiny)
        ),
        "Linear: it doesn't rotate": torch.nn.Linear(2, 2),
        "last coordinates": transformers.DeepseekV4ForCausalLM(
            transformers.DeepseekV4Config(**SIZES, compress_ratios=[0, 0])
        ),
        "Llama4TextAttention.*apply_rotary_emb": transformers.Llama4ForCausalLM(
            transformers.Llama4TextConfig(**SIZES, num_local_experts=1)
        ),
        "alibi.*True": build("Falcon", alibi=True),
        "no rotary module": transformers.GPTJForCausalLM(
            transformers.GPTJConfig(**tiny, rotary_dim=4)
        ),
        "inv_freq": changed_by_hand(),
        r"M-RoPE.*\[1, 1, 2\].*MultiAxisRotaryEmbedding": transformers.Qwen2VLTextModel(vision),
    }
    for words, model in rejected.items():
        before = [type(module) for module in model.modules()]
        with pytest.raises(ValueError, match=words):
            use_rope(model)
        assert [type(module) for module in model.modules()] == before
    with pytest.raises(TypeError, match=r"'gpt2'.*load"):
        use_rope("gpt2")
