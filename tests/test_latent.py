"""Compare latent attention with transformers, and its two forms with each other."""

import importlib

import pytest
import torch
from strategies import normal

from rope import RotaryEmbedding
from rope.attention import KVCache, LatentAttention
from rope.book.tolerance import within
from rope.extensions import YaRN

DOUBLE = torch.float64
SIZES = {"latent_dim": 12, "rope_dim": 4, "nope_dim": 6, "value_dim": 5}
KINDS = {
    "plain": {},
    "interleaved": {"rotary": RotaryEmbedding(4, interleaved=True)},
    "queries of a latent": {"query_latent_dim": 10},
    "wide values": {"value_dim": 20},
    "scaled": {"rotary": RotaryEmbedding(4, extension=YaRN(8.0, 16), base=100.0)},
}


def make(kind="plain", dtype=DOUBLE):
    """Return a layer with weights large enough that attention prefers some keys."""
    layer = LatentAttention(32, 4, **(SIZES | KINDS[kind])).to(dtype)
    if kind == "scaled":
        layer.rotary.softmax_scale = 1.7
    with torch.no_grad():
        for seed, weight in enumerate(layer.parameters()):
            weight.copy_(normal(weight.shape, seed, dtype) / weight.shape[-1] ** 0.5 * 2)
    return layer


def cache_for(layer, batch=2, room=12, dtype=DOUBLE):
    return KVCache(batch, 1, room, layer.rope_dim + layer.latent_dim, value_dim=0, dtype=dtype)


def close(actual, expected, dtype=DOUBLE, roundings=256):
    """Return True if the two agree, allowing for about eight sums of up to 32 products each."""
    return within(actual, expected, roundings, max(1.0, expected.abs().max().item()), dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_both_forms_and_their_gradients_agree(kind):
    layer, out_grad, results = make(kind), normal((2, 7, 32), 91), []
    for absorbed in (False, True):
        x = normal((2, 7, 32), 90).requires_grad_()
        out = layer(x, absorbed=absorbed)
        results.append([out, *torch.autograd.grad(out, [x, *layer.parameters()], out_grad)])
    for naive, absorbed in zip(*results, strict=True):
        assert naive.abs().max() > 0.1 and close(absorbed, naive)


def test_the_cheaper_form_is_taken():
    layer, x = make(), normal((1, 9, 32), 90)
    assert torch.equal(layer(x), layer(x, absorbed=False))
    with torch.no_grad():
        caches = [cache_for(layer, 1) for _ in range(2)]
        for cache in caches:
            layer(x, cache=cache)
        last, step = x[:, -1:], [{}, {"absorbed": True}]
        assert torch.equal(*(layer(last, cache=c, **s) for c, s in zip(caches, step, strict=True)))


@pytest.mark.parametrize("absorbed", [False, True, None])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_decoding_with_a_cache_equals_the_full_pass(kind, absorbed):
    layer, x = make(kind), normal((2, 9, 32), 90)
    cache = cache_for(layer)
    for ids in (None, torch.tensor([3, 4, 5, 9, 10, 20, 21, 22, 40])):
        expected = layer(x, ids, absorbed=False)
        for pieces in ((3, 1, 4, 1), (1,) * 9, (9,)):
            split = [None] * len(pieces) if ids is None else ids.split(pieces)
            out = [
                layer(piece, at, cache=cache, absorbed=absorbed)
                for piece, at in zip(x.split(pieces, dim=1), split, strict=True)
            ]
            assert close(torch.cat(out, dim=1), expected, roundings=1024)
            assert cache.length == 9
            cache.reset()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@torch.no_grad()
def test_other_dtypes_lose_only_their_rounding(dtype):
    layer, x = make(dtype=dtype), normal((2, 9, 32), 90, dtype)
    exact = make(dtype=dtype).double()(x.double())
    cache = cache_for(layer, dtype=dtype)
    decoded = torch.cat([layer(piece, cache=cache) for piece in x.split(1, dim=1)], dim=1)
    for out in (layer(x, absorbed=False), layer(x, absorbed=True), decoded):
        assert out.dtype == dtype and close(out, exact, dtype, roundings=16)


@pytest.mark.parametrize("widened", [False, True], ids=["as on a CPU", "as on a GPU"])
@torch.no_grad()
def test_autocast_decodes_in_its_dtype(widened):
    """Check decoding under autocast, which runs norms in float32 on GPUs but not on CPUs."""
    layer, x = make(dtype=torch.float32), normal((2, 9, 32), 90, torch.float32)
    if widened:
        layer.kv_a_layernorm.register_forward_hook(lambda norm, args, out: out.float())
    cache = cache_for(layer, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        out = torch.cat([layer(piece, cache=cache) for piece in x.split((4, 3, 1, 1), 1)], dim=1)
    assert out.dtype == torch.bfloat16 and close(out, layer(x), torch.bfloat16, roundings=16)


@pytest.mark.parametrize("policy", ["rotated", "plain"])
@pytest.mark.parametrize("absorbed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_dropped_and_shifted_is_recomputed_without_what_was_dropped(kind, absorbed, policy):
    """Drop tokens 2, 3, 4 and move later tokens up; only the rotated part of the keys changes."""
    layer, x = make(kind), normal((2, 12, 32), 90)
    cache = KVCache(2, 1, 12, 16, value_dim=0, policy=policy, dtype=DOUBLE)
    layer(x[:, :9], cache=cache)
    latents = cache.keys[..., 4:].clone()
    dropped = (cache.positions >= 2) & (cache.positions < 5)
    cache.keep(~dropped)
    cache.shift(-3, cache.positions >= 5)
    after = torch.cat(
        [layer(piece, cache=cache, absorbed=absorbed) for piece in x[:, 9:].split((2, 1), 1)], dim=1
    )
    rest = torch.cat((x[:, :2], x[:, 5:]), dim=1)
    assert close(after, layer(rest)[:, 6:], roundings=1024)
    slots = [0, 1, 5, 6, 7, 8]
    assert torch.equal(cache.read(layer.rotary)[0][:, :, slots, 4:], latents[:, :, slots])


# transformers runs norms and rotations in float32 for every dtype of the weights.
YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 40.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 4,
    "beta_slow": 1,
}
ROPES = {
    "default": {"rope_type": "default", "rope_theta": 100.0},
    "DeepSeek-V3": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    "DeepSeek-V2": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
    "both": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5},
    "in cos and sin": YARN,
}


def theirs_and_ours(version, rope, query_latent_dim, **more):
    """Return transformers' layer, its rotary module, and our layer with the same weights."""
    name = f"transformers.models.deepseek_v{version}"
    modeling = importlib.import_module(f"{name}.modeling_deepseek_v{version}")
    config = getattr(modeling, f"DeepseekV{version}Config")(
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=4,
        kv_lora_rank=12,
        q_lora_rank=query_latent_dim,
        qk_rope_head_dim=8,
        qk_nope_head_dim=6,
        v_head_dim=5,
        max_position_embeddings=1280,
        rope_parameters=dict(rope),
        attn_implementation="sdpa",
        **more,
    )
    theirs = getattr(modeling, f"DeepseekV{version}Attention")(config, layer_idx=0).double().eval()
    with torch.no_grad():
        for seed, weight in enumerate(theirs.parameters()):
            weight.copy_(normal(weight.shape, seed) / weight.shape[-1] ** 0.5 * 2)
    rotary = RotaryEmbedding.from_config(config)
    sizes = {"latent_dim": 12, "rope_dim": 8, "nope_dim": 6, "value_dim": 5}
    ours = LatentAttention(32, 4, **sizes, query_latent_dim=query_latent_dim, rotary=rotary)
    ours = ours.double()
    ours.load_state_dict(theirs.state_dict())
    return theirs, getattr(modeling, f"DeepseekV{version}RotaryEmbedding")(config), ours


@pytest.mark.parametrize(
    ("version", "rope", "query_latent_dim", "more"),
    [
        (2, "default", 10, {}),
        (2, "DeepSeek-V2", None, {}),
        (2, "in cos and sin", 10, {}),
        (3, "DeepSeek-V3", 10, {}),
        (3, "both", None, {}),
        (3, "DeepSeek-V3", None, {"rope_interleave": False}),
    ],
)
@torch.no_grad()
def test_parity_with_transformers(version, rope, query_latent_dim, more):
    """Compare for a full sequence, and for a prompt followed by single tokens."""
    theirs, rotary, ours = theirs_and_ours(version, ROPES[rope], query_latent_dim, **more)
    x, ids = normal((2, 40, 32), 90), torch.arange(40)
    tables = rotary(x.float(), ids[None])
    expected = theirs(x, position_embeddings=tables, attention_mask=None)[0]
    cache = cache_for(ours, room=40)
    for absorbed in (False, True):
        assert close(ours(x, absorbed=absorbed), expected, torch.float32, roundings=40)
    out = torch.cat([ours(piece, cache=cache) for piece in x.split((30, *[1] * 10), dim=1)], dim=1)
    assert close(out, expected, torch.float32, roundings=40)


def test_a_rotary_embedding_of_another_width_raises():
    with pytest.raises(ValueError, match=r"rotary.* 6 .*rope_dim.* 4"):
        LatentAttention(32, 4, **SIZES, rotary=RotaryEmbedding(6))
